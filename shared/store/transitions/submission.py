"""Events around the one paid call: claimed, accepted, released, refused, uncertain, expired.

A claim is the only permission to send a create call and is never given twice. Everything after
it is fenced by stage and claim token. A claim whose COMMIT is unclear raises Uncertain and must
never lead to a call.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg

from shared.domain.edges import Event
from shared.domain.hints import HintKind
from shared.domain.job import Job
from shared.domain.provider import Handle
from shared.domain.stages import AttentionReason, ClaimOutcome
from shared.kit import telemetry
from shared.kit.logs import get_logger
from shared.store.pool import Database
from shared.store.statements import (
    ACCEPT_SQL,
    CLAIM_SQL,
    EXPIRE_SQL,
    LOCK_SQL,
    NEVER_SUBMITTED_SQL,
    REFUSE_SQL,
    RELEASE_SQL,
    UNKNOWN_SQL,
)
from shared.store.transitions.evidence import evidence_noted
from shared.store.transitions.record import (
    FenceLost,
    Landed,
    Landing,
    Move,
    current_stage,
    land_many,
    lost,
    record,
    tell,
)

_log = get_logger()

SLOT_SQL = "INSERT INTO endpoint_slots (endpoint) VALUES ($1) ON CONFLICT DO NOTHING"
LOCK_SLOT_SQL = "SELECT endpoint FROM endpoint_slots WHERE endpoint = $1 FOR UPDATE"

# $2: how long a row may count, from its claim on (without one: from when it was held).
IN_FLIGHT_SQL = """
SELECT count(*) FROM jobs
WHERE endpoint = $1 AND stage IN ('submitting', 'accepted', 'unknown', 'review')
  AND NOT (stage = 'unknown' AND resubmitted_as IS NOT NULL)
  AND clock_timestamp() < coalesce(claimed_at, attention_since) + $2::interval
"""

END_CLAIM_SQL = """
UPDATE submission_claims
SET outcome = $2, provider_job_id = coalesce($3, provider_job_id), reason = $4,
    ended_at = clock_timestamp()
WHERE token = $1 AND outcome IS NULL
"""

ACCEPTED_BEFORE_SQL = """
SELECT 1 FROM submission_claims
WHERE token = $1 AND outcome = 'accepted' AND provider_job_id = $2
"""

EVIDENCE_SQL = """
INSERT INTO callback_evidence (job_id, claim_token, provider, provider_job_id, source)
SELECT job_id, token, $2, $3, $4 FROM submission_claims WHERE token = $1
ON CONFLICT DO NOTHING
"""

HAS_EVIDENCE_SQL = "SELECT EXISTS (SELECT 1 FROM callback_evidence WHERE job_id = $1)"


@dataclass(frozen=True)
class ClaimTerms:
    """Under which limits an endpoint's jobs are claimed. `counts_for`: ttl + retention."""

    endpoint: str
    max_in_flight: int
    counts_for: timedelta
    claim_life: timedelta
    sent_to: Mapping[str, str]


@dataclass(frozen=True)
class Claim:
    """One permission to call. `input_json` is the caller's JSON text; `begun_at_boottime` is
    CLOCK_BOOTTIME in seconds, read before BEGIN was sent (the ten seconds count from there)."""

    job: Job
    token: UUID
    input_json: str
    begun_at_boottime: float


async def submission_claimed(
    database: Database,
    terms: ClaimTerms,
    *,
    batch: int,
    job_ids: Sequence[UUID] | None = None,
) -> list[Claim]:
    """Claims up to `batch` due rows of one endpoint, or of the named ones among them.

    Locks the endpoint's slot row first and counts in a second statement, for a count in the
    locking statement would use the snapshot from before the wait. Raises Uncertain when the
    COMMIT is unclear (its rows then expire to `unknown`), Unavailable when nothing was written.
    """
    begun_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    move = Move(Event.submission_claimed, database.room)
    async with database.durable_transaction() as connection:
        if await connection.fetchval(LOCK_SLOT_SQL, terms.endpoint) is None:
            await connection.execute(SLOT_SQL, terms.endpoint)
            await connection.fetchval(LOCK_SLOT_SQL, terms.endpoint)
        busy = await connection.fetchval(IN_FLIGHT_SQL, terms.endpoint, terms.counts_for)
        free = min(batch, terms.max_in_flight - busy)
        if free <= 0:
            return []
        rows = await connection.fetch(
            CLAIM_SQL,
            terms.endpoint,
            free,
            [uuid4() for _ in range(free)],
            None if job_ids is None else list(job_ids),
            terms.claim_life,
            database.room,
            dict(terms.sent_to),
        )
        for row in rows:
            await record(connection, row, _with_token(move, row["claim_token"]))
    for row in rows:
        tell(row, move)
    return [Claim(Job.from_row(row), row["claim_token"], row["input"], begun_at) for row in rows]


def _with_token(move: Move, token: UUID) -> Move:
    return Move(move.event, move.actor, token, move.hint, move.detail)


async def submission_accepted(
    database: Database, claim: Claim, handle: Handle, *, first_check: timedelta
) -> Landing:
    """Writes the provider's id. Landed also when an earlier try of the same accept had landed.

    FenceLost: the id is now evidence of its claim and the row heals through adoption.
    Raises Unavailable; the caller writes again until the claim's life is over.
    """
    move = Move(Event.submission_accepted, database.room, claim.token)
    arguments = (claim.job.id, claim.token, handle.provider_job_id, handle.as_json(), first_check)
    try:
        async with database.transaction() as connection:
            row = await connection.fetchrow(ACCEPT_SQL, *arguments)
            if row is not None:
                await connection.execute(
                    END_CLAIM_SQL,
                    claim.token,
                    ClaimOutcome.accepted.value,
                    handle.provider_job_id,
                    None,
                )
                await record(connection, row, move)
    except asyncpg.UniqueViolationError:
        # Another row holds this id: our row must not claim it, and a person must look.
        await submission_uncertain(
            database, claim, reason="provider_id_taken", evidence_id=handle.provider_job_id
        )
        return FenceLost(await current_stage(database, claim.job.id))
    if row is not None:
        tell(row, move)
        return Landed(Job.from_row(row))
    return await _accept_lost(database, claim, handle)


async def _accept_lost(database: Database, claim: Claim, handle: Handle) -> Landing:
    async with database.connection() as connection:
        if await connection.fetchval(ACCEPTED_BEFORE_SQL, claim.token, handle.provider_job_id):
            row = await connection.fetchrow(LOCK_SQL, claim.job.id)
            return Landed(Job.from_row(row))
    lost(Event.submission_accepted)
    await evidence_kept(database, claim, handle.provider_job_id)
    return FenceLost(await current_stage(database, claim.job.id))


async def evidence_kept(database: Database, claim: Claim, provider_job_id: str) -> None:
    """Stores an id we read ourselves as evidence of its claim and makes an `unknown` row due.

    A second id for the job raises the alarm, once (E4).
    """
    noted = await evidence_noted(
        database, claim.job.id, claim.token, claim.job.provider, provider_job_id, "submitter"
    )
    if noted.paid_twice_suspected:
        telemetry.paid_twice_suspected.inc()
        _log.error("paid_twice_suspected", job_id=claim.job.id, provider_job_id=provider_job_id)


async def submission_released(
    database: Database, claim: Claim, *, reason: str, again_after: timedelta
) -> Landing:
    """Gives the claim back where it is proven that no job was created.

    With evidence for any claim of the job it goes to `unknown` instead (release_contradicted).
    """
    return await _given_back(database, claim, reason, again_after)


async def submission_refused(database: Database, claim: Claim, *, reason: str) -> Landing:
    """Ends the job where the provider proved that it never will take it."""
    return await _given_back(database, claim, reason, None)


async def _given_back(
    database: Database, claim: Claim, reason: str, again_after: timedelta | None
) -> Landing:
    event, outcome = (
        (Event.submission_refused, ClaimOutcome.refused)
        if again_after is None
        else (Event.submission_released, ClaimOutcome.released)
    )
    last: tuple[object, ...]
    async with database.transaction() as connection:
        # Row first, then evidence in a second statement: a callback locks in the same order.
        await connection.fetchrow(LOCK_SQL, claim.job.id)
        if await connection.fetchval(HAS_EVIDENCE_SQL, claim.job.id):
            event = Event.release_contradicted
            statement, last = UNKNOWN_SQL, (AttentionReason.release_contradicted.value,)
        elif again_after is None:
            statement, last = REFUSE_SQL, ()
        else:
            statement, last = RELEASE_SQL, (again_after,)
        row = await connection.fetchrow(statement, claim.job.id, claim.token, *last)
        move = Move(event, database.room, claim.token, detail={"reason": reason})
        if row is not None:
            await connection.execute(END_CLAIM_SQL, claim.token, outcome.value, None, reason)
            await record(connection, row, move)
    if row is None:
        lost(event)
        return FenceLost(await current_stage(database, claim.job.id))
    tell(row, move)
    return Landed(Job.from_row(row))


async def submission_uncertain(
    database: Database, claim: Claim, *, reason: str, evidence_id: str | None = None
) -> Landing:
    """Writes that the call's outcome is not known. `evidence_id`: an id the answer named."""
    move = Move(
        Event.submission_uncertain,
        database.room,
        claim.token,
        hint=HintKind.check if evidence_id else None,
        detail={"reason": reason},
    )
    async with database.transaction() as connection:
        await connection.fetchrow(LOCK_SQL, claim.job.id)
        if evidence_id is not None:
            await connection.execute(
                EVIDENCE_SQL, claim.token, claim.job.provider, evidence_id, "submitter"
            )
        row = await connection.fetchrow(
            UNKNOWN_SQL,
            claim.job.id,
            claim.token,
            AttentionReason.submission_outcome_unknown.value,
        )
        if row is not None:
            await connection.execute(
                END_CLAIM_SQL, claim.token, ClaimOutcome.uncertain.value, None, reason
            )
            await record(connection, row, move)
    if row is None:
        lost(move.event)
        return FenceLost(await current_stage(database, claim.job.id))
    tell(row, move)
    return Landed(Job.from_row(row))


EXPIRED_CLAIMS_SQL = """
UPDATE submission_claims SET outcome = 'expired', ended_at = clock_timestamp()
WHERE token = ANY ($1::uuid[]) AND outcome IS NULL
"""


async def submission_claims_expired(
    database: Database, *, claim_life: timedelta, batch: int
) -> list[Job]:
    """Moves rows whose claim outlived its life to `unknown`; never back to `unsubmitted`."""
    move = Move(Event.submission_claim_expired, database.room)
    async with database.transaction() as connection:
        rows = await connection.fetch(EXPIRE_SQL, claim_life, batch)
        await connection.execute(EXPIRED_CLAIMS_SQL, [row["claim_token"] for row in rows])
        for row in rows:
            await record(connection, row, _with_token(move, row["claim_token"]))
    for row in rows:
        tell(row, move)
    return [Job.from_row(row) for row in rows]


async def never_submitted(
    database: Database, endpoint: str, *, within: timedelta, batch: int
) -> list[Job]:
    """Fails rows of one endpoint that waited longer than `within`; nothing was paid."""
    move = Move(Event.never_submitted, database.room)
    return await land_many(database, NEVER_SUBMITTED_SQL, (endpoint, within, batch), move)


__all__ = [
    "Claim",
    "ClaimTerms",
    "evidence_kept",
    "never_submitted",
    "submission_accepted",
    "submission_claimed",
    "submission_claims_expired",
    "submission_refused",
    "submission_released",
    "submission_uncertain",
]
