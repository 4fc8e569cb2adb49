"""What every transition has in common: audit row, outbox rows, log line, outcome.

`land` runs one guarded statement and, when it hit a row, writes the audit row, the record for
the transitions topic and the work hint in the same transaction. It promises that the log line
is written only after the commit, and that a lost fence is reported with the stage that a second
statement saw (the first one's snapshot may be older than the rival's commit).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from shared.domain.edges import Event
from shared.domain.hints import HintKind
from shared.domain.job import Job
from shared.domain.stages import Stage
from shared.kit import logs, telemetry
from shared.store.pool import Connection, Database, Record

RECORD_SQL = """
WITH announced AS (
    INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, traceparent)
    VALUES ($1, 'transitions', $2, $3, $4::jsonb, $5)
), hinted AS (
    INSERT INTO outbox (aggregatetype, aggregateid, type, payload, traceparent)
    SELECT $6, $2, $3, $7::jsonb, $5 WHERE $6::text IS NOT NULL
)
INSERT INTO job_transitions
    (job_id, event, from_stage, to_stage, actor, token, outbox_id, detail)
VALUES ($2, $3, $8, $9, $10, $11, $1, $12::jsonb)
"""

HINT_SQL = """
INSERT INTO outbox (aggregatetype, aggregateid, type, payload, traceparent)
VALUES ($1, $2, $3, $4::jsonb, $5)
"""

STAGE_SQL = "SELECT stage FROM jobs WHERE id = $1"


@dataclass(frozen=True)
class Landed:
    """The write hit its row; `job` is the row as written."""

    job: Job


@dataclass(frozen=True)
class FenceLost:
    """The write changed nothing. `current` is the stage seen afterwards; None: no such row."""

    current: Stage | None


Landing = Landed | FenceLost


@dataclass(frozen=True)
class Move:
    """How one change of a row is to be told: to the audit, the topic, the log."""

    event: Event
    actor: str
    token: UUID | None = None
    hint: HintKind | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


async def record(connection: Connection, row: Record, move: Move) -> None:
    """Writes audit and outbox rows for one changed row, inside the caller's transaction."""
    job = Job.from_row(row)
    outbox_id = uuid7()
    announced = {
        "job_id": str(job.id),
        "outbox_id": str(outbox_id),
        "from": row["from_stage"],
        "to": job.stage.value,
        "event": move.event.value,
        "actor": move.actor,
        "endpoint": job.endpoint,
        "provider": job.provider,
        "provider_job_id": job.provider_job_id,
        "claim_token": None if job.claim_token is None else str(job.claim_token),
        "version": job.public_version,
    }
    await connection.execute(
        RECORD_SQL,
        outbox_id,
        job.id,
        move.event.value,
        announced,
        job.traceparent,
        None if move.hint is None else move.hint.value,
        hint_body(job, move.event.value),
        row["from_stage"],
        job.stage.value,
        move.actor,
        move.token,
        dict(move.detail),
    )


def hint_body(job: Job, reason: str) -> dict[str, Any]:
    """The body of a hint about this job."""
    return {"job_id": str(job.id), "reason": reason, "version": job.public_version}


async def send_hint(connection: Connection, job: Job, kind: HintKind, reason: str) -> None:
    """Puts a bare hint into the outbox, where no public field changed."""
    await connection.execute(
        HINT_SQL, kind.value, job.id, reason, hint_body(job, reason), job.traceparent
    )


def tell(row: Record, move: Move) -> None:
    """Logs one committed transition. Never call it before the commit."""
    job = Job.from_row(row)
    logs.log_transition(
        job_id=str(job.id),
        owner_id=job.owner_id,
        endpoint=job.endpoint,
        provider=job.provider,
        model=(job.provider_handle or {}).get("endpoint_id"),
        provider_job_id=job.provider_job_id,
        event=move.event.value,
        from_stage=row["from_stage"],
        to_stage=job.stage.value,
        actor=move.actor,
        request_id=job.request_id,
        trace_id=_trace_id(job.traceparent),
    )
    if job.stage.is_terminal and row["from_stage"] != job.stage.value:
        telemetry.jobs_finished.labels(
            endpoint=job.endpoint, status=job.stage.value, code=job.error_code or telemetry.NO_CODE
        ).inc()
        if job.finished_at is not None:
            lasted = job.finished_at - job.created_at
            telemetry.job_wall_seconds.observe(lasted.total_seconds())
        if job.settled_cost_usd is not None:
            telemetry.cost_usd.labels(endpoint=job.endpoint).inc(float(job.settled_cost_usd))


def _trace_id(traceparent: str | None) -> str | None:
    parts = (traceparent or "").split("-")
    return parts[1] if len(parts) == 4 else None


def lost(event: Event) -> None:
    """Counts a write that a fence refused."""
    telemetry.fence_rejected.labels(event=event.value).inc()


async def land(database: Database, statement: str, arguments: Sequence[Any], move: Move) -> Landing:
    """Runs one guarded statement on one job; `arguments[0]` is the job's id.

    Audit and outbox rows are written only when the public version moved.
    Raises Unavailable for server trouble; then it may or may not have landed.
    """
    async with database.transaction() as connection:
        row = await connection.fetchrow(statement, *arguments)
        if row is not None and row["public_version"] != row["from_version"]:
            await record(connection, row, move)
    if row is None:
        lost(move.event)
        return FenceLost(await current_stage(database, arguments[0]))
    if row["public_version"] != row["from_version"]:
        tell(row, move)
    return Landed(Job.from_row(row))


async def land_many(
    database: Database, statement: str, arguments: Sequence[Any], move: Move
) -> list[Job]:
    """Runs one statement that finds its own rows; returns those it moved."""
    async with database.transaction() as connection:
        rows = await connection.fetch(statement, *arguments)
        for row in rows:
            if row["public_version"] != row["from_version"]:
                await record(connection, row, move)
    for row in rows:
        if row["public_version"] != row["from_version"]:
            tell(row, move)
    return [Job.from_row(row) for row in rows]


async def lease_many(database: Database, statement: str, arguments: Sequence[Any]) -> list[Job]:
    """Runs one statement that leases rows of its own finding; nothing of it is told.

    A transaction of its own around one statement would only cost two round trips a sweep.
    """
    async with database.connection() as connection:
        rows = await connection.fetch(statement, *arguments)
    return [Job.from_row(row) for row in rows]


async def current_stage(database: Database, job_id: UUID) -> Stage | None:
    """The stage as a fresh statement sees it."""
    async with database.connection() as connection:
        value = await connection.fetchval(STAGE_SQL, job_id)
    return None if value is None else Stage(value)
