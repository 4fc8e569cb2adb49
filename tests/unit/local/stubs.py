"""Parts for tests of the supervisor: real processes that serve nothing."""

import io
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.console import Console
from deploy.local.ports import NamedPort
from deploy.local.processes import PartFailed, Waiting, end_now, has_ended, spawn, stop_child


class SleepingPart:
    """A part that is ready once its process runs; `refusals` starts fail before that."""

    served: tuple[NamedPort, ...] = ()

    def __init__(self, folder: Path, name: str = "sleeper", *, refusals: int = 0) -> None:
        self.refusal: Exception = PartFailed("not this time")
        self.name = name
        self.log_path = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.refusals = refusals

    def begin(self) -> Waiting:
        self.starts += 1
        if self.refusals > 0:
            self.refusals -= 1
            raise self.refusal
        self.process = spawn(["sleep", "600"], log_path=self.log_path)
        yield "the process"

    def end(self) -> Waiting:
        if self.process is not None:
            yield from stop_child(self.process, signal.SIGTERM, grace_seconds=10)

    @property
    def is_running(self) -> bool:
        return self.process is not None and not has_ended(self.process)

    def clean(self) -> None:
        if self.process is not None:
            end_now(self.process)


def quiet_console() -> tuple[Console, io.StringIO]:
    """A console and what it has said."""
    said = io.StringIO()
    return Console(said), said


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """No file of ours may grow longer: what a full disk looks like to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
