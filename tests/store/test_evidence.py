"""Callbacks in every stage, duplicates, contradictions, orphans, adoption."""

from uuid import uuid4

import pytest

from shared.domain.edges import Event
from shared.domain.job import Job
from shared.domain.stages import TERMINAL_STAGES, Stage
from shared.store.pool import Database
from shared.store.queries import timeline
from shared.store.transitions import checks, evidence, submission
from shared.store.transitions.evidence import Callback, CallbackRecorded, CallbackResult
from shared.store.transitions.record import FenceLost, Landing
from tests.store import rows
from tests.store.rows import HOUR, NOW, Placed


def callback(placed: Placed, provider_job_id: str | None = "p-1") -> Callback:
    """A delivery for the claim the placed job was sent under."""
    token = placed.claim.token if placed.claim else placed.job.claim_token
    return Callback("runpod", placed.job.id, token or uuid4(), provider_job_id)


async def evidence_rows(database: Database) -> int:
    """How many deliveries are stored as evidence."""
    async with database.connection() as connection:
        value: int = await connection.fetchval("SELECT count(*) FROM callback_evidence")
    return value


@pytest.mark.parametrize("stage", list(Stage))
async def test_every_stage_stores_the_evidence_once(database: Database, stage: Stage) -> None:
    placed = await rows.placed(database, stage)
    sent = callback(placed)
    first = await evidence.callback_recorded(database, sent, floor=NOW)
    again = await evidence.callback_recorded(database, sent, floor=NOW)
    ended = stage in TERMINAL_STAGES
    assert first.result is (CallbackResult.terminal if ended else CallbackResult.recorded)
    assert again.result is (CallbackResult.terminal if ended else CallbackResult.duplicate)
    assert not again.paid_twice_suspected
    assert await evidence_rows(database) == 1
    after = await rows.now(database, placed.job)
    assert after.stage is (Stage.unknown if stage is Stage.unsubmitted else stage)


async def test_an_accepted_row_becomes_due_but_not_sooner_than_the_floor(
    database: Database,
) -> None:
    job = await rows.accepted(database)
    leased = await rows.check_lease(database, job)
    rows.landed(await rescheduled(database, leased))
    far = (await rows.now(database, job)).next_check_at
    await evidence.callback_recorded(database, callback(Placed(job), None), floor=HOUR / 2)
    near = (await rows.now(database, job)).next_check_at
    assert far is not None
    assert near is not None
    assert near < far
    assert await due(database) == 0  # the floor holds it back
    await evidence.callback_recorded(database, callback(Placed(job), None), floor=NOW)
    assert await due(database) == 1


async def rescheduled(database: Database, job: Job) -> Landing:
    """Ends the lease, next look in an hour."""
    return await checks.check_rescheduled(database, job, delay=HOUR)


async def due(database: Database) -> int:
    """How many rows are due for a check now."""
    async with database.connection() as connection:
        value: int = await connection.fetchval(
            "SELECT count(*) FROM jobs WHERE next_check_at <= clock_timestamp()"
        )
    return value


async def test_a_callback_during_a_check_wins_over_its_delay(database: Database) -> None:
    leased = await rows.check_lease(database, await rows.accepted(database))
    await evidence.callback_recorded(database, callback(Placed(leased)), floor=NOW)
    rows.landed(await rescheduled(database, leased))
    assert await due(database) == 1


async def test_a_callback_of_a_released_claim_holds_the_row(database: Database) -> None:
    claim = await rows.claimed(database)
    job = rows.landed(
        await submission.submission_released(database, claim, reason="429", again_after=NOW)
    )
    told = await evidence.callback_recorded(database, callback(Placed(job, claim)), floor=NOW)
    assert told == CallbackRecorded(CallbackResult.recorded, False, True)
    held = await rows.now(database, job)
    assert (held.stage, held.attention_reason) == (Stage.unknown, "release_contradicted")
    events = [entry.event for entry in await timeline(database, job.id)]
    assert events[-1] == Event.release_contradicted


async def test_a_second_id_is_a_suspicion_of_paying_twice(database: Database) -> None:
    job = await rows.accepted(database, "p-first")
    same = await evidence.callback_recorded(database, callback(Placed(job), "p-first"), floor=NOW)
    other = await evidence.callback_recorded(database, callback(Placed(job), "p-second"), floor=NOW)
    assert not same.paid_twice_suspected
    assert other.paid_twice_suspected


async def test_a_released_claim_beside_a_live_one_is_suspicious_too(database: Database) -> None:
    first = await rows.claimed(database)
    job = rows.landed(
        await submission.submission_released(database, first, reason="429", again_after=NOW)
    )
    await rows.claimed(database, job)
    told = await evidence.callback_recorded(database, callback(Placed(job, first)), floor=NOW)
    assert told == CallbackRecorded(CallbackResult.recorded, True, True)


async def test_a_callback_without_a_job_is_an_orphan(database: Database) -> None:
    sent = Callback("runpod", uuid4(), uuid4(), "p-1")
    for _ in range(2):
        told = await evidence.callback_recorded(database, sent, floor=NOW)
        assert told.result is CallbackResult.orphan
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM orphan_callbacks") == 1


async def test_an_unknown_row_is_adopted_under_a_confirmed_id(database: Database) -> None:
    job, claim = await rows.unknown(database)
    assert await due(database) == 0  # it rests until evidence comes
    await evidence.callback_recorded(database, callback(Placed(job, claim)), floor=NOW)
    leased = await rows.check_lease(database, job)
    (found,) = await evidence.unexamined_evidence(database, [job.id])
    assert found.sent_to["endpoint_id"] == "demo"
    handle = rows.handle(found.provider_job_id)
    adopted = rows.landed(
        await evidence.submission_adopted(database, leased, rows.lease_of(leased), found, handle)
    )
    assert (adopted.stage, adopted.provider_job_id) == (Stage.accepted, "p-1")
    assert adopted.claim_token == claim.token
    assert await evidence.unexamined_evidence(database, [job.id]) == []


async def test_an_id_held_by_another_row_is_never_adopted(database: Database) -> None:
    await rows.accepted(database, "p-1")
    job, claim = await rows.unknown(database)
    await evidence.callback_recorded(database, callback(Placed(job, claim)), floor=NOW)
    leased = await rows.check_lease(database, job)
    (found,) = await evidence.unexamined_evidence(database, [job.id])
    landing = await evidence.submission_adopted(
        database, leased, rows.lease_of(leased), found, rows.handle("p-1")
    )
    assert landing == FenceLost(Stage.unknown)
    assert await evidence.unexamined_evidence(database, [job.id]) == []


async def test_evidence_that_came_before_the_answer_makes_the_first_check_due(
    database: Database,
) -> None:
    claim = await rows.claimed(database)
    await evidence.callback_recorded(database, callback(Placed(claim.job, claim)), floor=NOW)
    await submission.submission_accepted(database, claim, rows.handle("p-1"), first_check=HOUR)
    assert await due(database) == 1


async def test_evidence_before_the_expiry_makes_the_unknown_row_due(database: Database) -> None:
    claim = await rows.claimed(database)
    await evidence.callback_recorded(database, callback(Placed(claim.job, claim)), floor=NOW)
    (job,) = await submission.submission_claims_expired(database, claim_life=NOW, batch=1)
    assert job.next_check_at is not None


async def test_replays_leave_one_hint(database: Database) -> None:
    job = await rows.accepted(database)
    leased = await rows.check_lease(database, job)
    rows.landed(await rescheduled(database, leased))
    async with database.connection() as connection:
        await connection.execute("DELETE FROM outbox")
    for _ in range(20):
        await evidence.callback_recorded(database, callback(Placed(job)), floor=HOUR / 2)
    async with database.connection() as connection:
        kinds = await connection.fetch("SELECT aggregatetype FROM outbox")
    assert [row["aggregatetype"] for row in kinds] == ["check"]


async def test_a_replay_of_examined_evidence_wakes_nobody(database: Database) -> None:
    job, claim = await rows.unknown(database)
    sent = callback(Placed(job, claim))
    await evidence.callback_recorded(database, sent, floor=NOW)
    leased = await rows.check_lease(database, job)
    (found,) = await evidence.unexamined_evidence(database, [job.id])
    await evidence.evidence_examined(database, found)
    rows.landed(await checks.check_rescheduled(database, leased, delay=None))
    await evidence.callback_recorded(database, sent, floor=NOW)
    assert (await rows.now(database, job)).next_check_at is None
    await evidence.callback_recorded(database, callback(Placed(job, claim), None), floor=NOW)
    assert (await rows.now(database, job)).next_check_at is None
    await evidence.callback_recorded(database, callback(Placed(job, claim), "p-2"), floor=NOW)
    assert await due(database) == 1
