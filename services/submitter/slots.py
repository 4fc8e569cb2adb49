"""How many paid calls this process may have in flight, and how many it has.

A mouth takes slots before it claims, so that no claim ever waits for a call (P3). Promises that
nothing is handed out once a stop was asked for, so that "all slots are back" then means that no
call is or will be in flight.
"""

import asyncio


class Slots:
    """At most `most` at once. `freed` is set when one comes back after `want_more`."""

    def __init__(self, most: int, stopping: asyncio.Event) -> None:
        self.freed = asyncio.Event()
        self.all_back = asyncio.Event()
        self.all_back.set()
        self._most = most
        self._taken = 0
        self._is_wanted = False
        self._stopping = stopping

    @property
    def free(self) -> int:
        """How many could be taken now."""
        return 0 if self._stopping.is_set() else self._most - self._taken

    def take(self, wanted: int) -> int:
        """Takes up to `wanted` slots, never waiting; how many."""
        taken = min(wanted, self.free)
        self._taken += taken
        if taken:
            self.all_back.clear()
        return taken

    def want_more(self) -> None:
        """Somebody has work for a slot and there is none: the next one back sets `freed`."""
        self._is_wanted = True

    def give_back(self, count: int) -> None:
        """Gives slots back."""
        if not 0 <= count <= self._taken:
            raise ValueError("more slots given back than were taken")
        self._taken -= count
        if not self._taken:
            self.all_back.set()
        if count and self._is_wanted:
            self._is_wanted = False
            self.freed.set()
