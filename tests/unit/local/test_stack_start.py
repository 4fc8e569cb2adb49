"""What the start of a stack waits for when parts are taken down meanwhile, and what it says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.blueprint import Blueprint
from deploy.local.given import Given
from deploy.local.home import Home
from deploy.local.processes import Waiting
from deploy.local.stack import Stack
from deploy.local.watch import State
from tests.unit.local.stubs import SleepingPart, quiet_console


class Start:
    """A stack whose parts sleep; those in `unready` run but never call themselves ready."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.home.open()
        console, self.said = quiet_console()
        self.stack = Stack(self.home, console)
        self.parts: list[SleepingPart] = []

    def add(self, *names: str, is_ready: bool = True) -> None:
        for name in names:
            part = (
                SleepingPart(self.home.path, name) if is_ready else NeverReady(self.home.path, name)
            )
            self.parts.append(part)
            self.stack._supervisor.add(part)

    def take_down(self, name: str) -> None:
        self.stack._supervisor.watches[name].take_down()

    def run(self, steps: Waiting) -> None:
        self.stack._supervisor.run(steps)

    def first_awaited(self, *names: str) -> str | None:
        """What the start would wait for now; None for nothing."""
        return next(self.stack._until_up(*names), None)

    def until(self, name: str, state: State) -> Waiting:
        while self.stack._supervisor.watches[name].state is not state:
            yield name


class NeverReady(SleepingPart):
    """Its process runs, but what it needs is away."""

    def begin(self) -> Waiting:
        yield from super().begin()
        while True:
            yield f"{self.name} to be ready"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made = Start(tmp_path / "home")
    yield made
    for part in made.parts:
        part.clean()
    made.stack._supervisor.close()


def test_the_start_goes_on_without_what_was_taken_down(start: Start) -> None:
    start.add("s3")
    start.add("kafka", is_ready=False)
    start.run(start.until("s3", State.up))
    assert start.first_awaited("s3", "kafka") == "kafka: kafka to be ready"
    start.take_down("kafka")
    assert start.first_awaited("s3", "kafka") is None
    start.run(start.until("kafka", State.down))
    start.run(start.stack._until_up("s3", "kafka"))


def test_a_room_is_not_awaited_while_what_it_needs_is_down_on_request(start: Start) -> None:
    start.add("kafka", "gateway")
    start.add("relay", is_ready=False)
    start.run(start.stack._until_up("kafka", "gateway"))
    assert start.first_awaited("relay") is not None
    start.take_down("kafka")
    start.run(start.stack._until_up(*start.stack._supervisor.watches))
    start.stack._say_ready(blueprint(start.home))
    said = start.said.getvalue()
    assert "everything but kafka, relay is ready: http://127.0.0.1:8080" in said
    assert "taken down on request: kafka; `coatcheck start kafka` brings that up again" in said


def test_without_its_database_the_start_waits_and_says_for_what(start: Start) -> None:
    start.add("postgres")
    start.take_down("postgres")
    start.run(start.until("postgres", State.down))
    assert start.first_awaited("postgres") == (
        "postgres: `coatcheck start postgres` (it was taken down on request)"
    )
    start.stack._supervisor.watches["postgres"].bring_up()
    assert start.first_awaited("postgres") == "postgres: its turn"
    start.run(start.stack._until_up("postgres"))


@pytest.mark.parametrize("is_real", [True, False])
def test_a_real_provider_is_named_beside_the_readiness(start: Start, is_real: bool) -> None:
    given = {"COATCHECK_RUNPOD_API_KEY": "real"} if is_real else {}
    start.stack._say_ready(blueprint(start.home, **given))
    assert "] everything is ready: http://127.0.0.1:8080\n" in start.said.getvalue()
    assert ("runpod is the real one: jobs cost money" in start.said.getvalue()) == is_real


def blueprint(home: Home, **given: str) -> Blueprint:
    return Blueprint(Given(given), home)
