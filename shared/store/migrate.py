"""Applies the numbered migrations, and inserts the first epoch.

Each file runs in one transaction whose first write is its own row in `schema_migrations`, so
that two migrators cannot both run it. Every file starts with `-- breaking: yes|no`; code that
meets an applied breaking migration it does not know refuses to start.
"""

from importlib.resources import files
from typing import Any

import asyncpg

from shared.domain.errors import SchemaAhead, Unavailable
from shared.store.trouble import CONNECT_TIMEOUT_SECONDS, UNAVAILABLE_ERRORS

_TRACK_SQL = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    name text PRIMARY KEY,
    breaking boolean NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
# Two migrators that start together would both see no table and one would fail on the catalog's
# unique index; the advisory lock makes the second wait and then find the work done.
_MIGRATION_LOCK = 4_205_710_339

APPLIED_SQL = "SELECT name, breaking FROM schema_migrations"
HAS_TRACK_SQL = "SELECT to_regclass('schema_migrations') IS NOT NULL"

FIRST_EPOCH_SQL = """
INSERT INTO submission_epoch
    (epoch, system_identifier, timeline, database_oid, raised_xid, raised_by, reason)
SELECT 1,
       (SELECT system_identifier FROM pg_control_system()),
       ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
       pg_current_xact_id()::text::bigint,
       $1, 'first migration of an empty database'
WHERE NOT EXISTS (SELECT 1 FROM submission_epoch)
  AND NOT EXISTS (SELECT 1 FROM jobs)
RETURNING epoch
"""


def known_migrations() -> list[tuple[str, str]]:
    """All migrations of this version as (name, SQL text), in order."""
    folder = files("shared.store") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(name, (folder / name).read_text(encoding="utf-8")) for name in names]


def is_breaking(text: str) -> bool:
    """Whether the file says that older code cannot run on its result."""
    first_line = text.split("\n", 1)[0].strip()
    if first_line not in ("-- breaking: yes", "-- breaking: no"):
        raise ValueError("a migration starts with `-- breaking: yes` or `-- breaking: no`")
    return first_line == "-- breaking: yes"


async def pending_migrations(connection: Any) -> list[str]:
    """Names still to be applied. Raises SchemaAhead on an unknown breaking one."""
    if not await connection.fetchval(HAS_TRACK_SQL):
        return [name for name, _text in known_migrations()]
    applied = {row["name"]: row["breaking"] for row in await connection.fetch(APPLIED_SQL)}
    known = {name for name, _text in known_migrations()}
    for name, breaking in sorted(applied.items()):
        if name not in known and breaking:
            raise SchemaAhead(f"the database has the breaking migration {name} of a later version")
    return sorted(known - applied.keys())


async def migrate(database_url: str, *, actor: str = "migrate") -> list[str]:
    """Brings the database up to date and, if it holds no jobs, inserts epoch 1.

    Returns the names applied now. Raises Unavailable when the server cannot be reached,
    SchemaAhead when it belongs to a later version.
    """
    try:
        connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_SECONDS)
    except UNAVAILABLE_ERRORS as error:
        raise Unavailable("PostgreSQL cannot be reached at COATCHECK_DATABASE_URL") from error
    try:
        await connection.execute("SELECT pg_advisory_lock($1::bigint)", _MIGRATION_LOCK)
        applied = await apply_migrations(connection)
        await insert_first_epoch(connection, actor)
        return applied
    finally:
        await connection.close()


async def apply_migrations(connection: Any) -> list[str]:
    """Runs every pending file, each in a transaction of its own."""
    await connection.execute(_TRACK_SQL)
    texts = dict(known_migrations())
    pending = await pending_migrations(connection)
    for name in pending:
        async with connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = '5s'")
            await connection.execute(
                "INSERT INTO schema_migrations (name, breaking) VALUES ($1, $2)",
                name,
                is_breaking(texts[name]),
            )
            await connection.execute(texts[name])
    return pending


async def insert_first_epoch(connection: Any, actor: str) -> bool:
    """Inserts epoch 1 only where no epoch and no job exists; True if it did."""
    return await connection.fetchval(FIRST_EPOCH_SQL, actor) is not None
