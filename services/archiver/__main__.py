"""Runs the archiver alone: `python -m services.archiver`."""

from services.archiver.work import ROOM
from shared.kit.service import run_rooms

if __name__ == "__main__":
    run_rooms([ROOM])
