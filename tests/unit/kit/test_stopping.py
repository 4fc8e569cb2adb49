"""Signals that ask for a stop: each one wakes the loop, however it falls."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from shared.kit.stopping import STOP_SIGNALS, StopSignals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers as they were."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_a_signal_wakes_a_loop_that_waits_for_nothing_else() -> None:
    stopping = asyncio.Event()
    StopSignals(stopping, None)
    # Without a descriptor for wake-ups a signal between two waits of the loop is not seen.
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)
    assert descriptor != -1
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping.wait()


async def test_a_signal_cancels_what_is_still_starting() -> None:
    stopping = asyncio.Event()
    starting = asyncio.ensure_future(asyncio.Event().wait())
    StopSignals(stopping, starting)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert stopping.is_set()
