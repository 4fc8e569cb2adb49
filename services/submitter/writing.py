"""Writing what a paid call came to, however long PostgreSQL is away.

Promises that a write is tried again until it is done or its time is over, and that all writers
of the process together knock at most once a second while the server does not answer. Every write
given here must be fenced, for it may land and be tried once more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.domain.errors import Unavailable
from shared.kit.http import boottime_seconds
from shared.kit.loops import Outage

KNOCK_SECONDS = 1.0

T = TypeVar("T")


class PatientWriter:
    """Shared by all calls of the process."""

    def __init__(
        self,
        knock_seconds: float = KNOCK_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._knock_seconds = knock_seconds
        self._sleep = sleep
        self._outage = Outage("submitter: PostgreSQL, for outcomes of paid calls")
        self._turn = asyncio.Lock()

    async def write(self, attempt: Callable[[], Awaitable[T]], *, until_boottime: float) -> T:
        """The attempt's result. Raises Unavailable once the time is over, other errors at once."""
        if not self._outage.attempts:
            try:
                return await attempt()
            except Unavailable as error:
                self._outage.failed(error)
        while True:
            # One writer at a time knocks; the first that gets in lets the others go at once.
            async with self._turn:
                if self._outage.attempts:
                    await self._sleep(self._knock_seconds)
                try:
                    written = await attempt()
                except Unavailable as error:
                    self._outage.failed(error)
                    if boottime_seconds() >= until_boottime:
                        raise
                else:
                    self._outage.worked()
                    return written
