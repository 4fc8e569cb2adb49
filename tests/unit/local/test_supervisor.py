"""The launcher's loop: signals, the order of the end, and requests from outside."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local import control, supervisor, watch
from deploy.local.console import Console
from deploy.local.control import ControlDesk, NoStack, UnknownPart, ask
from deploy.local.home import Home, HomeUnusable
from deploy.local.processes import Waiting
from deploy.local.stack import Stack
from deploy.local.supervisor import StopAsked, Supervisor
from shared.domain.errors import Refused
from tests.unit.local.stubs import SleepingPart, largest_file, quiet_console


class Bench:
    """A supervisor with parts that sleep."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.home.open()
        self.console, self.said = quiet_console()
        self.changes: list[dict[str, int]] = []
        self.supervisor = Supervisor(
            self.console, ControlDesk(self.home), lambda pids: self.changes.append(dict(pids))
        )
        self.parts: list[SleepingPart] = []

    def add(self, name: str, *, refusals: int = 0) -> SleepingPart:
        part = SleepingPart(self.home.path, name, refusals=refusals)
        self.parts.append(part)
        self.supervisor.add(part)
        return part

    def until(self, is_so: Callable[[], bool]) -> Waiting:
        while not is_so():
            yield "it"

    def run_until_settled(self) -> None:
        watches = self.supervisor.watches.values()
        self.supervisor.run(self.until(lambda: all(one.is_settled for one in watches)))

    def asked(self, command: str, *parts: str) -> list[BaseException]:
        """Ask from another thread while the loop runs; what the asker was told."""
        errors: list[BaseException] = []
        console = Console(self.said)

        def work() -> None:
            try:
                ask(self.home, command, list(parts), console)
            except Refused as error:
                errors.append(error)

        asker = threading.Thread(target=work)
        asker.start()
        self.supervisor.run(self.until(lambda: not asker.is_alive()))
        asker.join()
        return errors


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(watch, "LONGEST_REST_SECONDS", 0.0)
    # Longer than a socket's name may be: the home's path must not matter.
    made = Bench(tmp_path / ("long" * 30))
    yield made
    for part in made.parts:
        part.clean()
    made.supervisor.close()


def test_a_change_of_pids_is_told_once(bench: Bench) -> None:
    part = bench.add("kafka")
    bench.run_until_settled()
    assert part.process is not None
    assert bench.changes == [{"kafka": part.process.pid}]


def test_a_signal_asks_for_the_end(bench: Bench) -> None:
    bench.add("kafka")
    before = signal.getsignal(signal.SIGTERM)
    with bench.supervisor.signals_taken():
        bench.run_until_settled()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(StopAsked):
            bench.supervisor.run(bench.until(lambda: False))
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_hang_up_that_is_ignored_stays_ignored(bench: Bench) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with bench.supervisor.signals_taken():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with bench.supervisor.signals_taken():
            assert callable(signal.getsignal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)


def test_groups_end_one_after_the_other(bench: Bench) -> None:
    for name in ("postgres", "gateway", "kafka"):
        bench.add(name)
    bench.run_until_settled()
    bench.supervisor.stop_all([("gateway", "relay"), ("kafka",), ("postgres",)])
    assert not any(part.is_running for part in bench.parts)
    said = bench.said.getvalue()
    order = [said.index(f"{name} is stopped") for name in ("gateway", "kafka", "postgres")]
    assert order == sorted(order)


def test_a_second_signal_ends_everything_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = bench.add("kafka")
    bench.run_until_settled()

    def never_ends() -> Waiting:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            yield "its end"

    monkeypatch.setattr(part, "end", never_ends)
    with bench.supervisor.signals_taken():
        bench.supervisor.stop_all([("kafka",)])
    assert part.process is not None
    assert part.process.returncode == -signal.SIGKILL


def test_parts_are_taken_down_and_brought_up_on_request(bench: Bench) -> None:
    kafka, gateway = bench.add("kafka"), bench.add("gateway")
    bench.run_until_settled()
    assert bench.asked("stop", "kafka") == []
    assert not kafka.is_running
    assert gateway.is_running
    assert list(bench.changes[-1]) == ["gateway"]
    assert bench.asked("start", "kafka", "gateway") == []
    assert kafka.is_running
    assert set(bench.changes[-1]) == {"kafka", "gateway"}


@pytest.mark.parametrize(
    ("command", "part", "told"),
    [
        ("stop", "nothing", UnknownPart),
        ("frighten", "kafka", Refused),
    ],
)
def test_what_cannot_be_done_is_told(
    bench: Bench, command: str, part: str, told: type[Refused]
) -> None:
    bench.add("kafka")
    bench.run_until_settled()
    (error,) = bench.asked(command, part)
    assert type(error) is told


def test_a_start_that_keeps_failing_is_told(bench: Bench) -> None:
    part = bench.add("kafka")
    bench.run_until_settled()
    assert bench.asked("stop", "kafka") == []
    part.refusals = 1000
    (error,) = bench.asked("start", "kafka")
    assert str(error) == "not this time"


def test_nothing_is_brought_up_while_the_stack_or_the_part_ends(bench: Bench) -> None:
    bench.add("kafka")
    bench.run_until_settled()
    bench.supervisor.watches["kafka"].take_down()
    with pytest.raises(Refused, match="kafka is being taken down"):
        bench.supervisor._take("start", ["kafka"])
    bench.supervisor.stop_all([("kafka",)])
    with pytest.raises(Refused, match="the stack is being stopped"):
        bench.supervisor._take("start", ["kafka"])


def test_a_start_that_is_undone_meanwhile_is_told(bench: Bench) -> None:
    bench.add("kafka")
    bench.run_until_settled()
    bench.supervisor.stop_all([("kafka",)])
    with pytest.raises(Refused, match="taken down meanwhile"):
        supervisor._is_up(bench.supervisor.watches["kafka"])


def test_a_part_that_cannot_be_had_is_forgotten(bench: Bench) -> None:
    part = bench.add("kafka")
    bench.run_until_settled()
    bench.supervisor.drop("kafka")
    assert not bench.supervisor.watches
    assert not part.is_running


def connected(bench: Bench) -> socket.socket:
    """A bare connection to the desk."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with control._short_path(bench.home.control_socket) as name:
        one.connect(name)
    return one


def test_nonsense_is_answered(bench: Bench) -> None:
    with connected(bench) as one:
        one.sendall(b"nonsense")
        one.setblocking(False)
        bench.supervisor.run(bench.until(lambda: bool(select.select([one], [], [], 0)[0])))
        assert b"cannot be understood" in one.recv(4096)


def test_an_asker_that_hangs_up_does_not_disturb(bench: Bench) -> None:
    part = bench.add("kafka")
    bench.run_until_settled()
    silent, hasty = connected(bench), connected(bench)
    hasty.sendall(b'{"command": "stop", "parts": ["kafka"]}')
    silent.close()
    hasty.close()
    bench.supervisor.run(bench.until(lambda: not part.is_running))
    bench.run_until_settled()
    assert bench.asked("start", "kafka") == []


def test_an_asker_learns_that_the_stack_ended_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = bench.add("kafka")
    bench.run_until_settled()
    monkeypatch.setattr(part, "end", lambda: bench.until(lambda: False))
    told: list[BaseException] = []

    def work() -> None:
        try:
            ask(bench.home, "stop", ["kafka"], bench.console)
        except NoStack as error:
            told.append(error)

    asker = threading.Thread(target=work)
    asker.start()
    desk = bench.supervisor._desk
    bench.supervisor.run(bench.until(lambda: len(desk.sockets) > 1))
    desk.close()
    asker.join()
    assert [str(error) for error in told] == ["the stack ended before it was done"]


def test_an_asker_whose_request_nobody_read_learns_it_too() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(b"request")
        theirs.close()  # with the request unread: the kernel resets the connection
        assert control._received(ours, "stop of kafka", quiet_console()[0]) == b""


def test_a_slow_answer_is_waited_for_aloud(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr("deploy.local.console.HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(supervisor, "BUSY_SECONDS", 0.1)
    bench.add("kafka")
    bench.run_until_settled()
    bench.asked("stop", "kafka")
    assert "waiting for stop of kafka" in bench.said.getvalue()


def test_a_home_that_has_filled_up_does_not_end_the_stack(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.open()
    console, said = quiet_console()
    stack = Stack(home, console)
    with largest_file(0):
        stack._pids_changed({"kafka": os.getpid()})
    assert "stack.json is out of date: the disk that holds" in said.getvalue()
    stack._end()


def test_a_home_without_stack_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoStack, match="coatcheck up"):
        ask(Home(tmp_path), "stop", ["kafka"], quiet_console()[0])
    with pytest.raises(NoStack, match="coatcheck up"):
        ask(Home(tmp_path / "missing"), "stop", ["kafka"], quiet_console()[0])


def test_a_desk_that_cannot_be_set_up_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    # As on a file system that knows no sockets.
    monkeypatch.setattr(Home, "control_socket", property(lambda _home: Path("/proc/control.sock")))
    with pytest.raises(HomeUnusable, match=r"control\.sock cannot be made"):
        ControlDesk(home)


def test_a_closed_output_does_not_stop_the_stack() -> None:
    program = (
        "from deploy.local.console import Console\n"
        "import os\n"
        "console = Console(); os.close(1)\n"
        "console.say('unheard'); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == 0


def test_a_reader_who_does_not_read_does_not_stop_the_stack() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb") as reader:
        console = Console(stream)
        for _ in range(300):
            console.print("x" * 999)
        stream.flush()
        assert reader.read1(1000) == b"x" * 999 + b"\n"
        assert len(reader.read1(1_000_000)) < 299_000


def test_silence_is_broken_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    console, said = quiet_console()
    console.still("kafka")
    assert said.getvalue() == ""
    monkeypatch.setattr("deploy.local.console.HEARTBEAT_SECONDS", 0.0)
    console.still("kafka")
    assert "waiting for kafka" in said.getvalue()
