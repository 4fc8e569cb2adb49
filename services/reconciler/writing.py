"""Writes a decision: one fenced event each, with what it tells the metrics and the log.

Owns the step from a judgement to the store. Promises one write per decision and an error line
where a person is needed. Must never decide anything itself.
"""

from typing import assert_never

from services.reconciler.mapping import (
    Cancelled,
    Capture,
    Decision,
    Failed,
    Look,
    LookAgain,
    OpenReview,
    TimedOut,
)
from shared.domain.durations import TimeScale
from shared.kit import telemetry
from shared.kit.logs import get_logger
from shared.store.pool import Database
from shared.store.transitions import checks
from shared.store.transitions.record import Landed, Landing

_log = get_logger()


async def write(database: Database, scale: TimeScale, look: Look, decision: Decision) -> Landing:
    """Writes the event that the decision names. Raises Unavailable; then nobody knows."""
    job, pinned = look.job, look.pinned
    match decision:
        case LookAgain():
            return await checks.check_rescheduled(
                database,
                job,
                delay=decision.delay,
                state=decision.state,
                progress=decision.progress,
                is_unfinished=decision.is_unfinished,
                odd_state=decision.odd_state,
                floor=scale.span(pinned.poll.min_s),
            )
        case Capture():
            landing = await checks.completion_observed(
                database,
                job,
                retention=scale.span(pinned.retention_s),
                link_life=scale.span(pinned.link_life_s),
                link_expires_at=decision.link_expires_at,
            )
            if isinstance(landing, Landed):
                _observe_times(look)
            return landing
        case Failed():
            return await checks.failure_observed(
                database, job, code=decision.code, failure_class=decision.failure_class
            )
        case TimedOut():
            return await checks.timeout_observed(database, job, code=decision.code)
        case Cancelled():
            return await checks.cancellation_observed(database, job)
        case OpenReview():
            return await _open_review(database, look, decision)
        case _ as never:
            assert_never(never)


async def _open_review(database: Database, look: Look, decision: OpenReview) -> Landing:
    landing = await checks.review_opened(
        database,
        look.job,
        reason=decision.reason,
        delay=decision.delay,
        state=decision.state,
    )
    if isinstance(landing, Landed):
        _log.error("job_needs_attention", job_id=look.job.id, reason=decision.reason.value)
    return landing


def _observe_times(look: Look) -> None:
    if look.reading.queue_seconds is not None:
        telemetry.queue_wait_seconds.observe(look.reading.queue_seconds)
    if look.reading.execution_seconds is not None:
        telemetry.render_seconds.observe(look.reading.execution_seconds)
