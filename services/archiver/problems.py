"""Why an attempt did not end in a stored result, and what follows from it. Pure.

Owns the judgement. Promises that nobody but the provider ends a paid job: its refusal, repeated
over a while, or an output that holds nothing storable, each time it is asked. What our own
settings refuse waits with an alarm and then goes to a person; everything else is tried again, and
passing the deadline alone never gives a capture up. All times are the database's.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from shared.domain.durations import TimeScale
from shared.domain.job import Job
from shared.domain.provider import ProviderState
from shared.domain.registry import PinnedEndpoint
from shared.domain.stages import AttentionReason, ErrorCode

CONFIRM_SECONDS = 60.0
CONFIRM_LOOKS = 3
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
RETENTION_SHARE = 6


@dataclass(frozen=True)
class Trouble:
    """It did not work this time. `was_silent`: the provider said nothing of the result."""

    reason: str
    was_silent: bool = True
    retry_after_seconds: float = 0.0


@dataclass(frozen=True)
class Denied:
    """The provider itself does not hand out what it made."""

    reason: str


@dataclass(frozen=True)
class Missing:
    """The provider is done and shows no such artifact."""


@dataclass(frozen=True)
class Unusable:
    """The artifact is of a kind that no configuration may ever take."""

    reason: str


@dataclass(frozen=True)
class Barred:
    """Our own settings refuse the artifact: a host, a media type, a size."""

    reason: str


Problem = Trouble | Denied | Missing | Unusable | Barred


@dataclass(frozen=True)
class Again:
    """Another lease tries, `delay` from now."""

    delay: timedelta
    odd_state: ProviderState | None = None
    was_silent: bool = False


@dataclass(frozen=True)
class GiveToPerson:
    """A person decides; the provider is still watched every `delay`, None once it forgot."""

    reason: AttentionReason
    delay: timedelta | None


@dataclass(frozen=True)
class Refuse:
    """The job ends without a result, by the provider's own word."""

    code: ErrorCode


Decision = Again | GiveToPerson | Refuse


class Judge:
    """Decides what follows from a problem; `chance` gives numbers from 0 up to 1."""

    def __init__(self, scale: TimeScale, chance: Callable[[], float] = random.random) -> None:
        self._scale = scale
        self._chance = chance

    def decide(
        self, job: Job, pinned: PinnedEndpoint, problem: Problem, leased_at: datetime
    ) -> Decision:
        """What follows. Refuse(result_lost) still asks for a last look into the bucket."""
        deadline = _deadline(job)
        match problem:
            case Denied():
                if self._has_stood(job, ProviderState.gone, leased_at, looks=CONFIRM_LOOKS):
                    return Refuse(ErrorCode.result_lost)
                return Again(self._confirm_gap(), ProviderState.gone)
            case Missing() | Unusable():
                # The first look and three re-checks: a late progress post can hide an output.
                looks = CONFIRM_LOOKS + 1
                if self._has_stood(job, ProviderState.completed, leased_at, looks=looks):
                    is_there = isinstance(problem, Unusable)
                    code = ErrorCode.result_invalid if is_there else ErrorCode.result_missing
                    return Refuse(code)
                return Again(self._confirm_gap(), ProviderState.completed)
            case Barred():
                if leased_at >= deadline:
                    reason = AttentionReason.result_refused_by_config
                    return GiveToPerson(reason, self._watch_delay(job, pinned, leased_at))
                wait = min(self._longest(pinned), deadline - leased_at + self._shortest())
                return Again(max(wait, self._shortest()))
            case Trouble():
                if leased_at >= deadline + self._scale.span(pinned.retention_s):
                    reason = AttentionReason.capture_budget_spent
                    return GiveToPerson(reason, self._watch_delay(job, pinned, leased_at))
                return self.after_trouble(job, pinned, problem)
            case _ as never:
                assert_never(never)

    def after_trouble(self, job: Job, pinned: PinnedEndpoint, problem: Trouble) -> Again:
        """The next try, later the more leases the capture took already."""
        doubled = FIRST_RETRY_SECONDS * 2.0 ** min(job.capture_attempts - 1, 20)
        longest = self._longest(pinned)
        delay = min(self._scale.span(doubled), longest) * (1 - 0.5 * self._chance())
        wish = min(timedelta(seconds=problem.retry_after_seconds), longest)
        return Again(max(delay, wish, self._shortest()), was_silent=problem.was_silent)

    def _has_stood(
        self, job: Job, state: ProviderState, leased_at: datetime, *, looks: int
    ) -> bool:
        """Whether this odd answer, the same each time, was seen often and long enough."""
        if job.odd_state != state.value or job.odd_since is None:
            return False
        stood = leased_at - job.odd_since
        return job.odd_answers + 1 >= looks and stood >= self._scale.span(CONFIRM_SECONDS)

    def _confirm_gap(self) -> timedelta:
        return self._scale.span(CONFIRM_SECONDS / CONFIRM_LOOKS * (1 + 0.2 * self._chance()))

    def _longest(self, pinned: PinnedEndpoint) -> timedelta:
        return self._scale.span(min(LONGEST_RETRY_SECONDS, pinned.retention_s / RETENTION_SHARE))

    def _shortest(self) -> timedelta:
        return timedelta(seconds=max(0.1, self._scale.seconds(FIRST_RETRY_SECONDS) / 2))

    def _watch_delay(
        self, job: Job, pinned: PinnedEndpoint, leased_at: datetime
    ) -> timedelta | None:
        """Like every review: watched until the provider has forgotten the job."""
        begun_at = job.claimed_at or job.accepted_at or job.created_at
        ends_at = begun_at + self._scale.span(pinned.ttl_s + pinned.retention_s)
        gap = min(pinned.poll.max_s, pinned.retention_s / RETENTION_SHARE)
        return None if leased_at >= ends_at else self._scale.span(gap)


def _deadline(job: Job) -> datetime:
    if job.capture_deadline is None:
        raise ValueError("a capturing row has a deadline")
    return job.capture_deadline
