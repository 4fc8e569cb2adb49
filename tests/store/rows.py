"""Brings a job into any stage by the real transitions, for tests to start from."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from uuid_utils.compat import uuid7

from shared.domain.job import Job
from shared.domain.provider import Handle
from shared.domain.stages import AttentionReason, ErrorCode, Stage
from shared.store.pool import Database
from shared.store.queries import any_job
from shared.store.transitions import admission, capture, checks, submission
from shared.store.transitions.capture import NewArtifact
from shared.store.transitions.record import FenceLost, Landed, Landing
from shared.store.transitions.submission import Claim, ClaimTerms

OWNER = "owner-1"
ENDPOINT = "demo-video"
SHA256 = "ab" * 32
NOW = timedelta(0)
HOUR = timedelta(hours=1)
PINNED: dict[str, Any] = {
    "name": ENDPOINT,
    "provider": "runpod",
    "endpoint_id": "demo",
    "execution_timeout_s": 600.0,
    "ttl_s": 3600.0,
    "retention_s": 1800.0,
    "link_life_s": 604800.0,
    "submit_within_s": 3600.0,
    "max_in_flight": 50,
    "estimated_cost_usd": "0.0500",
    "cost": None,
    "poll": {"first_s": 2.0, "min_s": 2.0, "max_s": 60.0},
    "artifacts": [{"name": "master", "path": "$.video_url", "required": True, "kind": "auto"}],
}


def request(key: str | None = None, **changes: Any) -> admission.JobRequest:
    """A request of the usual owner at the usual endpoint; the key is fresh unless given."""
    values: dict[str, Any] = {
        "id": uuid7(),
        "owner_id": OWNER,
        "idempotency_key": key or f"key-{uuid4()}",
        "request_digest": b"\x01" * 32,
        "endpoint": ENDPOINT,
        "endpoint_revision": "revision-1",
        "endpoint_pinned": PINNED,
        "provider": "runpod",
        "estimated_cost_usd": Decimal("0.0500"),
        "retention": "preview",
        "input_json": '{"prompt":"a lake"}',
        "metadata_json": "{}",
        "request_id": "request-1",
        "traceparent": None,
    }
    return admission.JobRequest(**{**values, **changes})


def terms(max_in_flight: int = 50, life: timedelta = HOUR) -> ClaimTerms:
    """The usual limits of a claim."""
    sent_to = {"base_url": "http://provider.test/v2", "endpoint_id": "demo"}
    return ClaimTerms(ENDPOINT, max_in_flight, HOUR, life, sent_to)


def handle(provider_job_id: str | None = None) -> Handle:
    """A handle with a fresh provider id unless given."""
    return Handle("http://provider.test/v2", "demo", provider_job_id or f"{uuid4()}-u1")


def landed(landing: Landing) -> Job:
    """The job of a landing that must have landed."""
    assert isinstance(landing, Landed), landing
    return landing.job


def assert_lost(landing: Landing, current: Stage | None) -> None:
    """The fence must have been lost, with this stage seen afterwards."""
    assert landing == FenceLost(current)


async def requested(database: Database, **changes: Any) -> Job:
    """A new unsubmitted job."""
    result = await admission.job_requested(database, request(**changes))
    assert isinstance(result, admission.Requested)
    return result.job


async def claimed(database: Database, job: Job | None = None) -> Claim:
    """A claim on that job, or on a new one."""
    job = job or await requested(database)
    (claim,) = await submission.submission_claimed(database, terms(), batch=1, job_ids=[job.id])
    return claim


async def accepted(database: Database, provider_job_id: str | None = None) -> Job:
    """An accepted job whose first check is due at once."""
    claim = await claimed(database)
    return landed(
        await submission.submission_accepted(
            database, claim, handle(provider_job_id), first_check=NOW
        )
    )


async def check_lease(database: Database, job: Job, life: timedelta = HOUR) -> Job:
    """The job under a check lease."""
    (leased,) = await checks.check_leased(
        database, holder="test", life=life, batch=1, job_ids=[job.id]
    )
    return leased


async def unknown(database: Database) -> tuple[Job, Claim]:
    """A job whose submission is uncertain, and the claim it was sent under."""
    claim = await claimed(database)
    job = landed(await submission.submission_uncertain(database, claim, reason="cut"))
    return job, claim


async def capturing(database: Database) -> Job:
    """A job whose provider finished."""
    leased = await check_lease(database, await accepted(database))
    return landed(
        await checks.completion_observed(database, leased, retention=HOUR, link_life=HOUR)
    )


async def capture_lease(database: Database, job: Job, life: timedelta = HOUR) -> Job:
    """The job under a capture lease."""
    (leased,) = await capture.capture_leased(
        database, holder="test", life=life, batch=1, job_ids=[job.id]
    )
    return leased


def artifact(job: Job, name: str = "master") -> NewArtifact:
    """A prepared artifact of the job's present lease."""
    key = f"results/{job.id}/{name}.{job.lease_token}.mp4"
    return NewArtifact(name, "video/mp4", 1000, SHA256, key, None, None)


async def prepared(database: Database) -> Job:
    """A leased capture with its one artifact prepared."""
    leased = await capture_lease(database, await capturing(database))
    landed(await capture.capture_prepared(database, leased, artifact(leased)))
    return leased


def lease_of(job: Job) -> UUID:
    """The token the job is leased under."""
    assert job.lease_token is not None
    return job.lease_token


async def publish(database: Database, job: Job) -> Landing:
    """Publishes the one artifact under the job's lease."""
    return await capture.result_stored(
        database,
        job,
        manifest_key=f"results/{job.id}/manifest.{job.lease_token}.json",
        artifacts=[("master", lease_of(job))],
        lifetime=timedelta(days=7),
    )


@dataclass(frozen=True)
class Placed:
    """A job in a stage, with whatever was held on the way there."""

    job: Job
    claim: Claim | None = None


async def placed(database: Database, stage: Stage) -> Placed:
    """A job in that stage, by the shortest real way."""
    match stage:
        case Stage.unsubmitted:
            return Placed(await requested(database))
        case Stage.submitting:
            claim = await claimed(database)
            return Placed(claim.job, claim)
        case Stage.unknown:
            return Placed(*(await unknown(database)))
        case Stage.accepted:
            return Placed(await accepted(database))
        case Stage.capturing:
            return Placed(await capturing(database))
        case Stage.review:
            leased = await check_lease(database, await accepted(database))
            reason = AttentionReason.provider_job_gone
            return Placed(
                landed(await checks.review_opened(database, leased, reason=reason, delay=NOW))
            )
        case Stage.succeeded:
            return Placed(landed(await publish(database, await prepared(database))))
        case Stage.failed:
            leased = await check_lease(database, await accepted(database))
            code = ErrorCode.provider_failed
            return Placed(landed(await checks.failure_observed(database, leased, code=code)))
        case Stage.cancelled:
            job = await requested(database)
            return Placed(landed(await admission.cancel_requested(database, job.id, OWNER)))


async def now(database: Database, job: Job) -> Job:
    """The row as it is now."""
    found = await any_job(database, job.id)
    assert found is not None
    return found
