"""The relay's parts on real PostgreSQL and a real broker, and a reader of what it sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from services.relay.channels import Channel, KafkaChannel
from services.relay.outbox import OutboxLoop, Pace
from shared.kit.bus import Topic
from shared.kit.loops import Pulse
from shared.kit.settings import KafkaSettings
from shared.store.pool import Database

LIFE = timedelta(seconds=60)


def channel(bootstrap: str, send_seconds: float = 20.0) -> KafkaChannel:
    """A channel to that broker."""
    settings = KafkaSettings(kafka_bootstrap_servers=bootstrap)
    return KafkaChannel(settings, send_seconds=send_seconds)


def outbox_loop(database: Database, where: Channel, batch: int = 500) -> OutboxLoop:
    """The relay's loop, impatient."""
    return OutboxLoop(database, where, Pace(0.005, 0.02), claim_life=LIFE, batch=batch)


@asynccontextmanager
async def running(loop: OutboxLoop) -> AsyncIterator[None]:
    """The loop at work; drained at the end."""
    stopping = asyncio.Event()
    task = asyncio.create_task(loop.run(Pulse("relay", 60.0, stopping)))
    try:
        yield
    finally:
        stopping.set()
        await task


async def pending(database: Database) -> int:
    """How many rows wait."""
    async with database.connection() as connection:
        count: int = await connection.fetchval("SELECT count(*) FROM outbox")
    return count


async def drained(database: Database, left: int = 0) -> None:
    """Returns once no more than `left` rows wait."""

    async def is_drained() -> bool:
        return await pending(database) <= left

    await until(is_drained)


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Returns once `check` says so; the test's own time limit is the only one."""
    while True:
        if await check():
            return
        await asyncio.sleep(0.01)


async def sent(bootstrap: str, topic: Topic, job_ids: set[UUID]) -> list[ConsumerRecord]:
    """All records of these jobs on the topic, from its beginning to its present end."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        numbers = range(6)
        places = [TopicPartition(topic.value, number) for number in numbers]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        found: list[ConsumerRecord] = []
        for place, end in (await consumer.end_offsets(places)).items():
            while await consumer.position(place) < end:
                batches = await consumer.getmany(place, timeout_ms=500)
                found.extend(batches.get(place, []))
    finally:
        await consumer.stop()
    keys = {str(job_id).encode() for job_id in job_ids}
    return [record for record in found if record.key in keys]
