"""Processes of the room under test; a broker that may be stopped."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from structlog.testing import capture_logs

from deploy.local.ports import free_block
from shared.kit.bus import Publisher, connection_options
from shared.kit.settings import KafkaSettings
from tests.system.kit.own_broker import Lines, OwnBroker

PROJECT_DIR = Path(__file__).resolve().parents[3]
WAIT_SECONDS = 60.0
SECRET = "postgresql://u:s3cr3t-canary@db/x"


class RoomProcess:
    """One started process. Lines of its log are read as they come."""

    def __init__(self, mode: str, rooms: str, environment: dict[str, str], **how: Any) -> None:
        names = rooms.split(",")
        *admin_ports, self.public_port = free_block(len(names) + 1)
        self.ports = dict(zip(names, admin_ports, strict=True))
        admin = {
            f"COATCHECK_{name.upper()}_ADMIN_PORT": str(port) for name, port in self.ports.items()
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("COATCHECK_")}
        self.log: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.kit.room_under_test", mode, rooms],
            cwd=PROJECT_DIR,
            env={**inherited, **admin, "PUBLIC_PORT": str(self.public_port), **environment},
            stdout=how.get("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: Queue[str | None] = Queue()
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=self._read_errors)]
        if self.process.stdout is not None:
            self._readers.append(threading.Thread(target=self._read_lines))
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next log line of that name; fails if the process ends first."""
        while True:
            line = self._lines.get(timeout=WAIT_SECONDS)
            assert line is not None, f"ended without {event}: {self.log} {self._errors}"
            entry: dict[str, Any] = json.loads(line)
            self.log.append(entry)
            if entry["event"] == event:
                return entry

    def end(self) -> int:
        """The exit code, once every line is read."""
        code = self.process.wait(timeout=WAIT_SECONDS)
        for reader in self._readers:
            reader.join()
        while not self._lines.empty():
            line = self._lines.get()
            if line is not None:
                self.log.append(json.loads(line))
        return code

    @property
    def errors(self) -> str:
        """What stood on stderr; whole once the process has ended."""
        return "".join(self._errors)

    @property
    def events(self) -> list[str]:
        """The names of the lines read so far."""
        return [entry["event"] for entry in self.log]

    def until_answering(self) -> None:
        """Waits until the first admin port takes connections."""
        port = next(iter(self.ports.values()))
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            assert self.process.poll() is None, f"ended: {self._errors}"

    def get(self, path: str, room: str | None = None) -> httpx.Response:
        """An answer of the admin port."""
        return httpx.get(self.url(path, room), trust_env=False, timeout=WAIT_SECONDS)

    def post(self, path: str, room: str | None = None) -> httpx.Response:
        """The same, by POST."""
        return httpx.post(self.url(path, room), trust_env=False, timeout=WAIT_SECONDS)

    def url(self, path: str, room: str | None = None) -> str:
        """The address of a path on a room's admin port."""
        port = self.ports[room] if room else next(iter(self.ports.values()))
        return f"http://127.0.0.1:{port}{path}"

    def kill(self) -> None:
        """Ends it, whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


StartRoom = Callable[..., RoomProcess]


@pytest.fixture
def start_room() -> Iterator[StartRoom]:
    """Starts rooms under test; none outlives the test."""
    started: list[RoomProcess] = []

    def start(mode: str, rooms: str = "relay", **environment: Any) -> RoomProcess:
        how = {"stdout": environment.pop("stdout")} if "stdout" in environment else {}
        usual = {"COATCHECK_ENV": "dev", "COATCHECK_DATABASE_URL": SECRET}
        given = {f"COATCHECK_{name}": value for name, value in environment.items()}
        process = RoomProcess(mode, rooms, {**usual, **given}, **how)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    """A broker, not started."""
    broker = OwnBroker(tmp_path_factory.mktemp("own-kafka"))
    yield broker
    broker.close()


@pytest.fixture
def settings(broker: OwnBroker) -> KafkaSettings:
    return KafkaSettings(kafka_bootstrap_servers=broker.bootstrap)


@pytest.fixture
async def running(broker: OwnBroker) -> OwnBroker:
    """The broker, started, with its topics."""
    await broker.start()
    return broker


@pytest.fixture
async def publisher(settings: KafkaSettings) -> AsyncIterator[Publisher]:
    publisher = Publisher(settings, client_id="test")
    yield publisher
    await publisher.close()


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The log, as it is written."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
async def admin(running: OwnBroker, settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**connection_options(settings))
    await admin.start()
    yield admin
    await admin._client.close()
