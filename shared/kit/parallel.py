"""A sweep whose rows are worked on side by side: leased only when hands are free for them.

Owns the tasks of a room that asks outside parties about rows. Promises that no more rows are
leased than can be worked on now, that one row's trouble is said (once per outage, if a part is
away) and ends only that row's work, and that a stop waits for the work under way. Must never
give a lease back or renew it: what a task leaves behind expires by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from shared.domain.errors import Unavailable
from shared.kit.logs import get_logger
from shared.kit.loops import Backoff, Outage, Pulse, SweepLoop

Work = Coroutine[Any, Any, None]
Lease = Callable[[int], Awaitable[Sequence[Work]]]
"""Leases at most that many due rows and gives the work on each; may raise Unavailable."""

_log = get_logger()


class ParallelSweep:
    """Leases due rows and works on at most `parallel` of them at a time.

    With a hand free it looks again at once while rows wait, else after `idle_seconds` or when
    `wake` is set: that is how a hint is taken.
    """

    def __init__(
        self,
        name: str,
        lease: Lease,
        *,
        parallel: int,
        idle_seconds: float,
        wake: asyncio.Event,
        beat_bound_seconds: float = 60.0,
    ) -> None:
        self.name = name
        self.beat_bound_seconds = beat_bound_seconds
        self._lease = lease
        self._parallel = parallel
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._part = Outage(f"{name}: a part that a row needs")
        self._sweep = SweepLoop(
            name,
            self._pass,
            idle_seconds=idle_seconds,
            wake=wake,
            beat_bound_seconds=beat_bound_seconds,
            backoff=Backoff(0.5, 10.0),
        )

    async def run(self, pulse: Pulse) -> None:
        """Sweeps until stopped, then waits for the work under way; cancelled, it cancels that."""
        try:
            await self._sweep.run(pulse)
            while self._tasks:
                pulse.beat()
                await asyncio.wait(self._tasks, timeout=self.beat_bound_seconds / 3)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass(self, pulse: Pulse) -> bool:
        free = self._parallel - len(self._tasks)
        if not free:
            await pulse.sleep(self.beat_bound_seconds / 3, self._freed)
            return True
        works = await self._lease(free)
        for work in works:
            task = asyncio.create_task(self._guarded(work))
            self._tasks.add(task)
            task.add_done_callback(self._done)
        return len(works) == free

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._freed.set()

    async def _guarded(self, work: Work) -> None:
        try:
            await work
        except Unavailable as error:
            self._part.failed(error)
        except Exception as error:  # noqa: BLE001  # one row's failure ends only its own work
            _log.error("row_failed", exc_info=error)
        else:
            self._part.worked()
