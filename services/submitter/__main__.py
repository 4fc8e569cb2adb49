"""Runs the submitter alone: `python -m services.submitter`."""

from services.submitter.work import ROOM
from shared.kit.service import run_rooms

if __name__ == "__main__":
    run_rooms([ROOM])
