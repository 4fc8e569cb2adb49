"""Events of the gateway: a job is requested, a job is asked to stop.

`job_requested` writes the job, its input and its first hint in one transaction; the same key
with the same digest gives the first job again. Nothing here ever talks to Kafka or a provider.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from shared.domain.edges import Event
from shared.domain.hints import HintKind
from shared.domain.job import JOB_COLUMNS, Job
from shared.domain.stages import Stage
from shared.store.pool import Database
from shared.store.statements import CANCEL_SQL, CANCEL_STANDING_SQL, REQUEST_SQL
from shared.store.transitions.record import (
    FenceLost,
    Landed,
    Landing,
    Move,
    land_many,
    record,
    tell,
)

REVISION_SQL = """
INSERT INTO endpoint_revisions (revision, endpoint, spec) VALUES ($1, $2, $3::jsonb)
ON CONFLICT (revision) DO NOTHING
"""

INPUT_SQL = "INSERT INTO job_inputs (job_id, input, metadata) VALUES ($1, $2::json, $3::json)"

SAME_KEY_SQL = f"""
SELECT request_digest, {", ".join(JOB_COLUMNS)} FROM jobs
WHERE owner_id = $1 AND idempotency_key = $2
"""


@dataclass(frozen=True)
class JobRequest:
    """All that the gateway knows of a new job. `input_json` and `metadata_json` are JSON text."""

    id: UUID
    owner_id: str
    idempotency_key: str
    request_digest: bytes
    endpoint: str
    endpoint_revision: str
    endpoint_pinned: dict[str, Any]
    provider: str
    estimated_cost_usd: Decimal
    retention: str
    input_json: str
    metadata_json: str
    request_id: str | None
    traceparent: str | None


@dataclass(frozen=True)
class Requested:
    """A new job was recorded."""

    job: Job


@dataclass(frozen=True)
class Replayed:
    """The same request was recorded before; this is its job. It may be purged."""

    job: Job


@dataclass(frozen=True)
class KeyReused:
    """The key belongs to another request of this owner; nothing was written."""


async def job_requested(
    database: Database, request: JobRequest
) -> Requested | Replayed | KeyReused:
    """Records a job, its input, its audit row and its submit hint; all or nothing.

    Raises Unavailable for server trouble; the same key may then be sent again.
    """
    move = Move(Event.job_requested, f"owner:{request.owner_id}", hint=HintKind.submit)
    async with database.transaction() as connection:
        await connection.execute(
            REVISION_SQL, request.endpoint_revision, request.endpoint, request.endpoint_pinned
        )
        row = await connection.fetchrow(
            REQUEST_SQL,
            request.id,
            request.owner_id,
            request.idempotency_key,
            request.request_digest,
            request.endpoint,
            request.endpoint_revision,
            request.provider,
            request.estimated_cost_usd,
            request.retention,
            request.request_id,
            request.traceparent,
        )
        if row is not None:
            await connection.execute(
                INPUT_SQL, request.id, request.input_json, request.metadata_json
            )
            await record(connection, row, move)
    if row is not None:
        tell(row, move)
        return Requested(Job.from_row(row))
    return await _same_key(database, request)


async def _same_key(database: Database, request: JobRequest) -> Replayed | KeyReused:
    # A statement of its own: the refused INSERT's snapshot may be older than the rival's commit.
    async with database.connection() as connection:
        first = await connection.fetchrow(SAME_KEY_SQL, request.owner_id, request.idempotency_key)
    if first is None:
        raise AssertionError("a key that conflicts must have a row; jobs are never deleted")
    if first["request_digest"] != request.request_digest:
        return KeyReused()
    return Replayed(Job.from_row(first))


async def cancel_requested(database: Database, job_id: UUID, owner_id: str) -> Landing:
    """Cancels an unsubmitted job at once; in any other open stage leaves a standing request.

    A request that stands already lands again without a change. FenceLost(None) means that the
    owner has no such job, FenceLost(terminal stage) that it had ended.
    """
    async with database.transaction() as connection:
        row = await connection.fetchrow(CANCEL_SQL, job_id, owner_id)
        move = Move(Event.cancel_requested, f"owner:{owner_id}")
        if row is not None:
            if row["stage"] in (Stage.accepted, Stage.review):
                move = Move(Event.cancel_requested, f"owner:{owner_id}", hint=HintKind.check)
            await record(connection, row, move)
    if row is not None:
        tell(row, move)
        return Landed(Job.from_row(row))
    return await _cancel_refused(database, job_id, owner_id)


OWNED_SQL = f"SELECT {', '.join(JOB_COLUMNS)} FROM jobs WHERE id = $1 AND owner_id = $2"


async def _cancel_refused(database: Database, job_id: UUID, owner_id: str) -> Landing:
    async with database.connection() as connection:
        row = await connection.fetchrow(OWNED_SQL, job_id, owner_id)
    if row is None:
        return FenceLost(None)
    job = Job.from_row(row)
    if job.stage.is_terminal:
        return FenceLost(job.stage)
    return Landed(job)


async def standing_cancels_honoured(database: Database, *, batch: int) -> list[Job]:
    """Cancels unsubmitted rows whose request came while claims were stopped."""
    move = Move(Event.cancel_requested, database.room)
    return await land_many(database, CANCEL_STANDING_SQL, (batch,), move)


__all__ = [
    "JobRequest",
    "KeyReused",
    "Replayed",
    "Requested",
    "cancel_requested",
    "job_requested",
    "standing_cancels_honoured",
]
