"""Events of the archiver: leases, prepared artifacts, and the one publish.

The row decides which keys count. An artifact is written into the row before its upload is
completed in the bucket, and `result_stored` publishes all artifacts in one statement or none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from shared.domain.edges import Event
from shared.domain.job import Job
from shared.domain.provider import ProviderState
from shared.domain.stages import ErrorCode
from shared.store.pool import Database
from shared.store.statements import (
    EXTEND_CAPTURE_SQL,
    LEASE_CAPTURES_SQL,
    PREPARE_SQL,
    REFUSE_RESULT_SQL,
    RESCHEDULE_CAPTURE_SQL,
    STORE_SQL,
)
from shared.store.transitions.record import (
    FenceLost,
    Landed,
    Landing,
    Move,
    current_stage,
    land,
    lease_many,
    lost,
    record,
    tell,
)

PREPARED_SQL = """
SELECT job_id, name, lease_token, media_type, bytes, sha256, key, upload_id, part_layout,
       prepared_at, stored_at
FROM job_artifacts WHERE job_id = $1 ORDER BY prepared_at DESC, name
"""


@dataclass(frozen=True)
class PreparedArtifact:
    """One artifact as one lease prepared it. `bytes` is its size; `sha256` is hex."""

    job_id: UUID
    name: str
    lease_token: UUID
    media_type: str
    bytes: int
    sha256: str
    key: str
    upload_id: str | None
    part_layout: dict[str, Any] | None
    prepared_at: datetime
    stored_at: datetime | None


@dataclass(frozen=True)
class NewArtifact:
    """What `capture_prepared` writes: measured by us, before the upload is completed."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    key: str
    upload_id: str | None
    part_layout: dict[str, Any] | None


async def capture_leased(
    database: Database,
    *,
    holder: str,
    life: timedelta,
    batch: int,
    job_ids: Sequence[UUID] | None = None,
    transfer: timedelta = timedelta(0),
) -> list[Job]:
    """Leases due captures, earliest deadline first; each job carries its own lease token.

    `transfer`: what a copy usually takes; rows with less time left than that go last.
    """
    return await lease_many(
        database,
        LEASE_CAPTURES_SQL,
        (
            batch,
            [uuid4() for _ in range(batch)],
            holder,
            life,
            None if job_ids is None else list(job_ids),
            transfer,
        ),
    )


async def capture_extended(database: Database, job: Job, *, life: timedelta) -> Landing:
    """Holds the lease for `life` more; only while it is still alive."""
    return await land(
        database,
        EXTEND_CAPTURE_SQL,
        (job.id, job.lease_token, life),
        Move(Event.capture_extended, database.room, job.lease_token),
    )


async def capture_rescheduled(
    database: Database,
    job: Job,
    *,
    delay: timedelta,
    odd_state: ProviderState | None = None,
    was_silent: bool = False,
) -> Landing:
    """Ends the lease and tries again `delay` from now.

    `odd_state`: the answer was odd (`gone`: the provider refuses; `completed`: it shows no
    artifact); equal ones are counted. `was_silent`: nothing was said, the count stays.
    """
    return await land(
        database,
        RESCHEDULE_CAPTURE_SQL,
        (
            job.id,
            job.lease_token,
            delay,
            None if odd_state is None else odd_state.value,
            was_silent,
        ),
        Move(Event.capture_rescheduled, database.room, job.lease_token),
    )


async def capture_prepared(
    database: Database, job: Job, artifact: NewArtifact
) -> Landed | FenceLost:
    """Writes one artifact's key, size and digest into the row's keeping, under the lease."""
    async with database.transaction() as connection:
        landed = await connection.fetchval(
            PREPARE_SQL,
            job.id,
            job.lease_token,
            artifact.name,
            artifact.media_type,
            artifact.bytes,
            artifact.sha256,
            artifact.key,
            artifact.upload_id,
            artifact.part_layout,
        )
    if landed is None:
        lost(Event.capture_prepared)
        return FenceLost(await current_stage(database, job.id))
    return Landed(job)


async def prepared_artifacts(database: Database, job_id: UUID) -> list[PreparedArtifact]:
    """All that any lease prepared for this job, newest first."""
    async with database.connection() as connection:
        rows = await connection.fetch(PREPARED_SQL, job_id)
    return [PreparedArtifact(**dict(row)) for row in rows]


class _NothingStored(Exception):
    """Rolls the publish back where one of its parts is not there."""


async def result_stored(
    database: Database,
    job: Job,
    *,
    manifest_key: str,
    artifacts: Sequence[tuple[str, UUID]],
    lifetime: timedelta | None,
    cost_usd: Decimal | None = None,
) -> Landing:
    """Publishes the artifacts, given as (name, lease token that prepared it), and ends the job.

    `lifetime` None keeps the result for ever. All artifacts become visible, or none.
    """
    move = Move(Event.result_stored, database.room, job.lease_token)
    row = None
    try:
        async with database.transaction() as connection:
            row = await connection.fetchrow(
                STORE_SQL,
                job.id,
                job.lease_token,
                manifest_key,
                lifetime,
                cost_usd,
                [name for name, _token in artifacts],
                [token for _name, token in artifacts],
            )
            if row is None:
                # The statement may have marked artifacts before its fence was judged.
                raise _NothingStored  # noqa: TRY301 - leaving the block is what rolls back
            await record(connection, row, move)
    except _NothingStored:
        lost(move.event)
        return FenceLost(await current_stage(database, job.id))
    tell(row, move)
    return Landed(Job.from_row(row))


async def result_refused(database: Database, job: Job, *, code: ErrorCode) -> Landing:
    """Ends the job without a result: the provider's own word, or no artifact after re-checks."""
    return await land(
        database,
        REFUSE_RESULT_SQL,
        (job.id, job.lease_token, code.value),
        Move(Event.result_refused, database.room, job.lease_token),
    )
