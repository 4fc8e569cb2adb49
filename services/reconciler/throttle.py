"""How much a provider is left alone after it said so, or said nothing.

Owns one pause per provider and base address: they share a key and its limits, so one answer
counts for all jobs there. A Retry-After holds as long as it says; answers that say nothing hold
longer the more of them come in a row. Kept in memory: another process learns it by itself. Must
never hold back for good: when a pause ends, the next check is let through and tells.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from shared.domain.provider import ProviderState, StatusReading
from shared.kit.loops import Backoff

SILENT_BEFORE_PAUSE = 3
"""One lost answer among many is a job's own bad luck, not the provider's state."""


@dataclass
class _Pause:
    silent_answers: int = 0
    silent_until: float = 0.0
    wished_until: float = 0.0


class Throttle:
    """Pauses by key. `clock` is monotonic seconds; the backoff is already scaled."""

    def __init__(self, backoff: Backoff, clock: Callable[[], float] = time.monotonic) -> None:
        self._backoff = backoff
        self._clock = clock
        self._pauses: dict[tuple[str, str], _Pause] = {}

    def held_seconds(self, key: tuple[str, str]) -> float:
        """How long calls under this key should still wait; 0 when one may go."""
        pause = self._pauses.get(key, _Pause())
        return max(0.0, max(pause.silent_until, pause.wished_until) - self._clock())

    def heed(self, key: tuple[str, str], reading: StatusReading, wish_seconds: float) -> None:
        """Takes an answer into account; `wish_seconds` is what is heeded of its Retry-After."""
        pause = self._pauses.setdefault(key, _Pause())
        now = self._clock()
        if reading.state is not ProviderState.retry_later:
            pause.silent_answers, pause.silent_until = 0, now
            return
        pause.wished_until = max(pause.wished_until, now + wish_seconds)
        if now < pause.silent_until:
            return  # a burst that was on its way when the pause began counts once
        pause.silent_answers += 1
        if pause.silent_answers >= SILENT_BEFORE_PAUSE:
            seconds = self._backoff.seconds(pause.silent_answers - SILENT_BEFORE_PAUSE)
            pause.silent_until = now + seconds
