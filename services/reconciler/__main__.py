"""Runs the reconciler alone: `python -m services.reconciler`."""

from services.reconciler.work import ROOM
from shared.kit.service import run_rooms

if __name__ == "__main__":
    run_rooms([ROOM])
