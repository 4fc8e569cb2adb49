"""From outbox row to record, through a real broker."""

import json
from datetime import datetime, timedelta
from uuid import uuid4

import asyncpg

from services.relay.channels import DiscardingChannel
from shared.kit.bus import Topic
from shared.kit.telemetry import relay_published
from shared.store.pool import Database
from tests.store import rows
from tests.system.relay.parts import channel, drained, outbox_loop, running, sent

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

ROW_SQL = """
INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
VALUES ($1, $2, 'test', $3::jsonb) RETURNING id
"""


def counted(topic: str, result: str) -> float:
    """The counter as it stands."""
    value: float = relay_published.labels(topic=topic, result=result)._value.get()
    return value


async def test_a_request_becomes_a_hint_and_a_transition_keyed_by_the_job(
    database: Database, kafka_bootstrap: str
) -> None:
    before = counted(Topic.submit, "published")
    async with database.connection() as connection:
        job = await rows.requested(database, traceparent=TRACEPARENT)
        ids = {
            row["aggregatetype"]: str(row["id"])
            for row in await connection.fetch("SELECT id, aggregatetype FROM outbox")
        }
    async with running(outbox_loop(database, channel(kafka_bootstrap))):
        await drained(database)
    (hint,) = await sent(kafka_bootstrap, Topic.submit, {job.id})
    (told,) = await sent(kafka_bootstrap, Topic.transitions, {job.id})
    assert json.loads(hint.value) == {
        "job_id": str(job.id),
        "reason": "job_requested",
        "version": 1,
    }
    headers = {name: value.decode() for name, value in hint.headers}
    assert headers["ce_id"] == ids["submit"]
    assert headers["ce_subject"] == str(job.id)
    assert headers["ce_type"] == "coatcheck.submit.job_requested"
    assert headers["ce_source"] == "coatcheck/relay"
    assert headers["traceparent"] == TRACEPARENT
    assert abs(datetime.fromisoformat(headers["ce_time"]) - job.created_at) < timedelta(minutes=1)
    assert json.loads(told.value)["outbox_id"] == ids["transitions"]
    assert counted(Topic.submit, "published") == before + 1


async def test_a_row_with_a_lower_number_that_commits_late_is_sent_too(
    database: Database, database_url: str, kafka_bootstrap: str
) -> None:
    late = await rows.requested(database)
    async with database.connection() as connection:
        await connection.execute("DELETE FROM outbox")
    slow = await asyncpg.connect(database_url)
    transaction = slow.transaction()
    await transaction.start()
    await slow.execute(ROW_SQL, "check", late.id, "{}")
    job = await rows.requested(database)
    async with running(outbox_loop(database, channel(kafka_bootstrap))):
        await drained(database)
        await transaction.commit()
        await drained(database)
    await slow.close()
    assert len(await sent(kafka_bootstrap, Topic.submit, {job.id})) == 1
    assert len(await sent(kafka_bootstrap, Topic.check, {late.id})) == 1


async def test_two_relays_and_many_batches_send_every_row_once(
    database: Database, kafka_bootstrap: str
) -> None:
    jobs = [await rows.requested(database) for _ in range(40)]
    loops = [outbox_loop(database, channel(kafka_bootstrap), batch=7) for _ in range(2)]
    async with running(loops[0]), running(loops[1]):
        await drained(database)
    ids = {job.id for job in jobs}
    records = await sent(kafka_bootstrap, Topic.submit, ids)
    assert sorted(record.key for record in records) == sorted(str(i).encode() for i in ids)


async def test_rows_that_can_never_be_sent_hold_up_nobody(
    database: Database, kafka_bootstrap: str
) -> None:
    job = await rows.requested(database)
    async with database.connection() as connection:
        unknown = await connection.fetchval(ROW_SQL, "rumours", job.id, {})
        huge = await connection.fetchval(ROW_SQL, "check", job.id, {"x": "y" * 1_100_000})
    before = counted("other", "failed"), counted(Topic.check, "failed")
    async with running(outbox_loop(database, channel(kafka_bootstrap))):
        await drained(database, left=2)
        later = await rows.requested(database)
        await drained(database, left=2)
    assert len(await sent(kafka_bootstrap, Topic.submit, {job.id, later.id})) == 2
    assert (counted("other", "failed"), counted(Topic.check, "failed")) == (
        before[0] + 1,
        before[1] + 1,
    )
    async with database.connection() as connection:
        kept = await connection.fetch(
            "SELECT id, claimed_until > clock_timestamp() AS rests, claim_token FROM outbox"
        )
    assert {row["id"] for row in kept} == {unknown, huge}
    assert all(row["rests"] and row["claim_token"] is None for row in kept)


async def test_without_a_broker_rows_are_dropped_and_counted_as_failed(
    database: Database,
) -> None:
    await rows.requested(database)
    before = counted(Topic.submit, "failed")
    where = DiscardingChannel()
    async with running(outbox_loop(database, where)):
        await drained(database)
    assert counted(Topic.submit, "failed") == before + 1
    assert await where.is_up()


async def test_a_claim_that_a_killed_relay_left_frees_itself(
    database: Database, kafka_bootstrap: str
) -> None:
    job = await rows.requested(database)
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE outbox SET claim_token = $1,"
            " claimed_until = clock_timestamp() + interval '1 hour' WHERE type = 'job_requested'",
            uuid4(),
        )
        async with running(outbox_loop(database, channel(kafka_bootstrap))):
            marker = await rows.requested(database)
            await drained(database, left=2)
            assert await connection.fetchval(
                "SELECT bool_and(aggregateid = $1) FROM outbox", job.id
            )
            await connection.execute("UPDATE outbox SET claimed_until = clock_timestamp()")
            await drained(database)
    assert len(await sent(kafka_bootstrap, Topic.submit, {job.id, marker.id})) == 2
