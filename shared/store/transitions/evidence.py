"""Evidence: what an authentic callback, or our own late answer, says of a claim.

In every stage it is stored first, in a transaction that locks the jobs row before anything
else; what it moves follows from the stage. Nothing here believes a body: an id is kept for the
reconciler to ask the provider about, and a callback never ends or advances a job.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import asyncpg

from shared.domain.edges import Event
from shared.domain.hints import HintKind
from shared.domain.job import Job
from shared.domain.provider import Handle
from shared.domain.stages import AttentionReason, ClaimOutcome, Stage
from shared.store.pool import Connection, Database, Record
from shared.store.statements import ADOPT_SQL, HASTEN_CHECK_SQL, HOLD_SQL, LOCK_SQL
from shared.store.transitions.record import (
    FenceLost,
    Landed,
    Landing,
    Move,
    current_stage,
    lost,
    record,
    send_hint,
    tell,
)

CLAIM_OUTCOME_SQL = "SELECT outcome FROM submission_claims WHERE token = $1 AND job_id = $2"

RESTORE_CLAIM_SQL = """
INSERT INTO submission_claims (token, job_id, epoch, room, sent_to, outcome, ended_at)
SELECT $1, id, epoch, $3, '{}'::jsonb, 'restored', clock_timestamp() FROM jobs WHERE id = $2
ON CONFLICT DO NOTHING
"""

NOTE_SQL = """
INSERT INTO callback_evidence (job_id, claim_token, provider, provider_job_id, source)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
RETURNING id
"""

ORPHAN_SQL = """
INSERT INTO orphan_callbacks (job_id, claim_token, provider, provider_job_id, source)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
"""

OTHER_LIVE_CLAIM_SQL = """
SELECT EXISTS (SELECT 1 FROM submission_claims
    WHERE job_id = $1 AND token <> $2 AND outcome IS DISTINCT FROM 'released')
"""

UNEXAMINED_SQL = """
SELECT e.id, e.job_id, e.claim_token, e.provider_job_id, e.received_at, c.sent_to,
       CASE WHEN c.outcome = 'restored' THEN NULL ELSE c.claimed_at END AS claimed_at
FROM callback_evidence e JOIN submission_claims c ON c.token = e.claim_token
WHERE e.job_id = ANY ($1::uuid[]) AND e.examined_at IS NULL AND e.provider_job_id IS NOT NULL
ORDER BY e.id
"""

EXAMINED_SQL = """
UPDATE callback_evidence SET examined_at = clock_timestamp()
WHERE id = $1 AND examined_at IS NULL
"""

ADOPTED_CLAIM_SQL = """
UPDATE submission_claims SET provider_job_id = $2 WHERE token = $1 AND provider_job_id IS NULL
"""


class CallbackResult(StrEnum):
    """What became of one authentic delivery; the webhook counter's label."""

    recorded = "recorded"
    duplicate = "duplicate"
    terminal = "terminal"
    orphan = "orphan"


@dataclass(frozen=True)
class CallbackRecorded:
    """`result`, and whether an alarm is due: once per new (job, id), never for a duplicate."""

    result: CallbackResult
    paid_twice_suspected: bool = False
    refusal_contradicted: bool = False


@dataclass(frozen=True)
class Evidence:
    """One unexamined id. `claimed_at` is None where the claim row was made again later."""

    id: int
    job_id: UUID
    claim_token: UUID
    provider_job_id: str
    received_at: datetime
    claimed_at: datetime | None
    sent_to: dict[str, str]


@dataclass(frozen=True)
class Callback:
    """An authentic delivery: the job and claim its token names, the id its body names."""

    provider: str
    job_id: UUID
    claim_token: UUID
    provider_job_id: str | None


async def callback_recorded(
    database: Database, callback: Callback, *, floor: timedelta
) -> CallbackRecorded:
    """Stores one delivery and makes the check due, in one transaction.

    `floor`: the least distance between two checks that callbacks may cause.
    Raises Unavailable; the delivery is then not recorded.
    """
    return await _noted(database, callback, "webhook", floor)


async def evidence_noted(
    database: Database,
    job_id: UUID,
    claim_token: UUID,
    provider: str,
    provider_job_id: str,
    source: str,
) -> CallbackRecorded:
    """Stores an id that we read ourselves, with the same effects as a callback."""
    callback = Callback(provider, job_id, claim_token, provider_job_id)
    return await _noted(database, callback, source, timedelta(0))


async def _noted(
    database: Database, callback: Callback, source: str, floor: timedelta
) -> CallbackRecorded:
    told: list[tuple[Record, Move]] = []
    async with database.transaction() as connection:
        row = await connection.fetchrow(LOCK_SQL, callback.job_id)
        noted = (
            callback.job_id,
            callback.claim_token,
            callback.provider,
            callback.provider_job_id,
            source,
        )
        if row is None:
            await connection.execute(ORPHAN_SQL, *noted)
            return CallbackRecorded(CallbackResult.orphan)
        outcome = await _claim_outcome(connection, callback, database.room)
        is_new = await connection.fetchval(NOTE_SQL, *noted) is not None
        job = Job.from_row(row)
        if is_new:
            move = await _moved(connection, job, outcome, database.room, floor)
            if move is not None:
                told.append(move)
        elif not job.stage.is_terminal:
            await _hastened(connection, job, floor)
        contradicted = await _contradictions(connection, callback, job, outcome, is_new)
    for moved, move_told in told:
        tell(moved, move_told)
    return CallbackRecorded(_result(job, is_new), *contradicted)


def _result(job: Job, is_new: bool) -> CallbackResult:
    if job.stage.is_terminal:
        return CallbackResult.terminal
    return CallbackResult.recorded if is_new else CallbackResult.duplicate


async def _claim_outcome(
    connection: Connection, callback: Callback, room: str
) -> ClaimOutcome | None:
    """The claim's outcome; a claim that a restore took away is made again as `restored`."""
    known = await connection.fetchrow(CLAIM_OUTCOME_SQL, callback.claim_token, callback.job_id)
    if known is None:
        await connection.execute(RESTORE_CLAIM_SQL, callback.claim_token, callback.job_id, room)
        return ClaimOutcome.restored
    return None if known["outcome"] is None else ClaimOutcome(known["outcome"])


async def _moved(
    connection: Connection,
    job: Job,
    outcome: ClaimOutcome | None,
    room: str,
    floor: timedelta,
) -> tuple[Record, Move] | None:
    if job.stage is not Stage.unsubmitted:
        await _hastened(connection, job, floor)
        return None
    # Evidence for a job that nobody should have paid for: it must not be bought (again).
    event, reason = (
        (Event.submission_held, AttentionReason.restored_state)
        if outcome is ClaimOutcome.restored
        else (Event.release_contradicted, AttentionReason.release_contradicted)
    )
    (row,) = await connection.fetch(HOLD_SQL, job.id, reason.value)
    move = Move(event, room, hint=HintKind.check)
    await record(connection, row, move)
    return row, move


async def _hastened(connection: Connection, job: Job, floor: timedelta) -> None:
    if job.stage not in (Stage.accepted, Stage.review, Stage.unknown):
        return
    (row,) = await connection.fetch(HASTEN_CHECK_SQL, job.id, floor)
    if row["next_check_at"] != job.next_check_at:
        # A replay moves nothing, so it may not fill the outbox either.
        await send_hint(connection, job, HintKind.check, Event.check_hastened.value)


async def _contradictions(
    connection: Connection,
    callback: Callback,
    job: Job,
    outcome: ClaimOutcome | None,
    is_new: bool,
) -> tuple[bool, bool]:
    if not is_new:
        return False, False
    named = callback.provider_job_id
    second_id = named is not None and job.provider_job_id not in (None, named)
    refused = outcome in (ClaimOutcome.released, ClaimOutcome.refused)
    other_claim = refused and await connection.fetchval(
        OTHER_LIVE_CLAIM_SQL, job.id, callback.claim_token
    )
    return bool(second_id or other_claim), refused


async def unexamined_evidence(database: Database, job_ids: list[UUID]) -> list[Evidence]:
    """All unexamined ids of these jobs, oldest first."""
    async with database.connection() as connection:
        rows = await connection.fetch(UNEXAMINED_SQL, job_ids)
    return [Evidence(**dict(row)) for row in rows]


async def evidence_examined(database: Database, evidence: Evidence) -> None:
    """Marks one id as examined: the provider gave a proper answer, or its time is over."""
    async with database.transaction() as connection:
        await connection.execute(EXAMINED_SQL, evidence.id)


async def submission_adopted(
    database: Database, job: Job, lease_token: UUID, evidence: Evidence, handle: Handle
) -> Landing:
    """Moves an `unknown` row to `accepted` under an id that the provider just confirmed.

    The evidence counts as examined in the same transaction. FenceLost also where another row
    holds the id: then the evidence is examined too, and the caller raises the alarm.
    """
    move = Move(
        Event.submission_adopted,
        database.room,
        lease_token,
        hint=HintKind.check,
        detail={"evidence": evidence.id},
    )
    try:
        async with database.transaction() as connection:
            row = await connection.fetchrow(
                ADOPT_SQL,
                job.id,
                lease_token,
                evidence.claim_token,
                evidence.provider_job_id,
                handle.as_json(),
                evidence.claimed_at or evidence.received_at,
            )
            if row is not None:
                await connection.execute(EXAMINED_SQL, evidence.id)
                await connection.execute(
                    ADOPTED_CLAIM_SQL, evidence.claim_token, evidence.provider_job_id
                )
                await record(connection, row, move)
    except asyncpg.UniqueViolationError:
        await evidence_examined(database, evidence)
        row = None
    if row is None:
        lost(move.event)
        return FenceLost(await current_stage(database, job.id))
    tell(row, move)
    return Landed(Job.from_row(row))
