"""The relay's three statements: claim rows, settle what was sent, release what was not.

Rows are picked by being there, never by an id cursor: sequences commit out of order, and a
cursor would skip the late ones. A published row is deleted. A claim that is not settled frees
itself, so a killed relay costs a second delivery and nothing else. Each statement commits by
itself: a BEGIN and a COMMIT around it would only cost every hint two round trips.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from shared.store.pool import Database

CLAIM_OUTBOX_SQL = """
WITH picked AS MATERIALIZED (
    SELECT id FROM outbox
    WHERE claimed_until IS NULL OR claimed_until <= clock_timestamp()
    ORDER BY created_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE outbox
SET claim_token = $2, claimed_until = clock_timestamp() + $3::interval, attempts = attempts + 1
FROM picked WHERE outbox.id = picked.id
RETURNING outbox.id, aggregatetype, aggregateid, type, payload, traceparent, created_at
"""

SETTLE_OUTBOX_SQL = "DELETE FROM outbox WHERE claim_token = $1 AND id = ANY ($2::uuid[])"

RELEASE_OUTBOX_SQL = """
UPDATE outbox SET claim_token = NULL, claimed_until = clock_timestamp() + $3::interval
WHERE claim_token = $1 AND id = ANY ($2::uuid[])
"""

OUTBOX_FIGURES_SQL = """
SELECT count(*) AS pending,
       coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::double precision
           AS oldest_seconds
FROM outbox
"""


@dataclass(frozen=True)
class OutboxRow:
    """One message to be sent; its topic follows from `aggregatetype`, its key is the job id."""

    id: UUID
    aggregatetype: str
    aggregateid: UUID
    type: str
    payload: dict[str, Any]
    traceparent: str | None
    created_at: datetime


@dataclass(frozen=True)
class OutboxFigures:
    """How many rows wait, and the age of the oldest in seconds (0 when none waits)."""

    pending: int
    oldest_seconds: float


async def outbox_claimed(
    database: Database, *, token: UUID, limit: int, life: timedelta
) -> list[OutboxRow]:
    """Claims up to `limit` rows for `life`, oldest first. Commits before it returns."""
    async with database.connection() as connection:
        rows = await connection.fetch(CLAIM_OUTBOX_SQL, limit, token, life)
    claimed = [OutboxRow(**dict(row)) for row in rows]
    return sorted(claimed, key=lambda row: (row.created_at, row.id))


async def outbox_settled(database: Database, *, token: UUID, ids: Sequence[UUID]) -> None:
    """Deletes rows whose record the broker acknowledged, as far as the claim still holds."""
    async with database.connection() as connection:
        await connection.execute(SETTLE_OUTBOX_SQL, token, list(ids))


async def outbox_released(
    database: Database, *, token: UUID, ids: Sequence[UUID], delay: timedelta
) -> None:
    """Gives rows back that could not be sent; they are picked again after `delay`."""
    async with database.connection() as connection:
        await connection.execute(RELEASE_OUTBOX_SQL, token, list(ids), delay)


async def outbox_figures(database: Database) -> OutboxFigures:
    """Pending rows and the age of the oldest: the best single health figure of the system."""
    async with database.connection() as connection:
        row = await connection.fetchrow(OUTBOX_FIGURES_SQL)
    if row is None:
        raise AssertionError("an aggregate without GROUP BY always returns a row")
    return OutboxFigures(**dict(row))
