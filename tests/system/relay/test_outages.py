"""Kafka away, frozen, back again; PostgreSQL away: rows stay, and the loop lives on."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from deploy.local import ports
from deploy.local.kafka import LocalKafka
from deploy.local.kafka_jars import default_cache_dir
from services.relay.channels import KafkaChannel
from shared.domain.errors import Unavailable
from shared.kit.bus import Topic
from shared.store.outbox import OutboxRow, outbox_claimed
from shared.store.pool import Database, open_database
from tests.store import rows
from tests.system.postgres_gate import PostgresGate
from tests.system.relay.parts import (
    LIFE,
    channel,
    drained,
    outbox_loop,
    pending,
    running,
    sent,
    until,
)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that these tests may stop and freeze."""
    folder = tmp_path_factory.mktemp("kafka")
    port, controller_port = ports.free_block(2)
    log_path = folder / "kafka.log"
    kafka = LocalKafka(folder, port, controller_port, log_path, default_cache_dir())
    try:
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture
def broker(own_broker: LocalKafka) -> LocalKafka:
    """The broker, running."""
    if own_broker.process is None or own_broker.process.poll() is not None:
        own_broker.start()
    return own_broker


async def claimed_rows(database: Database) -> list[OutboxRow]:
    """Rows as the loop would send them."""
    await rows.requested(database)
    job = await rows.requested(database)
    return await outbox_claimed(database, token=job.id, limit=10, life=LIFE)


@asynccontextmanager
async def opened(where: KafkaChannel) -> AsyncIterator[KafkaChannel]:
    """The channel, open; closed at the end."""
    try:
        await where.open()
        yield where
    finally:
        await where.close()


async def test_rows_wait_out_a_stopped_broker_and_are_sent_when_it_is_back(
    database: Database, broker: LocalKafka
) -> None:
    where = channel(broker.bootstrap)
    async with running(outbox_loop(database, where)):
        first = await rows.requested(database)
        await drained(database)
        await asyncio.to_thread(broker.stop)
        await until(lambda: _is_down(where))
        second = await rows.requested(database)
        await asyncio.to_thread(broker.start)
        await drained(database)
        assert await where.is_up()
    records = await sent(broker.bootstrap, Topic.submit, {first.id, second.id})
    assert {record.key for record in records} == {
        str(first.id).encode(),
        str(second.id).encode(),
    }


async def _is_down(where: KafkaChannel) -> bool:
    return not await where.is_up()


async def test_a_frozen_broker_leaves_rows_unsent_and_costs_the_producer(
    database: Database, broker: LocalKafka
) -> None:
    batch = await claimed_rows(database)
    async with opened(channel(broker.bootstrap, send_seconds=1.0)) as where:
        assert (await where.dispatch(batch)).delivered == batch
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        try:
            done = await where.dispatch(batch)
        finally:
            broker.process.send_signal(signal.SIGCONT)
        assert (done.delivered, done.left) == ([], batch)
        assert isinstance(done.error, TimeoutError)
        assert not await where.is_up()
        # A broker that stood still is fenced for a moment; a send may fail once more meanwhile.
        await until(lambda: _is_delivered(where, batch))


async def _is_delivered(where: KafkaChannel, batch: list[OutboxRow]) -> bool:
    try:
        await where.open()
    except Unavailable:
        return False
    return (await where.dispatch(batch)).delivered == batch


async def test_what_a_frozen_broker_left_is_released_at_once(
    database: Database, broker: LocalKafka
) -> None:
    where = channel(broker.bootstrap, send_seconds=1.0)
    await where.open()
    await rows.requested(database)
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        await outbox_loop(database, where)._forward()
    finally:
        broker.process.send_signal(signal.SIGCONT)
        await where.close()
    assert len(await outbox_claimed(database, token=uuid4(), limit=10, life=LIFE)) == 2


async def test_a_lost_broker_is_noticed_without_rows_and_a_closed_channel_sends_nothing(
    database: Database, broker: LocalKafka
) -> None:
    batch = await claimed_rows(database)
    async with opened(channel(broker.bootstrap)) as where:
        assert await where.is_up()
        await asyncio.to_thread(broker.stop)
        with pytest.raises(Unavailable):
            await where.open()
        assert not await where.is_up()
        done = await where.dispatch(batch)
        assert (done.left, type(done.error)) == (batch, Unavailable)


async def test_a_broker_that_takes_connections_and_says_nothing_is_not_up(
    broker: LocalKafka,
) -> None:
    async with opened(channel(broker.bootstrap)) as where:
        await asyncio.to_thread(broker.stop)
        await until(lambda: _is_down(where))
        with socket.create_server(("127.0.0.1", broker.port)):
            assert not await where.is_up()


async def test_nobody_at_the_address_is_unavailable_and_claims_nothing(
    database: Database,
) -> None:
    where = channel("127.0.0.1:9")
    with pytest.raises(Unavailable):
        await where.open()
    await rows.requested(database)
    assert await outbox_loop(database, where)._turn() >= 0.5
    assert await pending(database) == 2
    assert len(await outbox_claimed(database, token=uuid4(), limit=10, life=LIFE)) == 2


async def test_a_broker_that_dies_while_a_producer_starts_is_unavailable(
    broker: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = channel(broker.bootstrap)

    async def topics_are_there(_: object) -> None:
        await asyncio.to_thread(broker.stop)

    monkeypatch.setattr("services.relay.channels.ensure_topics", topics_are_there)
    with pytest.raises(Unavailable):
        await where.open()


async def test_a_server_that_is_away_is_waited_out(
    database: Database, database_url: str, kafka_bootstrap: str
) -> None:
    async with (
        PostgresGate(database_url).listening() as gate,
        open_database(gate.url, room="relay", wait_seconds=0) as through,
        running(outbox_loop(through, channel(kafka_bootstrap))),
    ):
        await drained(database)
        gate.shut()
        await gate.knocked.wait()
        job = await rows.requested(database)
        gate.reopen()
        await drained(database)
    assert len(await sent(kafka_bootstrap, Topic.submit, {job.id})) == 1
