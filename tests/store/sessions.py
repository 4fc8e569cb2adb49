"""Two real sessions in a chosen order: one stops before its COMMIT, the other runs into it.

Order comes from the server's own word (`pg_blocking_pids`), never from sleeping: `waits_for`
returns once the second session is seen waiting for the first, or has ended without waiting.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from shared.store.pool import Connection, Database

Result = TypeVar("Result")

BLOCKED_SQL = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = $1 AND cardinality(pg_blocking_pids(pid)) > 0
"""


class PausingDatabase(Database):
    """Stops inside every transaction, after its statements and before its COMMIT."""

    def __init__(self, pool: Any, room: str) -> None:
        super().__init__(pool, room)
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def _stop_here(self) -> None:
        self.reached.set()
        await self.go_on.wait()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """As the real one, but stopping before COMMIT."""
        async with super().transaction() as connection:
            yield connection
            await self._stop_here()

    @asynccontextmanager
    async def durable_transaction(self) -> AsyncIterator[Connection]:
        """As the real one, but stopping before COMMIT."""
        async with super().durable_transaction() as connection:
            yield connection
            await self._stop_here()


class Sessions:
    """`first` pauses before COMMIT; `second` is an ordinary session called `second_name`."""

    def __init__(self, first: PausingDatabase, second: Database, observer: Database) -> None:
        self.first = first
        self.second = second
        self.observer = observer

    async def interleaved(
        self, first: Awaitable[Result], second: Awaitable[Any]
    ) -> tuple[Result, Any, bool]:
        """Runs `first` up to its COMMIT, then `second` until it waits or ends, then both on.

        Returns both results and whether the second was seen waiting.
        """
        one = asyncio.ensure_future(first)
        reached = asyncio.ensure_future(self.first.reached.wait())
        await asyncio.wait({one, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        two = asyncio.ensure_future(second)
        try:
            waited = await self._waits(two)
        finally:
            self.first.go_on.set()
        results = await asyncio.gather(one, two)
        return results[0], results[1], waited

    async def _waits(self, two: "asyncio.Future[Any]") -> bool:
        name = f"coatcheck-{self.second.room}"
        while not two.done():
            async with self.observer.connection() as connection:
                if await connection.fetchval(BLOCKED_SQL, name):
                    return True
        return False
