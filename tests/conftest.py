"""Fixtures that every test may use: real servers, one per session; fresh databases, one per test.

A test database is a copy of a migrated template, so it costs some 50 ms. The first epoch is
inserted into each copy, for a copied database has an oid of its own and the epoch row knows it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from pydantic import SecretStr

from shared.kit.settings import StorageSettings
from shared.media.objects import ObjectStore, open_object_store
from shared.store.migrate import apply_migrations, insert_first_epoch
from shared.store.pool import Database, open_database
from tests import parts


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on which databases may be made."""
    with parts.postgres(tmp_path_factory.mktemp("postgres")) as url:
        yield url


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker's address."""
    with parts.kafka(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[parts.Storage]:
    """A private bucket."""
    with parts.storage(tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture
def storage_settings(storage: parts.Storage) -> StorageSettings:
    """The bucket, as rooms are told of it."""
    return StorageSettings(
        s3_endpoint_url=storage.endpoint_url,
        s3_bucket=storage.bucket,
        s3_region=storage.region,
        s3_access_key_id=storage.access_key_id,
        s3_secret_access_key=SecretStr(storage.secret_access_key),
    )


@pytest.fixture
async def object_store(storage_settings: StorageSettings) -> AsyncIterator[ObjectStore]:
    """The bucket, opened."""
    async with open_object_store(storage_settings) as store:
        yield store


def on_database(url: str, name: str) -> str:
    """The same login to another database of the server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


async def _make_template(url: str) -> str:
    name = f"template_{uuid4().hex[:12]}"
    admin = await asyncpg.connect(url)
    try:
        await admin.execute(f"CREATE DATABASE {name}")
    finally:
        await admin.close()
    connection = await asyncpg.connect(on_database(url, name))
    try:
        await apply_migrations(connection)
    finally:
        await connection.close()
    return name


@pytest.fixture(scope="session")
def template(postgres_url: str) -> str:
    """The name of a migrated database without an epoch."""
    return asyncio.run(_make_template(postgres_url))


@pytest.fixture
async def database_url(postgres_url: str, template: str) -> AsyncIterator[str]:
    """A fresh, migrated database with epoch 1; dropped afterwards."""
    name = f"test_{uuid4().hex[:12]}"
    admin = await asyncpg.connect(postgres_url)
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        url = on_database(postgres_url, name)
        connection = await asyncpg.connect(url)
        await insert_first_epoch(connection, "tests")
        await connection.close()
        yield url
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """The fresh database, opened as the room `test`."""
    async with open_database(database_url, room="test", wait_seconds=5) as opened:
        yield opened
