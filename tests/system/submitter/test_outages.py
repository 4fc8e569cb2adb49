"""PostgreSQL away between the call and the writing of what it came to."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from services.submitter import writing
from shared.domain.stages import Stage
from shared.kit.telemetry import paid_twice_suspected
from shared.store.pool import Database, open_database
from shared.store.queries import claims_of
from shared.store.transitions.evidence import (
    evidence_noted,
    submission_adopted,
    unexamined_evidence,
)
from tests.store import rows
from tests.system.postgres_gate import PostgresGate
from tests.system.submitter.bench import Bench, Provider, aged, bench, pulse


@dataclass
class Cut:
    """A submitter behind a gate, with its one call held at the provider."""

    gate: PostgresGate
    parts: Bench


@pytest.fixture
async def cut(database_url: str, provider: Provider) -> AsyncIterator[Cut]:
    """The parts, and no call yet."""
    async with (
        PostgresGate(database_url).listening() as gate,
        open_database(gate.url, room="submitter", wait_seconds=0) as through,
    ):
        yield Cut(gate, bench(through, f"{provider.url}/v2"))


async def answered_into_an_outage(cut: Cut, provider: Provider) -> None:
    """The call is answered while the database is away; returns once the writer has knocked."""
    await provider.script(create={"gate": "answer"}, webhook={"send": False})
    await cut.parts.sweep()
    await provider.held("answer")
    cut.gate.shut()
    await provider.control("POST", "gates/answer/open")
    await cut.gate.knocked.wait()


async def test_an_accept_is_written_again_until_the_server_is_back(
    database: Database, cut: Cut, provider: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    job = await rows.requested(database)
    await answered_into_an_outage(cut, provider)
    (create,) = await provider.creates()
    assert create["job_id"] in capsys.readouterr().out, "the id is logged before it is written"
    cut.gate.reopen()
    await cut.parts.landed()
    now = await rows.now(database, job)
    assert (now.stage, now.provider_job_id) == (Stage.accepted, create["job_id"])


async def test_an_accept_whose_commit_answer_was_lost_lands_once(
    database: Database, cut: Cut, provider: Provider
) -> None:
    await provider.script(create={"gate": "answer"}, webhook={"send": False})
    job = await rows.requested(database)
    await cut.parts.sweep()
    await provider.held("answer")
    cut.gate.lose_next_commit()
    await provider.control("POST", "gates/answer/open")
    await cut.parts.landed()
    assert not cut.gate.loses_commit
    assert (await rows.now(database, job)).stage is Stage.accepted
    (claim,) = await claims_of(database, job.id)
    assert claim["outcome"] == "accepted"
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM callback_evidence") == 0


async def test_an_outage_longer_than_the_claim_leaves_the_id_as_evidence(
    database: Database, cut: Cut, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await rows.requested(database)
    monkeypatch.setattr(writing, "boottime_seconds", lambda: 1e12)
    await answered_into_an_outage(cut, provider)
    assert (await rows.now(database, job)).stage is Stage.submitting
    await aged(database, job)
    await bench(database, provider.url).housekeeping.expire_claims(pulse())
    cut.gate.reopen()
    await cut.parts.landed()
    now = await rows.now(database, job)
    assert (now.stage, now.next_check_at is not None) == (Stage.unknown, True)
    (create,) = await provider.creates()
    async with database.connection() as connection:
        kept = await connection.fetchval("SELECT provider_job_id FROM callback_evidence")
    assert kept == create["job_id"]


async def test_a_late_accept_becomes_evidence(
    database: Database, cut: Cut, provider: Provider
) -> None:
    """The claim expired while the server was away for this one process only."""
    job = await rows.requested(database)
    await answered_into_an_outage(cut, provider)
    await aged(database, job)
    await bench(database, provider.url).housekeeping.expire_claims(pulse())
    cut.gate.reopen()
    await cut.parts.landed()
    now = await rows.now(database, job)
    assert (now.stage, now.next_check_at is not None) == (Stage.unknown, True)


async def test_a_doubt_that_cannot_be_written_in_time_is_left_to_the_expiry(
    database: Database, cut: Cut, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await rows.requested(database)
    monkeypatch.setattr(writing, "boottime_seconds", lambda: 1e12)
    await provider.script(create={"gate": "answer", "status": 502, "created": True})
    await answered_into_an_outage(cut, provider)
    await cut.parts.landed()
    assert (await rows.now(database, job)).stage is Stage.submitting
    cut.gate.reopen()
    await aged(database, job)
    await cut.parts.housekeeping.expire_claims(pulse())
    assert (await rows.now(database, job)).stage is Stage.unknown


async def test_a_late_accept_of_a_job_that_has_another_id_by_now_raises_the_alarm(
    database: Database, cut: Cut, provider: Provider
) -> None:
    """The claim expired, a callback named an id, it was adopted; then our own answer differs."""
    job = await rows.requested(database)
    await answered_into_an_outage(cut, provider)
    await aged(database, job)
    await bench(database, provider.url).housekeeping.expire_claims(pulse())
    (claim,) = await claims_of(database, job.id)
    await evidence_noted(database, job.id, claim["token"], "runpod", "another-id", "webhook")
    leased = await rows.check_lease(database, job)
    (evidence,) = await unexamined_evidence(database, [job.id])
    token = rows.lease_of(leased)
    handle = rows.handle("another-id")
    rows.landed(await submission_adopted(database, leased, token, evidence, handle))
    before = paid_twice_suspected._value.get()
    cut.gate.reopen()
    await cut.parts.landed()
    assert paid_twice_suspected._value.get() == before + 1
    assert (await rows.now(database, job)).provider_job_id == "another-id"
