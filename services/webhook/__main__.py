"""`python -m services.webhook`: this room alone in one process."""

from services.webhook.work import ROOM
from shared.kit.service import run_rooms

if __name__ == "__main__":
    run_rooms([ROOM])
