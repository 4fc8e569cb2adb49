"""A capture lease held while its work runs.

Owns the heartbeat. Promises that work whose lease is gone, or may be gone because the database
has not confirmed it in time, is cancelled; and that the heartbeat stands aside before the last
write, which ends the lease by itself. Must never take a lease again that was lost.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from shared.domain.errors import CoatcheckError, Unavailable
from shared.domain.job import Job
from shared.store.pool import Database
from shared.store.transitions.capture import capture_extended
from shared.store.transitions.record import FenceLost

BEATS_PER_LIFE = 3

T = TypeVar("T")


class LeaseLost(CoatcheckError):
    """The lease ended before its holder was done."""


class Lease:
    """One lease. `leased_from`: monotonic seconds from before the database was asked for it."""

    def __init__(self, database: Database, job: Job, life: timedelta, leased_from: float) -> None:
        self._database = database
        self._job = job
        self._life = life
        self._leased_from = leased_from
        self._held_until = leased_from + life.total_seconds()
        self._is_ending = False

    @property
    def age_seconds(self) -> float:
        """How long ago the lease was taken, at most."""
        return time.monotonic() - self._leased_from

    def end(self) -> None:
        """Stops the heartbeat: the write that follows ends the lease, or finds it gone."""
        self._is_ending = True

    async def hold(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs the work, extending the lease meanwhile. Raises LeaseLost once it is gone."""
        working = asyncio.ensure_future(work())
        beating = asyncio.create_task(self._beat())
        try:
            await asyncio.wait({working, beating}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            beating.result()
            raise LeaseLost
        finally:
            working.cancel()
            beating.cancel()
            await asyncio.gather(working, beating, return_exceptions=True)

    async def _beat(self) -> None:
        """Returns once the lease is lost."""
        while True:
            await asyncio.sleep(self._life.total_seconds() / BEATS_PER_LIFE)
            if not await self._is_extended() and not self._is_ending:
                return

    async def _is_extended(self) -> bool:
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, self._held_until - asked_at)):
                landing = await capture_extended(self._database, self._job, life=self._life)
        except (Unavailable, TimeoutError):
            return time.monotonic() < self._held_until
        if isinstance(landing, FenceLost):
            return False
        self._held_until = asked_at + self._life.total_seconds()
        return True
