"""Which API keys' last use is worth noting again.

`last_used_at` is for people, so one write a minute, key and process is enough. The memory is
bounded: it forgets all keys when it holds too many, which costs a few writes.
"""

import time
from collections.abc import Callable

TOUCH_SECONDS = 60.0
KEYS_MAX = 10_000


class KeyUses:
    """When each key's use was last noted here."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted_at: dict[str, float] = {}

    def is_due(self, key_id: str) -> bool:
        """True at most once a minute for one key."""
        now = self._clock()
        if now - self._noted_at.get(key_id, -TOUCH_SECONDS) < TOUCH_SECONDS:
            return False
        if len(self._noted_at) >= KEYS_MAX:
            self._noted_at.clear()
        self._noted_at[key_id] = now
        return True
