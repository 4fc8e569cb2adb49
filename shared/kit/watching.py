"""Loops under watch: started as tasks, waited for, drained, and cancelled if they will not.

A loop that raises, or returns before it was asked to, is a crash; it is logged here, once, by
the rules of the log. Must never restart a loop: that is the orchestrator's job.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from structlog.contextvars import bind_contextvars

from shared.kit.admin import PortTaken
from shared.kit.logs import get_logger
from shared.kit.loops import Loop, Pulse

CANCEL_SECONDS = 5.0

_log = get_logger()


@dataclass
class Watched:
    """One running loop."""

    name: str
    pulse: Pulse
    task: asyncio.Task[None]


def start_loop(room: str, loop: Loop, stopping: asyncio.Event) -> Watched:
    """Starts the loop in a task of its own, whose log lines carry room and loop."""
    pulse = Pulse(loop.name, loop.beat_bound_seconds, stopping)
    return Watched(loop.name, pulse, asyncio.create_task(_run(room, loop, pulse)))


async def _run(room: str, loop: Loop, pulse: Pulse) -> None:
    bind_contextvars(room=room, loop=loop.name)
    await loop.run(pulse)


async def all_beat(watched: Sequence[Watched], stopping: asyncio.Event) -> bool:
    """Waits for every loop's first beat; False when one ended or a stop came before."""
    beats = asyncio.gather(*(item.pulse.first_beat.wait() for item in watched))
    stop = asyncio.create_task(stopping.wait())
    ends: list[asyncio.Future[Any]] = [beats, stop, *(item.task for item in watched)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    beats.cancel()
    return not (stopping.is_set() or any(item.task.done() for item in watched))


async def any_ended(watched: Sequence[Watched], stopping: asyncio.Event) -> None:
    """Waits for a stop, or for the first loop that ends without one."""
    stop = asyncio.create_task(stopping.wait())
    tasks = [item.task for item in watched]
    await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()


def log_crashes(watched: Sequence[Watched], *, was_asked: bool) -> bool:
    """Logs every loop that raised, or that ended unasked; whether there was one."""
    has_crashed = False
    for item in watched:
        if not item.task.done() or item.task.cancelled():
            continue
        error = item.task.exception()
        if error is not None:
            _log.error("loop_crashed", loop=item.name, exc_info=error)
            if isinstance(error, PortTaken):
                sys.stderr.write(f"coatcheck: {error}\n")
        elif was_asked:
            continue
        else:
            _log.error("loop_ended_unasked", loop=item.name)
        has_crashed = True
    return has_crashed


async def drain(watched: Sequence[Watched], drain_seconds: float) -> None:
    """Waits for the loops to return; cancels those that have not in time, and says so."""
    tasks = [item.task for item in watched if not item.task.done()]
    if tasks:
        await asyncio.wait(tasks, timeout=drain_seconds)
    late = [item for item in watched if not item.task.done()]
    for item in late:
        _log.warning("drain_overran", loop=item.name, drain_seconds=drain_seconds)
        item.task.cancel()
    if late:
        await asyncio.wait([item.task for item in late], timeout=CANCEL_SECONDS)
    for item in watched:
        if not item.task.done():
            _log.error("loop_ignored_cancellation", loop=item.name)
