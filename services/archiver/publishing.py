"""The end of a capture: the manifest, then the one publish that makes the job succeed.

Owns what stands in a manifest and what a stored result tells the metrics. Promises that the
manifest is in the bucket before the row names it, and that all artifacts become visible in one
fenced write or none does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from services.archiver.held import RESULTS, HeldArtifact
from shared.domain.job import Job
from shared.domain.provider import StatusReading
from shared.kit import telemetry
from shared.media.objects import ObjectStore
from shared.store.pool import Database
from shared.store.queries import own_job
from shared.store.transitions.capture import result_stored
from shared.store.transitions.record import Landed, Landing

MANIFEST_VERSION = 1


@dataclass(frozen=True)
class Publication:
    """Everything that is published of a job. `reading`: the answer it was copied by, if any."""

    job: Job
    artifacts: Sequence[HeldArtifact]
    reading: StatusReading | None
    cost_usd: Decimal | None
    lifetime: timedelta | None

    @property
    def manifest_key(self) -> str:
        """A key of this lease alone, like those of the artifacts."""
        return f"{RESULTS}{self.job.id}/manifest.{self.job.lease_token}.json"


async def write_manifest(database: Database, store: ObjectStore, publication: Publication) -> None:
    """Puts the manifest beside the artifacts. Raises Unavailable."""
    job = publication.job
    owned = await own_job(database, job.id, job.owner_id)
    metadata = None if owned is None or owned.metadata_json is None else owned.metadata_json
    body = manifest(publication, None if metadata is None else json.loads(metadata))
    text = json.dumps(body, separators=(",", ":"))  # ASCII: a caller's text may be half a character
    await store.put_small(publication.manifest_key, text.encode(), "application/json")


async def publish(database: Database, publication: Publication) -> Landing:
    """The one fenced write, under the lease. Raises Unavailable; then nobody knows."""
    landing = await result_stored(
        database,
        publication.job,
        manifest_key=publication.manifest_key,
        artifacts=[(item.name, item.lease_token) for item in publication.artifacts],
        lifetime=publication.lifetime,
        cost_usd=publication.cost_usd,
    )
    if isinstance(landing, Landed):
        _count(publication)
    return landing


def manifest(publication: Publication, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the manifest says: request, sizes, digests, seconds; no URL and nothing secret."""
    job, reading = publication.job, publication.reading
    return {
        "manifest_version": MANIFEST_VERSION,
        "job_id": str(job.id),
        "owner_id": job.owner_id,
        "endpoint": job.endpoint,
        "endpoint_revision": job.endpoint_revision,
        "provider": job.provider,
        "provider_job_id": job.provider_job_id,
        "retention": job.retention,
        "metadata": metadata,
        "created_at": _moment(job.created_at),
        "accepted_at": _moment(job.accepted_at),
        "written_at": _moment(datetime.now(UTC)),
        "seconds": {
            "queue": None if reading is None else reading.queue_seconds,
            "render": None if reading is None else reading.execution_seconds,
            "transfer": sum(item.seconds for item in publication.artifacts),
        },
        "artifacts": [
            {
                "name": item.name,
                "key": item.key,
                "media_type": item.media_type,
                "bytes": item.bytes,
                "sha256": item.sha256,
            }
            for item in publication.artifacts
        ],
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _count(publication: Publication) -> None:
    fresh = [item for item in publication.artifacts if not item.is_adopted]
    result = "stored" if fresh or not publication.artifacts else "adopted"
    telemetry.capture_attempts.labels(result).inc()
    telemetry.capture_stored_bytes.inc(sum(item.bytes for item in publication.artifacts))
    if fresh:
        telemetry.transfer_seconds.observe(sum(item.seconds for item in fresh))
