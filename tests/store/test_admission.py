"""Requests and keys: one row per key, one transaction for all, cancels that stand."""

import asyncio
from uuid import uuid4

from shared.domain.stages import Stage
from shared.store.outbox import outbox_claimed
from shared.store.pool import Database
from shared.store.queries import own_job, timeline
from shared.store.transitions import admission
from shared.store.transitions.admission import KeyReused, Replayed, Requested
from tests.store import rows
from tests.store.rows import HOUR


async def test_fifty_equal_requests_at_once_make_one_row(database: Database) -> None:
    results = await asyncio.gather(
        *(admission.job_requested(database, rows.request("same")) for _ in range(50))
    )
    made = [result for result in results if isinstance(result, Requested)]
    assert len(made) == 1
    assert {r.job.id for r in results if isinstance(r, Replayed)} == {made[0].job.id}
    async with database.connection() as connection:
        for table in ("jobs", "job_inputs", "job_transitions"):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 1


async def test_a_key_with_another_digest_is_reused_and_writes_nothing(
    database: Database,
) -> None:
    await rows.requested(database, key="same")
    other = rows.request("same", request_digest=b"\x02" * 32)
    assert await admission.job_requested(database, other) == KeyReused()
    foreign = rows.request("same", owner_id="owner-2", request_digest=b"\x02" * 32)
    assert isinstance(await admission.job_requested(database, foreign), Requested)


async def test_a_request_leaves_a_hint_and_a_record_of_the_transition(
    database: Database,
) -> None:
    job = await rows.requested(database)
    messages = await outbox_claimed(database, token=uuid4(), limit=10, life=HOUR)
    assert sorted(m.aggregatetype for m in messages) == ["submit", "transitions"]
    by_kind = {m.aggregatetype: m for m in messages}
    assert by_kind["submit"].payload == {
        "job_id": str(job.id),
        "reason": "job_requested",
        "version": 1,
    }
    assert by_kind["transitions"].payload["outbox_id"] == str(by_kind["transitions"].id)
    (entry,) = await timeline(database, job.id)
    assert (entry.from_stage, entry.to_stage, entry.actor) == (
        None,
        "unsubmitted",
        "owner:owner-1",
    )


async def test_a_cancel_asked_twice_changes_once(database: Database) -> None:
    job = await rows.accepted(database)
    first = rows.landed(await admission.cancel_requested(database, job.id, rows.OWNER))
    again = rows.landed(await admission.cancel_requested(database, job.id, rows.OWNER))
    assert (first.stage, first.cancel_requested) == (Stage.accepted, True)
    assert again.public_version == first.public_version


async def test_a_cancel_of_a_foreign_or_ended_job_changes_nothing(database: Database) -> None:
    job = await rows.requested(database)
    rows.assert_lost(await admission.cancel_requested(database, job.id, "owner-2"), None)
    rows.assert_lost(await admission.cancel_requested(database, uuid4(), rows.OWNER), None)
    await admission.cancel_requested(database, job.id, rows.OWNER)
    rows.assert_lost(
        await admission.cancel_requested(database, job.id, rows.OWNER), Stage.cancelled
    )
    assert (await rows.now(database, job)).owner_id == rows.OWNER


async def test_an_owner_sees_only_their_own(database: Database) -> None:
    job = await rows.requested(database)
    assert await own_job(database, job.id, rows.OWNER) is not None
    assert await own_job(database, job.id, "owner-2") is None
