"""The folder of one stack: who holds it, what is in it, what may be removed from it.

Owns every path below `COATCHECK_HOME`. Promises that one supervisor at a time holds a home,
that files with secrets have mode 0600 and are replaced whole, and that an unwritable or full
disk is one clear sentence. Must never remove a file that is not the stack's own.
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shared.domain.errors import Refused, Unavailable

HOME_VARIABLE = "COATCHECK_HOME"
DEFAULT_HOME = ".coatcheck"
SETTINGS_NAME = "settings.json"
"""What the rooms of the running stack are told; read by commands that act in their place."""
LEAST_FREE_FIRST_MEGABYTES = 256
LEAST_FREE_MEGABYTES = 64
LONGEST_LOG_BYTES = 16 * 1024 * 1024
_PROBE_BYTES = 1024 * 1024
_OWN_NAMES = (
    "postgres", "postgres.password", "kafka", "s3", "fake_runpod", "logs", "secrets.json",
    "ports.json", "children.json", "stack.json", "settings.json", "control.sock", "probe", "lock",
)  # fmt: skip


class HomeBusy(Refused):
    """Another supervisor holds this home."""


class HomeUnusable(Unavailable):
    """The folder of the stack cannot be written."""


class Home:
    """One home, by its absolute path. Making the object touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @classmethod
    def named(cls) -> "Home":
        """The home that the environment names, else `.coatcheck` in the current folder."""
        return cls(Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME))

    @property
    def stack_file(self) -> Path:
        return self.path / "stack.json"

    @property
    def log_dir(self) -> Path:
        return self.path / "logs"

    @property
    def control_socket(self) -> Path:
        return self.path / "control.sock"

    def folder(self, name: str) -> Path:
        """Where the part of that name keeps its data."""
        return self.path / name

    def log_of(self, name: str) -> Path:
        """The log of the part of that name."""
        return self.log_dir / f"{name}.log"

    def open(self) -> None:
        """Make the folder (mode 0700) and prove that it takes data. Raises HomeUnusable."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.log_dir.mkdir(exist_ok=True, mode=0o700)
            probe = self.path / "probe"
            probe.write_bytes(os.urandom(_PROBE_BYTES))
            probe.unlink()
        except OSError as error:
            raise HomeUnusable(self._sentence(error)) from error
        is_first = not (self.folder("postgres") / "PG_VERSION").exists()
        wanted = LEAST_FREE_FIRST_MEGABYTES if is_first else LEAST_FREE_MEGABYTES
        free = self.free_megabytes()
        if free < wanted:
            raise HomeUnusable(
                f"the disk that holds {self.path} is full: {free} MB are free, "
                f"{wanted} MB are needed; make room, or set {HOME_VARIABLE} to another disk"
            )

    def turn_logs(self) -> None:
        """Put a log aside that has grown long; one older one is kept."""
        for log in self.log_dir.glob("*.log"):
            if log.stat().st_size > LONGEST_LOG_BYTES:
                log.replace(log.with_suffix(".log.old"))

    def free_megabytes(self) -> int:
        """What a plain user may still write on this disk."""
        facts = os.statvfs(self.path)
        return facts.f_bavail * facts.f_frsize // (1024 * 1024)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the home against a second supervisor. Raises HomeBusy or HomeUnusable.

        The kernel lets go when we end, however that happens; no child inherits the lock.
        """
        self.open()
        with self.held_without_room():
            yield

    @contextmanager
    def held_without_room(self) -> Iterator[None]:
        """The same for whoever needs no space on the disk, such as a removal."""
        with self._lock_file() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = (self.path / "lock").read_text().strip()
                by_number = f", or kill {holder}" if holder else ""
                raise HomeBusy(
                    f"a stack already runs on {self.path} (process {holder or 'unknown'}): "
                    f"stop it first (Ctrl-C in its terminal{by_number}); "
                    f"a second stack needs a {HOME_VARIABLE} of its own"
                ) from None
            _note_holder(lock)
            yield

    def is_held(self) -> bool:
        """Does a supervisor run on this home now?"""
        if not (self.path / "lock").exists():
            return False
        with self._lock_file() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _lock_file(self) -> Any:
        try:
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HomeUnusable(self._sentence(error)) from error
        return os.fdopen(handle, "r+")

    def read_json(self, name: str) -> dict[str, Any]:
        """A file of ours, or an empty object where it is missing. Raises HomeUnusable."""
        path = self.path / name
        try:
            value = json.loads(path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise HomeUnusable(f"{path} cannot be read: {type(error).__name__}") from error
        return value if isinstance(value, dict) else {}

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a file of ours whole, mode 0600. Raises HomeUnusable."""
        fresh = self.path / f"{name}.new"
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w") as file:
                json.dump(value, file, indent=1)
                file.write("\n")
            fresh.replace(self.path / name)
        except OSError as error:
            raise HomeUnusable(self._sentence(error)) from error

    def forget_stack(self) -> None:
        """Remove what is true of a running stack only."""
        self.stack_file.unlink(missing_ok=True)
        (self.path / SETTINGS_NAME).unlink(missing_ok=True)

    def remove(self) -> list[str]:
        """Remove what the stack keeps here, and the folder if nothing else is in it.

        Returns the names removed. The caller holds the home.
        """
        removed = []
        try:
            for name in (*_OWN_NAMES, *(f"{name}.new" for name in _OWN_NAMES)):
                path = self.path / name
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.exists() or path.is_symlink():
                    path.unlink()
                else:
                    continue
                removed.append(name)
            if not any(self.path.iterdir()):
                self.path.rmdir()
        except OSError as error:
            raise HomeUnusable(self._sentence(error)) from error
        return removed

    def _sentence(self, error: OSError) -> str:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return (
                f"the disk that holds {self.path} is full ({error.strerror}): make room, "
                f"or set {HOME_VARIABLE} to another disk"
            )
        return (
            f"{self.path} cannot be written ({error.strerror}): "
            f"set {HOME_VARIABLE} to a folder of yours"
        )


def _note_holder(lock: Any) -> None:
    """For the sentence that a second start prints; on a full disk it says less."""
    try:
        os.ftruncate(lock.fileno(), 0)
        os.pwrite(lock.fileno(), f"{os.getpid()}\n".encode(), 0)
    except OSError:
        return
