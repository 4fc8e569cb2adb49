"""Server trouble as our own errors: away, read-only, cut around COMMIT, too old a schema."""

import asyncio

import asyncpg
import pytest

from shared.domain.errors import SchemaAhead, SchemaBehind, Unavailable, Uncertain
from shared.store.migrate import is_breaking, known_migrations, migrate
from shared.store.pool import Database, open_database
from tests.conftest import on_database
from tests.store import rows


async def kill_sessions(database_url: str) -> None:
    """Ends every other session of this database, as a failing server would."""
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()


async def test_a_server_that_is_away_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        async with open_database(
            "postgresql://nobody@127.0.0.1:9/none", room="test", wait_seconds=0
        ):
            pytest.fail("opened a database that is not there")


async def test_a_killed_session_is_unavailable_and_the_next_one_works(
    database: Database, database_url: str
) -> None:
    async def cut() -> None:
        async with database.transaction() as connection:
            await kill_sessions(database_url)
            await connection.execute("SELECT 1")

    with pytest.raises(Unavailable):
        await cut()
    await rows.requested(database)


async def test_a_session_killed_inside_a_durable_transaction_wrote_nothing(
    database: Database, database_url: str
) -> None:
    job = await rows.requested(database)

    async def cut() -> None:
        async with database.durable_transaction() as connection:
            await connection.execute("DELETE FROM outbox WHERE aggregateid = $1", job.id)
            await kill_sessions(database_url)
            await connection.execute("SELECT 1")

    with pytest.raises(Unavailable):
        await cut()
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM outbox") == 2


async def test_a_session_killed_at_commit_is_uncertain(
    database: Database, database_url: str
) -> None:
    async def cut() -> None:
        async with database.durable_transaction() as connection:
            await connection.execute("SELECT 1")
            await kill_sessions(database_url)

    with pytest.raises(Uncertain):
        await cut()


async def test_a_read_only_server_is_unavailable(database: Database) -> None:
    async def write() -> None:
        async with database.transaction() as connection:
            await connection.execute("SET LOCAL transaction_read_only = on")
            await connection.execute("DELETE FROM outbox")

    with pytest.raises(Unavailable):
        await write()


async def test_our_own_errors_pass_through(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        async with database.durable_transaction():
            raise ZeroDivisionError
    with pytest.raises(asyncpg.UndefinedTableError):
        async with database.transaction() as connection:
            await connection.execute("SELECT 1 FROM no_such_table")


async def test_reachability_never_raises(database: Database, database_url: str) -> None:
    assert await database.is_reachable()
    lonely = await asyncpg.create_pool(database_url, min_size=0, max_size=1)
    await lonely.close()
    assert not await Database(lonely, "test").is_reachable()


async def test_a_missing_migration_refuses_the_start(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    name = known_migrations()[-1][0]
    await connection.execute("DELETE FROM schema_migrations WHERE name = $1", name)
    await connection.close()
    with pytest.raises(SchemaBehind, match=name):
        async with open_database(database_url, room="test", wait_seconds=0):
            pytest.fail("opened a database with a missing migration")


@pytest.mark.parametrize("breaking", [True, False])
async def test_only_a_breaking_later_migration_refuses_the_start(
    database_url: str, breaking: bool
) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "INSERT INTO schema_migrations (name, breaking) VALUES ('9999_later.sql', $1)", breaking
    )
    await connection.close()
    if breaking:
        with pytest.raises(SchemaAhead, match="9999_later"):
            async with open_database(database_url, room="test", wait_seconds=0):
                pytest.fail("opened a database of a later version")
        with pytest.raises(SchemaAhead):
            await migrate(database_url)
    else:
        async with open_database(database_url, room="test", wait_seconds=0) as opened:
            assert await opened.is_reachable()


async def test_two_migrators_run_each_file_once(postgres_url: str) -> None:
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("CREATE DATABASE migrated_twice")
    url = on_database(postgres_url, "migrated_twice")
    try:
        first, second = await asyncio.gather(migrate(url), migrate(url))
        assert sorted(first + second) == [name for name, _text in known_migrations()]
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT count(*) FROM submission_epoch") == 1
        assert await connection.fetchval("SELECT coatcheck_live_epoch()") == 1
        await connection.close()
    finally:
        await admin.execute("DROP DATABASE migrated_twice WITH (FORCE)")
        await admin.close()


async def test_no_epoch_is_inserted_where_jobs_are(database: Database, database_url: str) -> None:
    await rows.requested(database)
    async with database.connection() as connection:
        await connection.execute("DELETE FROM submission_epoch")
    assert await migrate(database_url) == []
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM submission_epoch") == 0
        assert await connection.fetchval("SELECT coatcheck_live_epoch()") is None


async def test_a_migration_without_its_heading_is_refused() -> None:
    with pytest.raises(ValueError, match="breaking"):
        is_breaking("CREATE TABLE x ();")


async def test_migrate_says_when_the_server_is_away() -> None:
    with pytest.raises(Unavailable):
        await migrate("postgresql://nobody@127.0.0.1:9/none")
