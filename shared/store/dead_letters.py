"""Messages that could not be read as hints: kept once each, for a person to look at.

The record's bytes stay in this table, capped; the dead-letters topic carries its place and the
error only.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from shared.store.pool import Database

if TYPE_CHECKING:
    # For the type alone: rooms without a hint loop need not load the bus.
    from shared.kit.bus import ParkedMessage

MOST_KEPT_BYTES = 65_536

PARK_SQL = """
INSERT INTO dead_letters (topic, partition, "offset", error, key, value)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (topic, partition, "offset") DO NOTHING
RETURNING id
"""
LIST_DEAD_LETTERS_SQL = """
SELECT id, topic, partition, "offset", error, key, value, received_at, replayed_at
FROM dead_letters ORDER BY id DESC LIMIT $1
"""
ONE_DEAD_LETTER_SQL = """
SELECT id, topic, partition, "offset", error, key, value, received_at, replayed_at
FROM dead_letters WHERE id = $1
"""
REPLAYED_SQL = "UPDATE dead_letters SET replayed_at = clock_timestamp() WHERE id = $1"


@dataclass(frozen=True)
class DeadLetter:
    """One parked message. `value` holds at most the first 64 KiB."""

    id: int
    topic: str
    partition: int
    offset: int
    error: str
    key: bytes | None
    value: bytes | None
    received_at: datetime
    replayed_at: datetime | None


async def dead_letter_parked(database: Database, parked: "ParkedMessage") -> bool:
    """Keeps one message; False when that very record was kept before."""
    async with database.transaction() as connection:
        new = await connection.fetchval(
            PARK_SQL,
            parked.topic,
            parked.partition,
            parked.offset,
            parked.error[:500],
            None if parked.key is None else parked.key[:MOST_KEPT_BYTES],
            None if parked.value is None else parked.value[:MOST_KEPT_BYTES],
        )
    return new is not None


async def dead_letters_listed(database: Database, *, limit: int) -> list[DeadLetter]:
    """The newest parked messages."""
    async with database.connection() as connection:
        rows = await connection.fetch(LIST_DEAD_LETTERS_SQL, limit)
    return [DeadLetter(**dict(row)) for row in rows]


async def dead_letter_found(database: Database, letter_id: int) -> DeadLetter | None:
    """One parked message by its number."""
    async with database.connection() as connection:
        row = await connection.fetchrow(ONE_DEAD_LETTER_SQL, letter_id)
    return None if row is None else DeadLetter(**dict(row))


async def dead_letter_replayed(database: Database, letter_id: int) -> None:
    """Notes that an operator sent the message again."""
    async with database.transaction() as connection:
        await connection.execute(REPLAYED_SQL, letter_id)
