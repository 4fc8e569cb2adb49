"""When to look at a job again. Pure, but for the jitter it is given.

Owns every delay of the room. Near the start a job is looked at every `min_s`; then the gap grows
with its age, so that an end is noticed within a fifth of the time it took, up to the smaller of
`max_s` and a sixth of the retention: six looks always fit before a result is forgotten. All of it
is scaled; what the provider itself asks for is not, only its cap is.
"""

import random
from collections.abc import Callable
from datetime import timedelta

from shared.domain.durations import TimeScale
from shared.domain.registry import PinnedEndpoint

GROWTH = 0.2
RETENTION_SHARE = 6
JITTER = 0.2
CONFIRM_SECONDS = 60.0
CONFIRM_LOOKS = 3
RETRY_AFTER_CAP_SECONDS = 900.0
CANCEL_AGAIN_SECONDS = 30.0


class Pacing:
    """The delays of one process. `chance` gives numbers from 0 up to 1."""

    def __init__(self, scale: TimeScale, chance: Callable[[], float] = random.random) -> None:
        self._scale = scale
        self._chance = chance

    def gap(self, pinned: PinnedEndpoint, age: timedelta) -> timedelta:
        """Until the next look at a job of that age that is simply under way."""
        age_s = age.total_seconds() * self._scale.factor
        wanted = age_s * GROWTH * self._jitter()
        return self._scale.span(min(max(wanted, pinned.poll.min_s), longest_gap_s(pinned)))

    def watch_gap(self, pinned: PinnedEndpoint) -> timedelta:
        """Until the next look at a job in review."""
        longest = longest_gap_s(pinned)
        return self._scale.span(max(longest * self._jitter(), min(longest, pinned.poll.min_s)))

    def confirm_gap(self) -> timedelta:
        """Until an odd answer is checked; three such gaps are never less than `confirm_span`."""
        return self._scale.span(CONFIRM_SECONDS / CONFIRM_LOOKS * (2 - self._jitter()))

    def confirm_span(self) -> timedelta:
        """For how long an odd answer must have stood before it is believed."""
        return self._scale.span(CONFIRM_SECONDS)

    def retry_gap(
        self, pinned: PinnedEndpoint, age: timedelta, wish_seconds: float | None
    ) -> timedelta:
        """Until the next try after an answer that said nothing; the provider's wish is heeded."""
        return max(self.gap(pinned, age), timedelta(seconds=self.heeded_seconds(wish_seconds)))

    def heeded_seconds(self, wish_seconds: float | None) -> float:
        """How much of a Retry-After is heeded: the provider's seconds, our scaled cap."""
        return min(wish_seconds or 0.0, self._scale.seconds(RETRY_AFTER_CAP_SECONDS))

    def cancel_gap(self) -> timedelta:
        """Until a wish to cancel is sent once more."""
        return self._scale.span(CANCEL_AGAIN_SECONDS)

    def _jitter(self) -> float:
        return 1 - JITTER * self._chance()


def longest_gap_s(pinned: PinnedEndpoint) -> float:
    """The longest gap that an endpoint's jobs are ever left alone, unscaled."""
    return min(pinned.poll.max_s, pinned.retention_s / RETENTION_SHARE)
