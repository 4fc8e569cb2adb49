"""Every room has the same floor plan; what a new one lacks is named here."""

import re

import pytest

from deploy.local.blueprint import ROOMS as STACK_ROOMS
from services.operator.rooms import find_room
from shared.kit.service import ADMIN_PORTS, Room
from tests.contract import compose_file
from tests.rules.tree import ROOT, parsed

SERVICES = ROOT / "services"
ROOMS = sorted(
    folder.name
    for folder in SERVICES.iterdir()
    if folder.is_dir() and folder.name not in {"operator", "__pycache__"}
)
FOUR_FILES = ("__main__.py", "settings.py", "work.py", "README.md")
CONTRACT_PORTS = range(9100, 9200)


def test_there_are_rooms() -> None:
    assert {"gateway", "relay", "submitter", "reconciler", "archiver", "webhook"} <= set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_it_has_the_four_files(room: str) -> None:
    lacking = [name for name in FOUR_FILES if not (SERVICES / room / name).is_file()]
    assert lacking == []


@pytest.mark.parametrize("room", ROOMS)
def test_its_work_is_a_room_of_its_own_name(room: str) -> None:
    found = find_room(room)
    assert isinstance(found, Room)
    assert found.name == room
    assert found.settings_type.__module__ == f"services.{room}.settings"


@pytest.mark.parametrize("room", ROOMS)
def test_it_runs_alone(room: str) -> None:
    text = (SERVICES / room / "__main__.py").read_text()
    assert f"from services.{room}.work import ROOM" in text
    assert re.search(r"^ +run_rooms\(\[ROOM\]\)$", text, re.MULTILINE)


@pytest.mark.parametrize("room", ROOMS)
def test_it_has_an_admin_port_of_its_own(room: str) -> None:
    assert ADMIN_PORTS.get(room) in CONTRACT_PORTS
    assert list(ADMIN_PORTS.values()).count(ADMIN_PORTS[room]) == 1


@pytest.mark.parametrize("room", ROOMS)
def test_it_runs_in_the_local_stack_and_in_containers(room: str) -> None:
    assert room in STACK_ROOMS
    assert room in compose_file.services()


@pytest.mark.parametrize("room", ROOMS)
def test_its_page_begins_with_its_name(room: str) -> None:
    first = (SERVICES / room / "README.md").read_text().splitlines()[0]
    assert first.startswith("# ")
    assert room in first.lower()
    assert f"`{room}`" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("room", ROOMS)
def test_its_package_only_says_what_it_is(room: str) -> None:
    assert len(parsed(SERVICES / room / "__init__.py").body) == 1, "a docstring and nothing more"
