"""What stands in the bucket and in the rows after a capture."""

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from shared.domain.job import Job
from shared.media.objects import ObjectStore
from shared.store.queries import stored_artifacts
from shared.store.transitions import checks
from shared.store.transitions.capture import PreparedArtifact, prepared_artifacts
from tests.store import rows
from tests.system.watchers import SCALE, Scene


@dataclass(frozen=True)
class Found:
    """One published artifact as the bucket has it."""

    name: str
    media_type: str
    key: str
    sha256: str
    bytes: int


async def capturing(scene: Scene, job: Job, retention_s: float = 1800.0) -> Job:
    """The job as the reconciler hands it over."""
    leased = await rows.check_lease(scene.database, job)
    retention = timedelta(seconds=retention_s / SCALE)
    return rows.landed(
        await checks.completion_observed(
            scene.database, leased, retention=retention, link_life=timedelta(days=7)
        )
    )


async def published(scene: Scene, store: ObjectStore, job: Job) -> list[Found]:
    """The published artifacts; row and bucket must agree about each."""
    found = []
    for item in await stored_artifacts(scene.database, job.id):
        body = await read(store, item.key)
        digest = hashlib.sha256(body).hexdigest()
        assert (digest, len(body)) == (item.sha256, item.bytes)
        found.append(Found(item.name, item.media_type, item.key, digest, len(body)))
    return found


async def read(store: ObjectStore, key: str) -> bytes:
    """A whole object."""
    return b"".join([chunk async for chunk in store.open_range(key)])


async def keys(store: ObjectStore, prefix: str) -> set[str]:
    """All keys of a listing."""
    return {item.key async for item in store.list_prefix(prefix)}


async def manifest_of(store: ObjectStore, job: Job) -> dict[str, Any]:
    """The manifest that the row names."""
    assert job.manifest_key is not None
    manifest: dict[str, Any] = json.loads(await read(store, job.manifest_key))
    return manifest


async def prepared(scene: Scene, job: Job) -> list[PreparedArtifact]:
    """Everything that any lease prepared."""
    return await prepared_artifacts(scene.database, job.id)
