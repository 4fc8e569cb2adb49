"""`coatcheck service a,b`: several rooms in this process.

Owns the look-up of a room by its name. Promises the same runner, and so the same order of start
and stop, as one room alone has. Must never import a room that was not asked for.
"""

import argparse
import importlib
from typing import Any, NoReturn

from deploy.local.blueprint import ROOMS
from services.operator.sources import Sources
from shared.kit.service import Room, run_rooms


def service(options: argparse.Namespace) -> NoReturn:
    """Runs the rooms until a signal; settings from the environment, else from the stack."""
    Sources().lend_to_environment()
    run_rooms([find_room(name) for name in options.rooms])


def find_room(name: str) -> Room[Any]:
    """The room of that name: `ROOM` of `services.<name>.work`."""
    room = importlib.import_module(f"services.{name}.work").ROOM
    assert isinstance(room, Room)  # noqa: S101  # the floor plan says so
    return room


def read_rooms(text: str) -> list[str]:
    """`submitter,reconciler` as a list of known rooms; argparse shows what is wrong."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or any(name not in ROOMS for name in names) or len(set(names)) != len(names):
        raise argparse.ArgumentTypeError(f"rooms are {', '.join(ROOMS)}, each at most once")
    return names
