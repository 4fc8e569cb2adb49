"""Reads: what the gateway shows, what sweeps look for, what the relay exports as gauges.

Every read of a caller's data takes the owner in its WHERE. None of these grows with the number
of terminal jobs, except where a page of them is asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from shared.domain.durations import TimeScale
from shared.domain.job import JOB_COLUMNS, Job
from shared.domain.registry import PinnedEndpoint
from shared.store.pool import Database

_JOB = ", ".join(JOB_COLUMNS)

OWN_JOB_SQL = f"""
SELECT {_JOB},
       (SELECT metadata FROM job_inputs WHERE job_inputs.job_id = jobs.id) AS metadata
FROM jobs WHERE id = $1 AND owner_id = $2
"""
FIRST_REQUEST_SQL = f"""
SELECT request_digest, {_JOB} FROM jobs WHERE owner_id = $1 AND idempotency_key = $2
"""
ANY_JOB_SQL = f"SELECT {_JOB} FROM jobs WHERE id = $1"
STORED_ARTIFACTS_SQL = """
SELECT name, media_type, bytes, sha256, key FROM job_artifacts
WHERE job_id = $1 AND stored_at IS NOT NULL ORDER BY name
"""
OWN_ARTIFACT_SQL = """
SELECT a.name, a.media_type, a.bytes, a.sha256, a.key, a.stored_at, j.purged_at
FROM job_artifacts a JOIN jobs j ON j.id = a.job_id
WHERE a.job_id = $1 AND a.name = $2 AND j.owner_id = $3 AND a.stored_at IS NOT NULL
"""
REVISION_SQL = "SELECT spec FROM endpoint_revisions WHERE revision = $1"
BUYABLE_ENDPOINTS_SQL = """
SELECT DISTINCT endpoint FROM jobs
WHERE stage = 'unsubmitted' AND NOT cancel_requested AND next_check_at <= clock_timestamp()
"""
TIMELINE_SQL = """
SELECT at, event, from_stage, to_stage, actor, detail FROM job_transitions
WHERE job_id = $1 ORDER BY seq
"""
LATEST_JOBS_SQL = f"""
SELECT {_JOB} FROM jobs
WHERE ($1::text IS NULL OR owner_id = $1) AND ($2::text IS NULL OR stage = $2)
ORDER BY created_at DESC, id DESC LIMIT $3
"""
CLAIMS_SQL = """
SELECT token, epoch, claimed_at, room, outcome, provider_job_id, reason, ended_at
FROM submission_claims WHERE job_id = $1 ORDER BY claimed_at
"""
OPEN_STAGES_SQL = """
SELECT stage, count(*) AS jobs,
       extract(epoch FROM clock_timestamp() - min(created_at))::double precision AS oldest_seconds,
       sum(estimated_cost_usd)::double precision AS estimated_usd
FROM jobs WHERE finished_at IS NULL GROUP BY stage
"""
SLACK_SQL = """
SELECT extract(epoch FROM min(slack))::double precision AS seconds,
       min(extract(epoch FROM slack) / span)::double precision AS ratio
FROM (
    SELECT CASE WHEN stage = 'capturing' THEN capture_deadline
               ELSE unfinished_since + make_interval(secs => span) END
               - clock_timestamp() AS slack, span
    FROM jobs JOIN (
        SELECT revision,
               (spec ->> 'retention_s')::double precision / $1::double precision AS span
        FROM endpoint_revisions
    ) AS terms ON terms.revision = jobs.endpoint_revision
    WHERE stage IN ('accepted', 'review', 'capturing')
) AS open_rows
"""
REVIEWED_UNDER_SQL = """
SELECT detail ->> 'rules' FROM job_transitions
WHERE job_id = $1 AND event = 'review_opened' ORDER BY seq DESC LIMIT 1
"""
EPOCHS_SQL = """
SELECT epoch, system_identifier, timeline, database_oid, raised_at, raised_by, reason
FROM submission_epoch ORDER BY epoch
"""
LIVE_EPOCH_SQL = "SELECT coatcheck_live_epoch()"


@dataclass(frozen=True)
class StoredArtifact:
    """One published artifact; `bytes` is its size, `sha256` hex, `key` never leaves us."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    key: str


@dataclass(frozen=True)
class OwnedJob:
    """A job with what the job resource also shows. `metadata_json` is None once purged."""

    job: Job
    metadata_json: str | None
    artifacts: tuple[StoredArtifact, ...]


@dataclass(frozen=True)
class FirstRequest:
    """The request that an idempotency key belongs to, and the job it made."""

    request_digest: bytes
    job: Job


@dataclass(frozen=True)
class TimelineEntry:
    """One audit row of a job."""

    at: datetime
    event: str
    from_stage: str | None
    to_stage: str
    actor: str
    detail: dict[str, Any]


@dataclass(frozen=True)
class StageFigures:
    """How many open jobs stand in a stage, the oldest's age, what they are estimated to cost."""

    stage: str
    jobs: int
    oldest_seconds: float
    estimated_usd: float


async def own_job(database: Database, job_id: UUID, owner_id: str) -> OwnedJob | None:
    """The owner's job with its published artifacts; None where there is none of theirs."""
    async with database.connection() as connection:
        row = await connection.fetchrow(OWN_JOB_SQL, job_id, owner_id)
        if row is None:
            return None
        job = Job.from_row(row)
        artifacts = (
            await connection.fetch(STORED_ARTIFACTS_SQL, job_id)
            if job.manifest_key is not None
            else []
        )
    return OwnedJob(job, row["metadata"], tuple(StoredArtifact(**dict(one)) for one in artifacts))


async def own_artifact(
    database: Database, job_id: UUID, name: str, owner_id: str
) -> tuple[StoredArtifact, bool] | None:
    """One published artifact of the owner's job, and whether the job was purged."""
    async with database.connection() as connection:
        row = await connection.fetchrow(OWN_ARTIFACT_SQL, job_id, name, owner_id)
    if row is None:
        return None
    fields = {key: row[key] for key in ("name", "media_type", "bytes", "sha256", "key")}
    return StoredArtifact(**fields), row["purged_at"] is not None


async def any_job(database: Database, job_id: UUID) -> Job | None:
    """A job whoever owns it; for rooms and operators, never for callers."""
    async with database.connection() as connection:
        row = await connection.fetchrow(ANY_JOB_SQL, job_id)
    return None if row is None else Job.from_row(row)


async def stored_artifacts(database: Database, job_id: UUID) -> list[StoredArtifact]:
    """All published artifacts of a job."""
    async with database.connection() as connection:
        rows = await connection.fetch(STORED_ARTIFACTS_SQL, job_id)
    return [StoredArtifact(**dict(row)) for row in rows]


async def pinned_endpoint(database: Database, revision: str) -> PinnedEndpoint:
    """The terms a job was bought under. A revision never changes, so callers may keep it."""
    async with database.connection() as connection:
        spec = await connection.fetchval(REVISION_SQL, revision)
    return PinnedEndpoint.model_validate(spec)


async def reviewed_under(database: Database, job_id: UUID) -> str | None:
    """The registry's rules that the job's last review was opened under, if they mattered."""
    async with database.connection() as connection:
        rules: str | None = await connection.fetchval(REVIEWED_UNDER_SQL, job_id)
    return rules


async def buyable_endpoints(database: Database) -> list[str]:
    """Endpoints with at least one due unsubmitted row."""
    async with database.connection() as connection:
        rows = await connection.fetch(BUYABLE_ENDPOINTS_SQL)
    return [row["endpoint"] for row in rows]


async def timeline(database: Database, job_id: UUID) -> list[TimelineEntry]:
    """The audit rows of a job in order."""
    async with database.connection() as connection:
        rows = await connection.fetch(TIMELINE_SQL, job_id)
    return [TimelineEntry(**dict(row)) for row in rows]


async def latest_jobs(
    database: Database, *, owner_id: str | None, stage: str | None, limit: int
) -> list[Job]:
    """The newest jobs, for operators."""
    async with database.connection() as connection:
        rows = await connection.fetch(LATEST_JOBS_SQL, owner_id, stage, limit)
    return [Job.from_row(row) for row in rows]


async def claims_of(database: Database, job_id: UUID) -> list[dict[str, Any]]:
    """All claims of a job, oldest first, for operators."""
    async with database.connection() as connection:
        rows = await connection.fetch(CLAIMS_SQL, job_id)
    return [dict(row) for row in rows]


async def open_stages(database: Database) -> Sequence[StageFigures]:
    """Figures of every stage that has open jobs."""
    async with database.connection() as connection:
        rows = await connection.fetch(OPEN_STAGES_SQL)
    return [StageFigures(**dict(row)) for row in rows]


async def least_slack(database: Database, scale: TimeScale) -> tuple[timedelta, float] | None:
    """Least time left before a result may be lost, and as a share of its retention.

    Retention stands in the revision as written, so it is scaled here. None without such rows.
    """
    async with database.connection() as connection:
        row = await connection.fetchrow(SLACK_SQL, scale.factor)
    if row is None or row["seconds"] is None:
        return None
    return timedelta(seconds=row["seconds"]), row["ratio"]


async def live_epoch(database: Database) -> int | None:
    """The raised epoch while this server is the one it was raised on, else None."""
    async with database.connection() as connection:
        value: int | None = await connection.fetchval(LIVE_EPOCH_SQL)
    return value


async def epochs(database: Database) -> list[dict[str, Any]]:
    """Every raise, oldest first, for operators."""
    async with database.connection() as connection:
        rows = await connection.fetch(EPOCHS_SQL)
    return [dict(row) for row in rows]


async def first_request(
    database: Database, owner_id: str, idempotency_key: str
) -> FirstRequest | None:
    """The owner's request under that key; None where the key is free."""
    async with database.connection() as connection:
        row = await connection.fetchrow(FIRST_REQUEST_SQL, owner_id, idempotency_key)
    return None if row is None else FirstRequest(row["request_digest"], Job.from_row(row))
