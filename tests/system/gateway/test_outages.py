"""PostgreSQL away in the middle of everything: 503 and try again, never a half-made job."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.gateway.desk import Desk
from shared.media.objects import ObjectStore
from shared.store.pool import Database, open_database
from tests.system.gateway.bench import BODY, Caller, assert_problem, caller, jobs_in, make_desk
from tests.system.postgres_gate import PostgresGate


@pytest.fixture
async def gate(database_url: str) -> AsyncIterator[PostgresGate]:
    """The way to the database."""
    async with PostgresGate(database_url).listening() as gate:
        yield gate


@pytest.fixture
async def gated(
    gate: PostgresGate, object_store: ObjectStore, tmp_path: Path
) -> AsyncIterator[Desk]:
    """A gateway that sees the database through the gate."""
    async with open_database(gate.url, room="gateway", wait_seconds=5) as database:
        yield make_desk(database, object_store, tmp_path)


async def test_an_outage_is_unavailable_and_then_over(gated: Desk, gate: PostgresGate) -> None:
    owner = await caller(gated)
    path = (await owner.post(BODY, "before")).headers["location"]
    gate.shut()
    for answer in (
        await owner.post(BODY, "during"),
        await owner.http.get(path),
        await owner.http.post(f"{path}/cancel"),
        await owner.http.get(f"{path}/artifacts/master"),
    ):
        document = assert_problem(answer, 503, "unavailable")
        assert document["retryable"] is True
        assert int(answer.headers["retry-after"]) > 0
    assert await gated.database.is_reachable() is False
    assert (await owner.http.get("/openapi.json")).status_code == 200
    gate.reopen()
    answer = await owner.post(BODY, "during")
    assert answer.status_code == 202
    assert "idempotent-replayed" not in answer.headers


async def test_an_answer_lost_with_its_commit_is_found_by_the_same_key(
    gated: Desk, gate: PostgresGate, database: Database
) -> None:
    owner: Caller = await caller(gated)
    assert (await owner.post(BODY, "before")).status_code == 202
    gate.lose_next_commit()
    answer = await owner.post(BODY, "lost")
    assert_problem(answer, 503, "unavailable")
    again = await owner.post(BODY, "lost")
    assert again.status_code == 202
    assert again.headers["idempotent-replayed"] == "true"
    assert await jobs_in(database) == 2
