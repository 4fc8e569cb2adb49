"""`python -m services.gateway`: this room alone in one process."""

from services.gateway.work import ROOM
from shared.kit.service import run_rooms

if __name__ == "__main__":
    run_rooms([ROOM])
