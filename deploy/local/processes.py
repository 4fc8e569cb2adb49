"""Child processes that cannot outlive us.

Owns spawning, watching and stopping one child. Promises: the kernel kills the child when the
spawning thread ends, however that happens, so spawn from the main thread only; its output goes
to one log file; nothing secret is needed on a command line. For programs that refuse to run as
root, root enters a user namespace in which it is somebody else: files stay reachable and no
directory changes its mode. Must never signal a process that is not our child.
"""

import ctypes
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from shared.domain.errors import Unavailable

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
POLL_SECONDS = 0.02
LOG_TAIL_LINES = 4
LOG_TAIL_BYTES = 1000

R = TypeVar("R")

Steps = Generator[str, None, R]
"""Work under way: each item says what is being waited for; the result comes at the end."""

Waiting = Generator[str, None, None]
"""The same without a result."""


class PartFailed(Unavailable):
    """A part of the local stack could not be started."""

    may_pass = True
    """May the next try go better? Not if it is a matter of settings or of missing software."""


_libc = ctypes.CDLL(None, use_errno=True)


def spawn(
    argv: Sequence[str | Path],
    *,
    log_path: Path,
    env: Mapping[str, str] | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    not_as_root: bool = False,
    cwd: Path | str = "/",
    stdin_text: str | None = None,
    is_heard: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a child with its output appended to `log_path` (mode 0600).

    It gets `death_signal` when the calling thread dies and leads a session of its own, so that
    a terminal's Ctrl-C reaches us alone. `is_heard`: its standard output, which must fit into
    a pipe, is for us to read instead. Raises `PartFailed` when it cannot be started.
    """
    before_exec = _before_exec(os.getpid(), death_signal, not_as_root and os.geteuid() == 0)
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PartFailed(f"cannot write the log {log_path}: {error.strerror}") from error
    try:
        child = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL if stdin_text is None else subprocess.PIPE,
            stdout=subprocess.PIPE if is_heard else log,
            stderr=log,
            env=dict(os.environ if env is None else env),
            cwd=str(cwd),
            start_new_session=True,
            preexec_fn=before_exec,  # safe: the spawning process has no other threads
        )
    except subprocess.SubprocessError as error:
        raise PartFailed(_namespace_refused(Path(str(argv[0])).name)) from error
    except OSError as error:
        raise PartFailed(f"cannot start {argv[0]}: {error.strerror}") from error
    finally:
        os.close(log)
    if stdin_text is not None and child.stdin is not None:
        child.stdin.write(stdin_text.encode())
        child.stdin.close()
    return child


def _before_exec(
    parent_pid: int, death_signal: signal.Signals, leave_root: bool
) -> Callable[[], None]:
    """What the child does between fork and exec; made before the fork, so it allocates little."""
    foreign_uid = _uid_that_is_not_root() if leave_root else 0
    euid, egid = os.geteuid(), os.getegid()

    def enter() -> None:
        if leave_root:
            if _libc.unshare(CLONE_NEWUSER) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{foreign_uid} {euid} 1")
            Path("/proc/self/gid_map").write_text(f"{foreign_uid} {egid} 1")
        # After the namespace: a change of credentials would clear the signal again.
        _libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent_pid:  # the parent died between fork and prctl
            os._exit(1)

    return enter


def _uid_that_is_not_root() -> int:
    """A uid that has a name: initdb asks for the name of whoever runs it."""
    named = [entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid not in (0, 65534)]
    return named[0] if named else 65534


def _namespace_refused(program: str) -> str:
    return (
        f"{program} refuses to run as root and this machine refuses user namespaces: "
        "run as a plain user, or name a running server in the environment"
    )


def await_exit(child: subprocess.Popen[bytes], what: str, log_path: Path) -> Waiting:
    """Wait for a helper program to end well; `PartFailed` with its last words otherwise."""
    with surely_ended(child):
        while not has_ended(child):
            yield what
    if child.returncode != 0:
        raise PartFailed(f"{what} {ending(child.returncode)}: {last_words(log_path)}")


@contextmanager
def surely_ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whoever gives up waiting for a helper program ends it too."""
    try:
        yield
    finally:
        end_now(child)


def end_now(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL for the child and whatever it started; returns when it is gone."""
    if not has_ended(child):
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        has_ended(child)


def ending(code: int) -> str:
    """How a process ended, in words: its exit code, or the signal that killed it."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with {code}"


def drive(waiting: Iterable[str], *, timeout_seconds: float) -> None:
    """Run a start to its end in the calling thread."""
    give_up_at = time.monotonic() + timeout_seconds
    for what in waiting:
        if time.monotonic() > give_up_at:
            raise PartFailed(f"gave up after {timeout_seconds:.0f} s waiting for {what}")
        time.sleep(POLL_SECONDS)


def stop_child(
    child: subprocess.Popen[bytes], first: signal.Signals, *, grace_seconds: float
) -> Waiting:
    """Ask the child to end, then kill it after the grace, and with it what it started."""
    if not has_ended(child):
        child.send_signal(first)
    kill_at = time.monotonic() + grace_seconds
    while not has_ended(child):
        if time.monotonic() > kill_at:
            child.kill()
        yield "its end"


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Has the child ended? If so, whatever it left running is killed and it is reaped.

    The group is signalled before the reaping: until then its number cannot name anybody else.
    """
    if child.returncode is not None:
        return True
    if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return False
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return True


def last_words(log_path: Path) -> str:
    """The end of a log as one line, for an error message."""
    try:
        with log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return "(no log)"
    return " | ".join(line.strip() for line in lines[-LOG_TAIL_LINES:] if line.strip()) or "(empty)"


class NewLines:
    """What the logs of a folder have got since this object was made."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._marks = {path: path.stat().st_size for path in log_dir.glob("*.log")}

    def tell(self, words: str) -> bool:
        """Do the new lines of any log hold these words?"""
        return any(self._tells(path, words.encode()) for path in self._log_dir.glob("*.log"))

    def _tells(self, path: Path, words: bytes) -> bool:
        with path.open("rb") as log:
            log.seek(self._marks.get(path, 0))
            return any(words in line for line in log)
