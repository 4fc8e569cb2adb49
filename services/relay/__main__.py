"""Runs the relay alone: `python -m services.relay`."""

from services.relay.work import ROOM
from shared.kit.service import run_rooms

if __name__ == "__main__":
    run_rooms([ROOM])
