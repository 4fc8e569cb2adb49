"""Events of the reconciler: leases, reschedules, and what the provider's word ends or opens.

A lease is a repeatable, expiring permission; each write after it names its token and finds it
still alive by the database's own clock. Leases and bare reschedules write no audit row.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from shared.domain.edges import Event
from shared.domain.hints import HintKind
from shared.domain.job import Job
from shared.domain.provider import ProviderState
from shared.domain.stages import AttentionReason, ErrorCode, Stage
from shared.store.pool import Database
from shared.store.statements import (
    CANCEL_SENT_SQL,
    COMPLETE_SQL,
    END_SQL,
    LEASE_CHECKS_SQL,
    RESCHEDULE_CHECK_SQL,
    REVIEW_SQL,
)
from shared.store.transitions.record import Landing, Move, land, lease_many


async def check_leased(
    database: Database,
    *,
    holder: str,
    life: timedelta,
    batch: int,
    job_ids: Sequence[UUID] | None = None,
) -> list[Job]:
    """Leases due rows (or the named ones among them); each job carries its own lease token."""
    return await lease_many(
        database,
        LEASE_CHECKS_SQL,
        (
            batch,
            [uuid4() for _ in range(batch)],
            holder,
            life,
            None if job_ids is None else list(job_ids),
        ),
    )


async def check_rescheduled(
    database: Database,
    job: Job,
    *,
    delay: timedelta | None,
    state: ProviderState | None = None,
    progress: int | None = None,
    is_unfinished: bool = False,
    odd_state: ProviderState | None = None,
    floor: timedelta = timedelta(0),
) -> Landing:
    """Ends the lease and sets the next look `delay` from now; None lets the row rest.

    `state` None: the answer said nothing about the job. `is_unfinished`: the job was seen
    unfinished, so its retention clock starts anew at the lease. `odd_state`: the answer was gone,
    unrecognised or completed without output; equal ones are counted until another answer comes.
    """
    return await land(
        database,
        RESCHEDULE_CHECK_SQL,
        (
            job.id,
            job.lease_token,
            delay,
            None if state is None else state.value,
            progress,
            is_unfinished,
            None if odd_state is None else odd_state.value,
            floor,
        ),
        Move(Event.check_rescheduled, database.room, job.lease_token),
    )


async def cancel_sent(database: Database, job: Job) -> Landing:
    """Notes that the provider was asked to stop; its status answer decides what became of it."""
    return await land(
        database,
        CANCEL_SENT_SQL,
        (job.id, job.lease_token),
        Move(Event.check_rescheduled, database.room, job.lease_token),
    )


async def completion_observed(
    database: Database,
    job: Job,
    *,
    retention: timedelta,
    link_life: timedelta,
    link_expires_at: datetime | None = None,
) -> Landing:
    """The provider finished: fixes the capture deadline and hands the job to the archiver."""
    return await land(
        database,
        COMPLETE_SQL,
        (job.id, job.lease_token, retention, link_life, link_expires_at),
        Move(Event.completion_observed, database.room, job.lease_token, hint=HintKind.capture),
    )


async def failure_observed(
    database: Database, job: Job, *, code: ErrorCode, failure_class: str | None = None
) -> Landing:
    """The provider says that the job failed. `failure_class` is ours, never its words."""
    return await _ended(database, job, Event.failure_observed, Stage.failed, code, failure_class)


async def timeout_observed(database: Database, job: Job, *, code: ErrorCode) -> Landing:
    """The provider says that the job ran out of time, in its queue or on its worker."""
    return await _ended(database, job, Event.timeout_observed, Stage.failed, code, None)


async def cancellation_observed(database: Database, job: Job) -> Landing:
    """The provider says that the job was cancelled."""
    return await _ended(database, job, Event.cancellation_observed, Stage.cancelled, None, None)


async def _ended(
    database: Database,
    job: Job,
    event: Event,
    stage: Stage,
    code: ErrorCode | None,
    failure_class: str | None,
) -> Landing:
    said = {
        Event.failure_observed: ProviderState.failed,
        Event.timeout_observed: ProviderState.timed_out,
        Event.cancellation_observed: ProviderState.cancelled,
    }[event]
    return await land(
        database,
        END_SQL,
        (job.id, job.lease_token, stage.value, None if code is None else code.value, said.value),
        Move(
            event,
            database.room,
            job.lease_token,
            detail={} if failure_class is None else {"failure_class": failure_class},
        ),
    )


async def review_opened(
    database: Database,
    job: Job,
    *,
    reason: AttentionReason,
    delay: timedelta | None,
    state: ProviderState | None = None,
    rules: str | None = None,
) -> Landing:
    """No machine can establish the outcome now; the row is still watched every `delay`.

    `rules`: the registry's rules that a result failed by; a later registry may know better.
    """
    return await land(
        database,
        REVIEW_SQL,
        (job.id, job.lease_token, reason.value, delay, None if state is None else state.value),
        Move(
            Event.review_opened,
            database.room,
            job.lease_token,
            detail={"reason": reason.value} | ({} if rules is None else {"rules": rules}),
        ),
    )
