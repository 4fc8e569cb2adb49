"""The life of a part: started, started again, taken down, brought up."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local import watch as watch_module
from deploy.local.console import Console
from deploy.local.processes import PartFailed, Steps, drive
from deploy.local.rooms import PartRefused
from deploy.local.watch import State, Watch, kill_all
from tests.unit.local.stubs import SleepingPart, quiet_console


@pytest.fixture
def part(tmp_path: Path) -> Iterator[SleepingPart]:
    made = SleepingPart(tmp_path)
    yield made
    made.clean()


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a backoff."""
    monkeypatch.setattr(watch_module, "LONGEST_REST_SECONDS", 0.0)


def turn_until(watch: Watch, is_so: Callable[[], bool]) -> None:
    """Ticks until it is so."""

    def ticks() -> Steps[None]:
        while not is_so():
            watch.tick()
            yield watch.waits_for

    drive(ticks(), timeout_seconds=30)


def watch_of(part: SleepingPart, console: Console | None = None) -> Watch:
    return Watch(part, console or quiet_console()[0], lambda: True)


def test_a_part_waits_until_it_may_start(part: SleepingPart) -> None:
    may_start = False
    watch = Watch(part, quiet_console()[0], lambda: may_start)
    watch.tick()
    assert (watch.state, part.starts) == (State.held_back, 0)
    may_start = True
    turn_until(watch, lambda: watch.state is State.up)
    assert part.process is not None
    assert watch.pid == part.process.pid


def test_a_part_that_dies_is_started_again_and_that_is_printed(part: SleepingPart) -> None:
    console, said = quiet_console()
    watch = watch_of(part, console)
    turn_until(watch, lambda: watch.state is State.up)
    first = watch.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    turn_until(watch, lambda: watch.state is State.resting)
    assert watch.pid == first, "the last known process is named until there is a new one"
    turn_until(watch, lambda: watch.state is State.up)
    assert watch.pid != first
    assert "sleeper was killed by SIGKILL; starting it again in" in said.getvalue()


def test_a_part_taken_down_stays_down_until_it_is_brought_up(part: SleepingPart) -> None:
    watch = watch_of(part)
    turn_until(watch, lambda: watch.state is State.up)
    watch.take_down()
    watch.take_down()
    turn_until(watch, lambda: watch.state is State.down)
    assert not part.is_running
    assert watch.pid is None
    watch.tick()
    assert (watch.state, part.starts) == (State.down, 1)
    watch.bring_up()
    turn_until(watch, lambda: watch.state is State.up)
    assert part.starts == 2


def test_a_part_can_be_taken_down_while_it_starts(part: SleepingPart) -> None:
    watch = watch_of(part)
    turn_until(watch, lambda: part.process is not None)
    assert watch.state is State.starting
    watch.take_down()
    turn_until(watch, lambda: watch.state is State.down)
    assert not part.is_running


def test_failing_starts_are_counted_until_the_part_holds(
    part: SleepingPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    part.refusals = 2
    console, said = quiet_console()
    watch = watch_of(part, console)
    turn_until(watch, lambda: watch.state is State.up)
    assert (part.starts, watch.failures_in_a_row) == (3, 2)
    assert "sleeper did not start: not this time" in said.getvalue()
    monkeypatch.setattr(watch_module, "STEADY_SECONDS", -1.0)
    watch.tick()
    assert watch.failures_in_a_row == 0


def test_trouble_with_a_file_is_a_failed_start_like_any_other(part: SleepingPart) -> None:
    part.refusals, part.refusal = 1, FileNotFoundError("gone meanwhile")
    watch = watch_of(part)
    turn_until(watch, lambda: watch.state is State.up)
    assert isinstance(watch.last_error, PartFailed)
    assert str(watch.last_error) == "gone meanwhile"


def test_what_cannot_pass_is_not_said_to_be_tried_again(part: SleepingPart) -> None:
    part.refusals, part.refusal = 1, PartRefused("COATCHECK_A is missing")
    console, said = quiet_console()
    watch = watch_of(part, console)
    turn_until(watch, lambda: watch.state is State.up)
    assert "did not start: COATCHECK_A is missing\n" in said.getvalue()


def test_rests_grow(part: SleepingPart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "LONGEST_REST_SECONDS", 1000.0)
    part.refusals = 2
    console, said = quiet_console()
    watch = watch_of(part, console)
    turn_until(watch, lambda: watch.state is State.resting)
    assert "again in 0.2 s" in said.getvalue()
    watch.bring_up()
    watch.tick()
    watch.failures_in_a_row = 5
    turn_until(watch, lambda: watch.state is State.resting)
    assert "again in 6.4 s" in said.getvalue()


def test_bringing_up_a_resting_part_does_not_wait(
    part: SleepingPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "LONGEST_REST_SECONDS", 1000.0)
    monkeypatch.setattr(watch_module, "FIRST_REST_SECONDS", 1000.0)
    part.refusals = 1
    watch = watch_of(part)
    turn_until(watch, lambda: watch.state is State.resting)
    watch.bring_up()
    turn_until(watch, lambda: watch.state is State.up)


def test_the_last_resort_kills_everything(part: SleepingPart, tmp_path: Path) -> None:
    watch, idle = watch_of(part), watch_of(SleepingPart(tmp_path, "idle"))
    turn_until(watch, lambda: watch.state is State.up)
    kill_all([watch, idle])
    assert part.process is not None
    assert part.process.returncode == -signal.SIGKILL
