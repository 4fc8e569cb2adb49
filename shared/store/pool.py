"""The pool of one room, and the only place where asyncpg's errors become ours.

`Database` hands out connections and transactions. It promises that trouble with the server
surfaces as `Unavailable` and that a transaction whose COMMIT may or may not have happened
surfaces as `Uncertain` where the caller asked for that (`durable_transaction`). It must never
retry anything by itself.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from shared.domain.errors import SchemaAhead, SchemaBehind, Unavailable, Uncertain
from shared.store.migrate import pending_migrations
from shared.store.trouble import CONNECT_TIMEOUT_SECONDS, UNAVAILABLE_ERRORS

Connection = asyncpg.pool.PoolConnectionProxy | asyncpg.Connection
Record = asyncpg.Record

COMMAND_TIMEOUT_SECONDS = 15.0
RETRY_SECONDS = 0.5
LEAST_SERVER_VERSION = 180000


class Database:
    """A pool with a name. `room` is written as the actor of every transition."""

    def __init__(self, pool: asyncpg.Pool, room: str) -> None:
        self._pool = pool
        self.room = room

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A pooled connection in autocommit. Raises Unavailable for server trouble."""
        with_errors = _translated()
        async with with_errors, self._pool.acquire(timeout=COMMAND_TIMEOUT_SECONDS) as one:
            yield one

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One transaction; rolled back when the block raises. Raises Unavailable."""
        async with self.connection() as one, one.transaction():
            yield one

    @asynccontextmanager
    async def durable_transaction(self) -> AsyncIterator[Connection]:
        """A transaction whose COMMIT must be clear: any error, timeout or notice during it
        raises Uncertain, for then the rows may be there, or may vanish in a failover.

        A failure before COMMIT is sent raises Unavailable: nothing was written.
        """
        notices: list[object] = []

        def hear(_connection: object, notice: object) -> None:
            notices.append(notice)

        is_committing = False
        try:
            async with self.connection() as one:
                one.add_log_listener(hear)
                try:
                    transaction = one.transaction()
                    await transaction.start()
                    await one.execute("SET LOCAL synchronous_commit = on")
                    try:
                        yield one
                    except BaseException:
                        await _rolled_back(transaction)
                        raise
                    is_committing = True
                    await transaction.commit()
                finally:
                    _stop_listening(one, hear)
        except Unavailable as error:
            if is_committing:
                raise Uncertain("the outcome of a COMMIT is not known") from error
            raise
        if notices:
            raise Uncertain("the COMMIT came back with a notice")

    async def is_reachable(self) -> bool:
        """Whether the server answers a trivial question; never raises for server trouble."""
        try:
            async with asyncio.timeout(2), self.connection() as one:
                await one.fetchval("SELECT 1")
        except (Unavailable, TimeoutError):
            return False
        return True


async def _rolled_back(transaction: Any) -> None:
    try:
        await transaction.rollback()
    except UNAVAILABLE_ERRORS:
        # The session is gone, and with it the transaction; the block's own error matters more.
        return


def _stop_listening(connection: Connection, hear: Any) -> None:
    try:
        connection.remove_log_listener(hear)
    except asyncpg.InterfaceError:
        # The session ended and the pool took the connection back; it listens to nothing now.
        return


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        yield
    except UNAVAILABLE_ERRORS as error:
        raise Unavailable("PostgreSQL does not answer as it should") from error


@asynccontextmanager
async def open_database(
    url: str, *, room: str, max_size: int = 8, wait_seconds: float = 30.0
) -> AsyncIterator[Database]:
    """Opens the pool, waiting up to `wait_seconds` for the server and for its schema.

    Raises Unavailable when the server stays away, SchemaBehind when a migration is missing,
    SchemaAhead when a breaking migration of a later version was applied.
    """
    pool = await _connected(url, room, max_size, wait_seconds)
    try:
        database = Database(pool, room)
        await _schema_fits(database, wait_seconds)
        yield database
    finally:
        try:
            async with asyncio.timeout(5):
                await pool.close()
        except (TimeoutError, *UNAVAILABLE_ERRORS):
            pool.terminate()


async def _connected(url: str, room: str, max_size: int, wait_seconds: float) -> asyncpg.Pool:
    give_up_at = asyncio.get_running_loop().time() + wait_seconds
    while True:
        try:
            return await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=max_size,
                timeout=CONNECT_TIMEOUT_SECONDS,
                command_timeout=COMMAND_TIMEOUT_SECONDS,
                init=_prepare_connection,
                server_settings={
                    "application_name": f"coatcheck-{room}",
                    "statement_timeout": "12s",
                    "lock_timeout": "8s",
                    "idle_in_transaction_session_timeout": "20s",
                    "timezone": "UTC",
                    "jit": "off",
                },
            )
        except UNAVAILABLE_ERRORS as error:
            if asyncio.get_running_loop().time() >= give_up_at:
                raise Unavailable(
                    "PostgreSQL cannot be reached at COATCHECK_DATABASE_URL"
                ) from error
            await asyncio.sleep(RETRY_SECONDS)


async def _prepare_connection(connection: asyncpg.Connection) -> None:
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
    )


async def _schema_fits(database: Database, wait_seconds: float) -> None:
    give_up_at = asyncio.get_running_loop().time() + wait_seconds
    while True:
        async with database.connection() as one:
            version = await one.fetchval("SELECT current_setting('server_version_num')::integer")
            if version < LEAST_SERVER_VERSION:
                raise SchemaAhead(f"PostgreSQL 18 or later is needed, the server is {version}")
            missing = await pending_migrations(one)
        if not missing:
            return
        if asyncio.get_running_loop().time() >= give_up_at:
            raise SchemaBehind(f"the database lacks migration {missing[0]}")
        await asyncio.sleep(RETRY_SECONDS)
