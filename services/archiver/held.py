"""What earlier leases of a job prepared, looked at before anything is fetched again.

Owns the second half of a copy that another lease began. Promises that what is whole and equal is
adopted, that an upload still open is completed, that an object unlike what its row says is set
aside with an alarm, and that nothing is given up: an upload that can neither be completed nor
proven gone stays open and is reported. Must never delete an object.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from shared.domain.errors import Unavailable
from shared.domain.job import Job
from shared.kit.logs import get_logger
from shared.media.capture import PreparedObject, complete_prepared
from shared.media.layout import ObjectState, PartLayout
from shared.media.objects import ObjectStore
from shared.store.pool import Database
from shared.store.transitions.capture import PreparedArtifact, prepared_artifacts

RESULTS = "results/"
QUARANTINE = "quarantine/"

_log = get_logger()


@dataclass(frozen=True)
class HeldArtifact:
    """An artifact that stands in the bucket, equal to its row. `seconds`: its transfer's."""

    name: str
    lease_token: UUID
    media_type: str
    bytes: int
    sha256: str
    key: str
    is_adopted: bool
    seconds: float


@dataclass
class Held:
    """`artifacts` by name. `has_open`: some upload's end is not known."""

    artifacts: dict[str, HeldArtifact] = field(default_factory=dict)
    unequal_keys: set[str] = field(default_factory=set)
    has_open: bool = False


async def look_back(database: Database, store: ObjectStore, job: Job) -> Held:
    """What is held already, newest lease first. Raises Unavailable without database or store."""
    held = Held()
    for row in await prepared_artifacts(database, job.id):
        if row.name in held.artifacts:
            if row.upload_id is not None:
                await store.abort_multipart(row.key, row.upload_id)
            continue
        match await _completed(store, row, held):
            case ObjectState.equal:
                held.artifacts[row.name] = _adopted(row)
            case ObjectState.unequal:
                held.unequal_keys.add(row.key)
                await _set_aside(store, row)
            case ObjectState.absent:
                pass
    return held


async def holds_nothing_else(store: ObjectStore, job: Job, held: Held) -> bool:
    """Whether a listing of the job's results shows nothing that could still be a result."""
    if held.has_open:
        return False
    async for listed in store.list_prefix(f"{RESULTS}{job.id}/"):
        is_manifest = listed.key.startswith(f"{RESULTS}{job.id}/manifest.")
        if not is_manifest and listed.key not in held.unequal_keys:
            return False
    return True


async def _completed(store: ObjectStore, row: PreparedArtifact, held: Held) -> ObjectState:
    prepared = _prepared(row)
    try:
        return await complete_prepared(store, prepared)
    except Unavailable:
        # Perhaps the store refuses these parts for good. What is there decides; where nothing
        # is, the upload stays as it is: its parts may be all that is left of a paid result.
        state = await store.verify(prepared.key, prepared.expected)
    held.has_open |= state is ObjectState.absent
    return state


async def _set_aside(store: ObjectStore, row: PreparedArtifact) -> None:
    target = QUARANTINE + row.key.removeprefix(RESULTS)
    if await store.head(target) is None:
        _log.error("stored_object_differs", job_id=row.job_id, artifact=row.name)
        await store.copy(row.key, target)


def _prepared(row: PreparedArtifact) -> PreparedObject:
    layout: Mapping[str, object] | None = row.part_layout
    return PreparedObject(
        artifact=row.name,
        key=row.key,
        media_type=row.media_type,
        bytes=row.bytes,
        sha256=row.sha256,
        upload_id=row.upload_id,
        part_layout=None if layout is None else PartLayout.from_json(layout),
    )


def _adopted(row: PreparedArtifact) -> HeldArtifact:
    return HeldArtifact(
        name=row.name,
        lease_token=row.lease_token,
        media_type=row.media_type,
        bytes=row.bytes,
        sha256=row.sha256,
        key=row.key,
        is_adopted=True,
        seconds=0.0,
    )
