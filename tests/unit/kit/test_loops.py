"""Loops: pulses, sweeps, backoff; ordered by events, never by time."""

import asyncio

import pytest

from shared.domain.errors import Unavailable
from shared.kit.loops import Backoff, Outage, Pulse, SweepLoop, wait_any

FOREVER = 3600.0


@pytest.fixture
def stopping() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def pulse(stopping: asyncio.Event) -> Pulse:
    return Pulse("test.loop", 60.0, stopping)


async def test_sleep_ends_on_stop(pulse: Pulse, stopping: asyncio.Event) -> None:
    sleeping = asyncio.create_task(pulse.sleep(FOREVER))
    await pulse.first_beat.wait()
    assert not sleeping.done()
    stopping.set()
    await sleeping


async def test_sleep_ends_on_wake_and_clears_it(pulse: Pulse) -> None:
    wake = asyncio.Event()
    sleeping = asyncio.create_task(pulse.sleep(FOREVER, wake))
    await pulse.first_beat.wait()
    wake.set()
    await sleeping
    assert not wake.is_set()


async def test_a_wake_that_came_before_the_sleep_is_not_lost(pulse: Pulse) -> None:
    wake = asyncio.Event()
    wake.set()
    await pulse.sleep(FOREVER, wake)
    assert not wake.is_set()


async def test_sleep_ends_by_itself(pulse: Pulse) -> None:
    await pulse.sleep(0.01)
    await pulse.sleep(0)
    assert pulse.first_beat.is_set()


async def test_sleep_beats_while_it_lasts(stopping: asyncio.Event) -> None:
    pulse = Pulse("test.beating", 0.03, stopping)
    beats = 0

    def counted() -> None:
        nonlocal beats
        beats += 1
        if beats == 4:
            stopping.set()

    pulse.beat = counted  # type: ignore[method-assign]
    await pulse.sleep(FOREVER)
    assert beats == 4


async def test_a_loop_that_is_silent_past_its_bound_is_not_alive(stopping: asyncio.Event) -> None:
    pulse = Pulse("test.silent", 0.0, stopping)
    await asyncio.sleep(0.001)
    assert not pulse.is_alive
    assert Pulse("test.silent", FOREVER, stopping).is_alive


async def test_a_beat_moves_the_gauge(pulse: Pulse) -> None:
    from shared.kit.telemetry import loop_last_beat_timestamp_seconds

    gauge = loop_last_beat_timestamp_seconds.labels("test.loop")
    gauge.set(0)
    pulse.beat()
    assert gauge._value.get() > 1_700_000_000


async def test_a_sweep_that_found_more_goes_on_at_once(
    pulse: Pulse, stopping: asyncio.Event
) -> None:
    passes: list[bool] = []

    async def run_once(_: Pulse) -> bool:
        passes.append(True)
        if len(passes) == 5:
            stopping.set()
        return True

    await SweepLoop("s", run_once, idle_seconds=FOREVER).run(pulse)
    assert len(passes) == 5


async def test_an_idle_sweep_waits_to_be_woken(pulse: Pulse, stopping: asyncio.Event) -> None:
    wake, passed = asyncio.Event(), asyncio.Queue[None]()

    async def run_once(_: Pulse) -> bool:
        passed.put_nowait(None)
        return False

    loop = SweepLoop("s", run_once, idle_seconds=FOREVER, wake=wake)
    running = asyncio.create_task(loop.run(pulse))
    await passed.get()
    for _ in range(10):
        await asyncio.sleep(0)
    assert passed.empty()
    wake.set()
    await passed.get()
    stopping.set()
    await running


async def test_a_part_that_is_away_is_waited_for(
    pulse: Pulse, stopping: asyncio.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = 0

    async def run_once(_: Pulse) -> bool:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise Unavailable("no database")
        stopping.set()
        return False

    loop = SweepLoop("s", run_once, idle_seconds=FOREVER, backoff=Backoff(0.001, 0.002))
    await loop.run(pulse)
    assert calls == 4
    out = capsys.readouterr().out
    assert out.count("part_lost") == 1
    assert out.count("part_back") == 1


async def test_any_other_error_ends_the_loop(pulse: Pulse) -> None:
    async def run_once(_: Pulse) -> bool:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await SweepLoop("s", run_once, idle_seconds=FOREVER).run(pulse)


def test_backoff_grows_to_its_cap_with_jitter() -> None:
    backoff = Backoff(first_seconds=1.0, cap_seconds=8.0)
    for attempt, whole in enumerate([1, 2, 4, 8, 8, 8]):
        delays = {backoff.seconds(attempt) for _ in range(50)}
        assert whole / 2 <= min(delays) < max(delays) <= whole
    assert backoff.seconds(10_000) <= 8.0


def test_an_outage_is_told_once_at_each_end(capsys: pytest.CaptureFixture[str]) -> None:
    outage = Outage("kafka")
    for _ in range(3):
        outage.worked()
        for _ in range(5):
            outage.failed(Unavailable())
    outage.worked()
    out = capsys.readouterr().out
    assert out.count("part_lost") == 3
    assert out.count("part_back") == 3


async def test_wait_any_leaves_no_task_behind() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    second.set()
    await wait_any(first, None, second, seconds=FOREVER)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
