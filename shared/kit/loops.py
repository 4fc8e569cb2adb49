"""Loops: what a room does, as objects that the runner starts, watches and stops.

Owns the pulse that a loop is given (stop, beat, sleep) and the sweep, the loop that looks for
due rows. Promises that a part that is away (`Unavailable`) is logged once per outage and tried
again with jitter, for as long as it takes. Must never swallow any other error: a crashed loop
crashes the process, because silent death is nobody's business.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from shared.domain.errors import Unavailable
from shared.kit.logs import get_logger
from shared.kit.telemetry import loop_last_beat_timestamp_seconds

_log = get_logger()


class Pulse:
    """A loop's tie to the runner: `stopping` is set when it shall drain and return."""

    def __init__(self, name: str, beat_bound_seconds: float, stopping: asyncio.Event) -> None:
        self.stopping = stopping
        self.first_beat = asyncio.Event()
        self._bound_seconds = beat_bound_seconds
        self._last_beat_at = time.monotonic()
        self._gauge = loop_last_beat_timestamp_seconds.labels(name)

    def beat(self) -> None:
        """A sign of life. The first one says that the loop is at work; only then is it ready."""
        self._last_beat_at = time.monotonic()
        self._gauge.set_to_current_time()
        self.first_beat.set()

    @property
    def silent_seconds(self) -> float:
        """Time since the last beat, or since the start."""
        return time.monotonic() - self._last_beat_at

    @property
    def is_alive(self) -> bool:
        """Whether the last beat is within the loop's bound."""
        return self.silent_seconds <= self._bound_seconds

    async def sleep(self, seconds: float, wake: asyncio.Event | None = None) -> None:
        """Sleeps at most that long, beating; returns early on stop or on `wake`, and clears it.

        Work that arrives while the loop is awake sets `wake` again, so no call is lost.
        """
        deadline = time.monotonic() + seconds
        while not self.stopping.is_set():
            self.beat()
            if wake is not None and wake.is_set():
                wake.clear()
                return
            left = deadline - time.monotonic()
            if left <= 0:
                return
            await wait_any(self.stopping, wake, seconds=min(left, self._bound_seconds / 3))


class Loop(Protocol):
    """One loop of a room; implemented by SweepLoop, HintLoop, HttpServerLoop and rooms' own.

    `name` is the metric's label and unique in a process. `/livez` fails once the last beat is
    older than `beat_bound_seconds`. `run` beats once it is at work, returns when it is drained
    after `pulse.stopping`, and by raising, or by returning unasked, it ends the process.
    """

    @property
    def name(self) -> str:
        """Label of `coatcheck_loop_last_beat_timestamp_seconds`."""

    @property
    def beat_bound_seconds(self) -> float:
        """The longest silence that is still healthy."""

    async def run(self, pulse: Pulse) -> None:
        """Works until `pulse.stopping` is set."""


@dataclass(frozen=True)
class Backoff:
    """Delays that double from `first_seconds` up to `cap_seconds`, with full jitter above half."""

    first_seconds: float = 0.5
    cap_seconds: float = 10.0

    def seconds(self, attempt: int) -> float:
        """The delay after the given failed attempt, counted from 0."""
        whole = min(self.cap_seconds, self.first_seconds * 2.0 ** min(attempt, 30))
        return whole * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing


class Outage:
    """Says once that a part is away and once that it is back, however often it is tried."""

    def __init__(self, part: str) -> None:
        self._part = part
        self.attempts = 0

    def failed(self, error: BaseException) -> None:
        """Counts a failure; the first of an outage is logged as an error."""
        if self.attempts == 0:
            _log.error("part_lost", part=self._part, exc_info=error)
        self.attempts += 1

    def worked(self) -> None:
        """Ends the outage, if there was one."""
        if self.attempts:
            _log.warning("part_back", part=self._part, attempts=self.attempts)
        self.attempts = 0


class SweepLoop:
    """Looks for due rows again and again.

    `run_once` does one bounded pass and says whether more rows wait: then the next pass starts
    at once, else after `idle_seconds` or when `wake` is set. Its `Unavailable` is waited out.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[Pulse], Awaitable[bool]],
        *,
        idle_seconds: float,
        wake: asyncio.Event | None = None,
        beat_bound_seconds: float = 60.0,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = name
        self.beat_bound_seconds = beat_bound_seconds
        self._run_once = run_once
        self._idle_seconds = idle_seconds
        self._wake = wake
        self._backoff = backoff or Backoff()

    async def run(self, pulse: Pulse) -> None:
        """Passes until stopped; a pass under way is finished."""
        outage = Outage(self.name)
        while not pulse.stopping.is_set():
            pulse.beat()
            try:
                more = await self._run_once(pulse)
            except Unavailable as error:
                outage.failed(error)
                await pulse.sleep(self._backoff.seconds(outage.attempts - 1))
                continue
            outage.worked()
            if more:
                await asyncio.sleep(0)  # a pass that never waits must not starve the others
            else:
                await pulse.sleep(self._idle_seconds, self._wake)


async def wait_any(*events: asyncio.Event | None, seconds: float) -> None:
    """Returns when one of the events is set or the time is up."""
    waits = [asyncio.ensure_future(event.wait()) for event in events if event is not None]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
