"""Our own programs as parts: ready when their own process says so, refusals told apart."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local import ports
from deploy.local.given import SettingWrong
from deploy.local.ports import NamedPort, PortTaken
from deploy.local.processes import PartFailed, drive, end_now
from deploy.local.rooms import PartRefused, ProgramPart, SettingsRefused, answers_200, own_failure

SERVER = """
import sys, signal
from http.server import BaseHTTPRequestHandler, HTTPServer
class Door(BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Door.asked += 1
        self.send_response(200 if Door.asked > 1 else 503)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Door).serve_forever()
"""

Make = Callable[[str], ProgramPart]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A part that runs this program text, with a free port as its argument."""
    made: list[ProgramPart] = []

    def part(text: str) -> ProgramPart:
        (port,) = ports.free_block(1)
        (tmp_path / "program.py").write_text(text)
        one = ProgramPart(
            "gateway",
            ("program", str(port)),
            env={"PYTHONPATH": str(tmp_path), "COATCHECK_SECRET": "hidden"},
            served=(NamedPort(port, "COATCHECK_GATEWAY_PORT"),),
            ready_port=port,
            ready_path="/readyz",
            log_path=tmp_path / "gateway.log",
            grace_seconds=10,
        )
        made.append(one)
        return one

    yield part
    for one in made:
        if one.process is not None:
            end_now(one.process)


def test_a_part_is_ready_when_it_says_so(make: Make) -> None:
    part = make(SERVER)
    drive(part.begin(), timeout_seconds=60)
    assert part.process is not None
    assert ports.is_listening(part.process.pid, part.served[0].number)
    assert answers_200(part.served[0].number, "/readyz")
    drive(part.end(), timeout_seconds=60)
    assert not answers_200(part.served[0].number, "/readyz")


def test_a_part_that_was_never_started_is_stopped_at_once(make: Make) -> None:
    drive(make(SERVER).end(), timeout_seconds=0.0)


@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (2, SettingsRefused, "^gateway: COATCHECK_A is missing$"),
        (57, PartRefused, "gateway ended with 57 before it was ready: .*COATCHECK_A is missing"),
        (1, PartFailed, "gateway ended with 1 before it was ready"),
    ],
)
def test_how_a_part_refuses_is_told(
    make: Make, code: int, kind: type[PartFailed], sentence: str
) -> None:
    text = "import sys; print('some noise'); sys.stdout.flush()\n"
    text += "sys.stderr.write('coatcheck: COATCHECK_A is missing\\n'); sys.stderr.flush()\n"
    text += f"print('the last line of the log'); sys.exit({code})"
    with pytest.raises(PartFailed, match=sentence) as failed:
        drive(make(text).begin(), timeout_seconds=60)
    assert type(failed.value) is kind


def test_what_a_program_of_ours_says_last_is_told_alone(tmp_path: Path) -> None:
    log = tmp_path / "prepare.log"
    log.write_text("noise\ncoatcheck: PostgreSQL cannot be reached\n")
    failed, wrong = own_failure(1, log), own_failure(2, log)
    assert (type(failed), type(wrong)) == (PartFailed, SettingWrong)
    assert str(failed) == str(wrong) == "PostgreSQL cannot be reached"
    assert own_failure(-9, log) is None, "it may be what an earlier run said"
    log.write_text("ValueError: x\n")
    assert own_failure(1, log) is None


def test_a_part_does_not_start_on_a_taken_port(make: Make) -> None:
    part = make(SERVER)
    with (
        socket.create_server((ports.LOOPBACK, part.served[0].number)),
        pytest.raises(PortTaken, match="COATCHECK_GATEWAY_PORT"),
    ):
        drive(part.begin(), timeout_seconds=60)
    assert part.process is None
