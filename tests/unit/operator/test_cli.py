"""Words, exit codes, and how an error reads."""

import argparse
import os
import subprocess
import sys
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from deploy.local.control import UnknownPart
from deploy.local.given import SettingWrong
from deploy.local.processes import Waiting, drive
from deploy.local.remains import start_ticks
from deploy.local.stack import STOP_ORDER, Facts, Stack, Task
from services.operator import cli, stack_commands
from services.operator.demo import Demo, DemoResult
from services.operator.rooms import find_room, read_rooms
from services.operator.store_commands import read_life, read_scopes
from shared.domain.errors import Refused, Unavailable

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fly"],
        ["stop"],
        ["keys"],
        ["keys", "create"],
        ["keys", "create", "--owner", " "],
        ["keys", "create", "--owner", "ann", "--scope", "jobs:steal"],
        ["keys", "create", "--owner", "ann", "--expires", "soon"],
        ["jobs", "show", "not-a-uuid"],
        ["jobs", "list", "--stage", "happy"],
        ["jobs", "list", "--limit", "0"],
        ["service", "kitchen"],
        ["service", "relay,relay"],
        ["demo", "--input", "{"],
    ],
)
def test_wrong_usage_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert "usage: coatcheck" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("no"), 1),
        (Unavailable("later"), 1),
        (SettingWrong("COATCHECK_A: wrong"), 2),
        (UnknownPart("this stack has no part x"), 2),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
) -> None:
    def fail(_options: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(stack_commands, "reset", fail)
    assert cli.main(["reset"]) == code
    assert capsys.readouterr().err == f"coatcheck: {error}\n"


def test_a_demo_that_stays_up_says_so_before_its_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def steps(self: Demo, _facts: Facts) -> Waiting:
        self.result = DemoResult("job", 3, "digest", [])
        yield ""

    def run(stack: Stack, task: Task) -> None:
        drive(task({}), timeout_seconds=60)
        stack._end()

    monkeypatch.setenv("COATCHECK_HOME", str(tmp_path))
    monkeypatch.setattr(Demo, "steps", steps)
    monkeypatch.setattr(stack_commands, "forever", lambda _facts: iter(()))
    monkeypatch.setattr(Stack, "run", run)
    assert cli.main(["demo"]) == 0
    stays, last = capsys.readouterr().out.splitlines()
    assert stays.endswith("the stack stays up; Ctrl-C stops everything")
    assert last == "DEMO OK job=job bytes=3 sha256=digest"


def test_ctrl_c_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_options: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(stack_commands, "reset", fail)
    assert cli.main(["reset"]) == 1


def test_a_reader_who_has_left_is_no_traceback() -> None:
    program = "import os, sys; from services.operator import cli; sys.exit(cli.main(sys.argv[1:]))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", program, "endpoints", "list"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        cwd=ROOT,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def every_command(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parsers of all commands that do something."""
    nested = [action for action in parser._actions if hasattr(action, "_name_parser_map")]
    if not nested:
        return [parser]
    children: dict[str, Any] = nested[0]._name_parser_map
    return [leaf for child in children.values() for leaf in every_command(child)]


def test_every_command_has_json_a_description_and_a_function() -> None:
    commands = every_command(cli._parser())
    assert len(commands) >= 19
    for parser in commands:
        assert "--json" in parser.format_help(), parser.prog
        assert parser.description
        module, function = parser.get_default("command")
        assert callable(getattr(import_module(f"services.operator.{module}"), function))


def test_the_parts_are_named_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(cli.PARTS) == {name for group in STOP_ORDER for name in group}
    with pytest.raises(SystemExit):
        cli.main(["stop", "--help"])
    said = capsys.readouterr().out
    assert all(part in said for part in cli.PARTS)


def test_the_program_is_a_module_too() -> None:
    words = [sys.executable, "-m", "services.operator", "endpoints", "list", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert '"name": "demo-video"' in done.stdout


def test_lengths_of_time() -> None:
    assert read_life("90d") == timedelta(days=90)
    assert read_life("15m") == timedelta(minutes=15)


def test_scopes_and_rooms_are_lists() -> None:
    assert read_scopes("jobs:read, jobs:write") == ["jobs:read", "jobs:write"]
    assert read_rooms("submitter, reconciler") == ["submitter", "reconciler"]
    with pytest.raises(argparse.ArgumentTypeError):
        read_scopes(",")


def test_a_room_is_found_by_its_name() -> None:
    assert find_room("relay").name == "relay"


def test_a_command_is_stopped_with_whoever_started_it() -> None:
    child = (
        "import time; from services.operator.stack_commands import _stop_with_parent\n"
        "_stop_with_parent(); print('set', flush=True); time.sleep(600)"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"one = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "one.stdout.readline(); print(one.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        launcher.kill()
    drive((f"process {pid}" for _ in iter(lambda: start_ticks(pid), None)), timeout_seconds=30)
