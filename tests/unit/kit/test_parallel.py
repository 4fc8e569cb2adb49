"""The parallel sweep: leases for free hands, outlives a row's trouble, drains at a stop."""

import asyncio
from collections.abc import Sequence

from structlog.testing import capture_logs

from shared.domain.errors import Unavailable
from shared.kit.loops import Pulse
from shared.kit.parallel import ParallelSweep, Work


class Rows:
    """Rows that wait to be leased; each is worked on until the test lets it end."""

    def __init__(self, count: int) -> None:
        self.waiting = list(range(count))
        self.asked: list[int] = []
        self.begun: asyncio.Queue[int] = asyncio.Queue()
        self.ends = {number: asyncio.Event() for number in range(count)}
        self.done: list[int] = []
        self.cancelled: list[int] = []

    async def lease(self, most: int) -> Sequence[Work]:
        self.asked.append(most)
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        return [self._work(number) for number in taken]

    async def _work(self, number: int) -> None:
        self.begun.put_nowait(number)
        try:
            await self.ends[number].wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        self.done.append(number)


class Started:
    """A sweep that runs until the test stops it."""

    def __init__(self, lease: object, *, parallel: int = 2, idle_seconds: float = 3600.0) -> None:
        self.wake = asyncio.Event()
        self.stopping = asyncio.Event()
        self.sweep = ParallelSweep(
            "test.rows",
            lease,  # type: ignore[arg-type]  # the tests' own rows fit
            parallel=parallel,
            idle_seconds=idle_seconds,
            wake=self.wake,
        )
        self.task = asyncio.create_task(self.sweep.run(Pulse("test.rows", 60.0, self.stopping)))


async def test_no_more_rows_are_leased_than_hands_are_free() -> None:
    rows = Rows(5)
    started = Started(rows.lease)
    assert {await rows.begun.get(), await rows.begun.get()} == {0, 1}
    assert rows.asked == [2]
    rows.ends[0].set()
    assert await rows.begun.get() == 2
    assert rows.asked[1] == 1
    for end in rows.ends.values():
        end.set()
    started.stopping.set()
    await started.task
    assert {0, 1, 2} <= {*rows.done}


async def test_a_stop_waits_for_the_work_and_leases_no_more() -> None:
    rows = Rows(3)
    started = Started(rows.lease)
    await rows.begun.get()
    await rows.begun.get()
    started.stopping.set()
    rows.ends[0].set()
    rows.ends[1].set()
    await started.task
    assert sorted(rows.done) == [0, 1]
    assert rows.waiting == [2]


async def test_a_cancelled_drain_cancels_the_work() -> None:
    rows = Rows(1)
    started = Started(rows.lease)
    await rows.begun.get()
    started.task.cancel()
    await asyncio.gather(started.task, return_exceptions=True)
    assert rows.cancelled == [0]


async def test_a_hint_wakes_an_idle_sweep() -> None:
    rows = Rows(0)
    asked = asyncio.Event()

    async def lease(most: int) -> Sequence[Work]:
        asked.set()
        return await rows.lease(most)

    started = Started(lease)
    await asked.wait()
    asked.clear()
    started.wake.set()
    await asked.wait()
    started.stopping.set()
    await started.task
    assert rows.asked == [2, 2]


async def test_one_rows_trouble_is_told_and_ends_only_that_row() -> None:
    ended: asyncio.Queue[str] = asyncio.Queue()
    batches = [["away", "broken", "away"], ["fine"]]

    async def work(kind: str) -> None:
        ended.put_nowait(kind)
        if kind == "away":
            raise Unavailable("the database is away")
        if kind == "broken":
            raise KeyError("surprise")

    async def lease(_: int) -> Sequence[Work]:
        return [work(kind) for kind in (batches.pop(0) if batches else [])]

    with capture_logs() as logs:
        started = Started(lease, parallel=8)
        for _ in range(3):
            await ended.get()
        started.wake.set()
        assert await ended.get() == "fine"
        started.stopping.set()
        await started.task
    events = [entry["event"] for entry in logs]
    assert events.count("part_lost") == 1
    assert events.count("row_failed") == 1
    assert events.count("part_back") == 1
