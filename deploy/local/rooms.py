"""The processes of the stack that are our own programs: the rooms and the fake provider.

Owns how one of them is started and when it counts as ready. Promises that a part is ready only
when its own process answers on its own port, and that an exit code which no retry can cure is
told apart. Must never put a secret on a command line: they travel in the environment or in
files of mode 0600.
"""

import http.client
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from deploy.local import ports
from deploy.local.given import SettingWrong
from deploy.local.ports import NamedPort
from deploy.local.processes import (
    PartFailed,
    Waiting,
    ending,
    has_ended,
    last_words,
    spawn,
    stop_child,
)
from shared.domain.errors import CoatcheckError

PROJECT_DIR = Path(__file__).resolve().parents[2]
READY_TIMEOUT_SECONDS = 0.7
READY_EVERY_SECONDS = 0.2
ROOM_GRACE_SECONDS = 60.0
FAKE_GRACE_SECONDS = 10.0
EXIT_SETTINGS, EXIT_SCHEMA_AHEAD = 2, 57
OUR_VOICE = "coatcheck: "


class PartRefused(PartFailed):
    """A part refuses to start as it is configured; trying again cannot help."""

    may_pass = False


class SettingsRefused(PartRefused):
    """A program of ours says that one of its settings is wrong or missing."""


class ProgramPart:
    """A Python program of ours as a part: `python -m module arguments`."""

    stop_signal = signal.SIGTERM

    def __init__(
        self,
        name: str,
        words: tuple[str, ...],
        *,
        env: Mapping[str, str],
        served: tuple[NamedPort, ...],
        ready_port: int,
        ready_path: str,
        log_path: Path,
        grace_seconds: float,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.served = served
        self.process: subprocess.Popen[bytes] | None = None
        self._words, self._env, self._grace_seconds = words, env, grace_seconds
        self._ready_port, self._ready_path = ready_port, ready_path

    def begin(self) -> Waiting:
        """The start. Raises PortTaken, PartRefused or PartFailed."""
        ports.require_free(self.served)
        self.process = spawn(
            [sys.executable, "-m", *self._words],
            log_path=self.log_path,
            env={**self._env, "PYTHONUNBUFFERED": "1"},
            cwd=PROJECT_DIR,
        )
        ask_at = 0.0
        while True:
            if has_ended(self.process):
                raise self._failure(self.process.returncode)
            if time.monotonic() >= ask_at:
                if self._is_ready(self.process.pid):
                    return
                ask_at = time.monotonic() + READY_EVERY_SECONDS
            yield f"{self.name} to be ready"

    def end(self) -> Waiting:
        """The stop: a drain, and an end by force after the grace."""
        if self.process is not None:
            yield from stop_child(self.process, self.stop_signal, grace_seconds=self._grace_seconds)

    def _is_ready(self, pid: int) -> bool:
        if not all(ports.is_listening(pid, port.number) for port in self.served):
            return False
        return answers_200(self._ready_port, self._ready_path)

    def _failure(self, code: int) -> PartFailed:
        if code == EXIT_SETTINGS:
            return SettingsRefused(
                f"{self.name}: {_last_line(self.log_path).removeprefix(OUR_VOICE)}"
            )
        kind = PartRefused if code == EXIT_SCHEMA_AHEAD else PartFailed
        return kind(f"{self.name} {ending(code)} before it was ready: {last_words(self.log_path)}")


def own_failure(code: int, log_path: Path) -> CoatcheckError | None:
    """What a program of ours that ended with this code said last; None if it said nothing."""
    sentence = _last_line(log_path)
    if code <= 0 or not sentence.startswith(OUR_VOICE):
        return None
    kind = SettingWrong if code == EXIT_SETTINGS else PartFailed
    return kind(sentence.removeprefix(OUR_VOICE))


def _last_line(log_path: Path) -> str:
    """The last line in our own voice, for log lines may follow it; else simply the last."""
    lines = last_words(log_path).split(" | ")
    return next((line for line in reversed(lines) if line.startswith(OUR_VOICE)), lines[-1])


def answers_200(port: int, path: str) -> bool:
    """Does a GET of this path on loopback give 200 within a moment?"""
    connection = http.client.HTTPConnection(ports.LOOPBACK, port, timeout=READY_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def room_part(
    name: str, served: tuple[NamedPort, ...], env: Mapping[str, str], log_path: Path
) -> ProgramPart:
    """A room; the last of `served` is its admin port."""
    return ProgramPart(
        name,
        (f"services.{name}",),
        env=env,
        served=served,
        ready_port=served[-1].number,
        ready_path="/readyz",
        log_path=log_path,
        grace_seconds=ROOM_GRACE_SECONDS,
    )


def fake_runpod_part(
    port: NamedPort, data_dir: Path, api_key_file: Path, env: Mapping[str, str], log_path: Path
) -> ProgramPart:
    """The fake provider, with its journal and films below `data_dir`."""
    time_scale = env.get("COATCHECK_TIME_SCALE")
    words = [
        "tests.fakes.runpod",
        f"--port={port.number}",
        f"--journal={data_dir / 'journal.jsonl'}",
        f"--api-key-file={api_key_file}",
        f"--media-dir={data_dir / 'media'}",
        *([f"--time-scale={time_scale}"] if time_scale else []),
    ]
    return ProgramPart(
        "fake_runpod",
        tuple(words),
        env=env,
        served=(port,),
        ready_port=port.number,
        ready_path="/control/ready",
        log_path=log_path,
        grace_seconds=FAKE_GRACE_SECONDS,
    )
