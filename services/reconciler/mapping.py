"""From one status answer to what becomes of the job: the room's judgement, pure.

Owns the mapping. Promises that only the provider's own word ends a job: a 404, an unknown state
and a completion without its artifact are odd, must stand for a while and several looks, and only
the last of them ever fails a job; no answer at all moves nothing but a spent budget. All times
are the database's.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from services.reconciler.pacing import CONFIRM_LOOKS, Pacing
from services.reconciler.survey import Survey
from shared.domain.durations import TimeScale
from shared.domain.job import Job
from shared.domain.provider import FailureClass, ProviderState, StatusReading
from shared.domain.registry import PinnedEndpoint
from shared.domain.stages import AttentionReason, ErrorCode, Stage


@dataclass(frozen=True)
class LookAgain:
    """Nothing is decided. `delay` None: the row rests. `state` None: nothing was said."""

    delay: timedelta | None
    state: ProviderState | None = None
    progress: int | None = None
    is_unfinished: bool = False
    odd_state: ProviderState | None = None


@dataclass(frozen=True)
class Capture:
    """The provider finished and shows what was declared."""

    link_expires_at: datetime | None


@dataclass(frozen=True)
class Failed:
    """The provider failed, or finished with nothing to show."""

    code: ErrorCode
    failure_class: FailureClass | None = None


@dataclass(frozen=True)
class TimedOut:
    """The provider gave up on the job, in its queue or on its worker."""

    code: ErrorCode


@dataclass(frozen=True)
class Cancelled:
    """The provider stopped the job."""


@dataclass(frozen=True)
class OpenReview:
    """No machine can tell the outcome now."""

    reason: AttentionReason
    delay: timedelta | None
    state: ProviderState | None = None


Decision = LookAgain | Capture | Failed | TimedOut | Cancelled | OpenReview

ARCHIVERS_REASONS = (
    AttentionReason.result_refused_by_config.value,
    AttentionReason.capture_budget_spent.value,
)
"""Reviews that the archiver opened: a completion that was known before moves them nowhere."""

_ODD = {
    ProviderState.gone: AttentionReason.provider_job_gone,
    ProviderState.unrecognised: AttentionReason.provider_state_unrecognised,
}


@dataclass(frozen=True)
class Look:
    """One check: the leased row, its terms, the answer, and what the answer holds.

    `rules_changed`: the registry is another than the one an archiver's review was opened under.
    """

    job: Job
    leased_at: datetime
    pinned: PinnedEndpoint
    reading: StatusReading
    survey: Survey
    rules_changed: bool = False

    @property
    def age(self) -> timedelta:
        """How long the provider has had the job."""
        return self.leased_at - (self.job.accepted_at or self.job.created_at)


class Judge:
    """Decides looks; holds nothing between them."""

    def __init__(self, scale: TimeScale, pacing: Pacing) -> None:
        self._scale = scale
        self._pacing = pacing

    def decide(self, look: Look) -> Decision:
        """What follows from this answer."""
        reading = look.reading
        match reading.state:
            case ProviderState.completed:
                return self._completed(look)
            case ProviderState.failed:
                return _failed(look)
            case ProviderState.timed_out:
                return TimedOut(_timeout_code(look))
            case ProviderState.cancelled:
                return Cancelled()
            case _ if look.job.stage is Stage.review:
                return self._still_in_review(look)
            case ProviderState.gone | ProviderState.unrecognised:
                return self._odd(look, reading.state)
            case ProviderState.queued | ProviderState.running | ProviderState.retry_later:
                return self._unfinished(look)

    def _completed(self, look: Look) -> Decision:
        if not look.survey.is_whole:
            # The first look and three re-checks: a late progress post can hide an output.
            if self._has_stood(look, ProviderState.completed, looks=CONFIRM_LOOKS + 1):
                return Failed(ErrorCode.result_missing)
            return LookAgain(self._pacing.confirm_gap(), odd_state=ProviderState.completed)
        if look.job.attention_reason in ARCHIVERS_REASONS and not look.rules_changed:
            return LookAgain(self._watch_delay(look), ProviderState.completed)
        return Capture(look.survey.link_expires_at)

    def _odd(self, look: Look, state: ProviderState) -> Decision:
        if self._has_stood(look, state, looks=CONFIRM_LOOKS):
            return OpenReview(_ODD[state], self._watch_delay(look), state)
        return LookAgain(self._pacing.confirm_gap(), odd_state=state)

    def _unfinished(self, look: Look) -> Decision:
        reading = look.reading
        was_silent = reading.state is ProviderState.retry_later
        state = None if was_silent else reading.state
        if look.leased_at >= self._budget_ends_at(look):
            reason = AttentionReason.check_budget_spent
            return OpenReview(reason, self._watch_delay(look), state)
        if was_silent:
            wish = reading.retry_after_seconds
            return LookAgain(self._pacing.retry_gap(look.pinned, look.age, wish))
        gap = self._pacing.gap(look.pinned, look.age)
        return LookAgain(gap, state, reading.progress, is_unfinished=True)

    def _still_in_review(self, look: Look) -> Decision:
        is_open = look.reading.state in (ProviderState.queued, ProviderState.running)
        was_silent = look.reading.state is ProviderState.retry_later
        return LookAgain(
            self._watch_delay(look),
            None if was_silent else look.reading.state,
            is_unfinished=is_open,
        )

    def _has_stood(self, look: Look, state: ProviderState, *, looks: int) -> bool:
        """Whether this odd answer, the same each time, was seen often and long enough."""
        job = look.job
        if job.odd_state != state.value or job.odd_since is None:
            return False
        stood = look.leased_at - job.odd_since
        return job.odd_answers + 1 >= looks and stood >= self._pacing.confirm_span()

    def _watch_delay(self, look: Look) -> timedelta | None:
        ends_at = self._budget_ends_at(look) + self._scale.span(look.pinned.retention_s)
        return None if look.leased_at >= ends_at else self._pacing.watch_gap(look.pinned)

    def _budget_ends_at(self, look: Look) -> datetime:
        job = look.job
        begun_at = job.claimed_at or job.accepted_at or job.created_at
        return begun_at + self._scale.span(look.pinned.ttl_s)


def _failed(look: Look) -> Decision:
    match look.reading.failure_class:
        case FailureClass.exec_timeout:
            return TimedOut(ErrorCode.provider_timed_out)
        case FailureClass.queue_timeout:
            return TimedOut(ErrorCode.provider_expired)
        case other:
            return Failed(ErrorCode.provider_failed, other)


def _timeout_code(look: Look) -> ErrorCode:
    """Ran too long, or never began: by the answer's own signs, else by what we saw before."""
    match look.reading.failure_class:
        case FailureClass.exec_timeout:
            return ErrorCode.provider_timed_out
        case FailureClass.queue_timeout:
            return ErrorCode.provider_expired
        case _:
            began = look.reading.execution_seconds or look.job.started_at is not None
            return ErrorCode.provider_timed_out if began else ErrorCode.provider_expired
