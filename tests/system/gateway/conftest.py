"""A gateway per test, and a caller with an API key."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from services.gateway.desk import Desk
from shared.media.objects import ObjectStore
from shared.store.pool import Database
from tests.system.gateway.bench import Caller, caller, make_desk


@pytest.fixture
def desk(database: Database, object_store: ObjectStore, tmp_path: Path) -> Desk:
    """The gateway's parts on a fresh database."""
    return make_desk(database, object_store, tmp_path)


@pytest.fixture
async def owner(desk: Desk) -> Caller:
    """A caller with both scopes."""
    return await caller(desk)


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[EventDict]]:
    """What the gateway logs, unrendered."""
    with capture_logs() as lines:
        yield lines
