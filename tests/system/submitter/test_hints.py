"""From an outbox row through a real broker to a bought job, with no sweep at work."""

import asyncio
from uuid import uuid4

from aiokafka import AIOKafkaProducer

from services.submitter.work import hint_loop
from shared.domain.job import Job
from shared.domain.stages import Stage
from shared.kit.bus import Topic
from shared.kit.loops import Pulse
from shared.kit.settings import KafkaSettings
from shared.store.dead_letters import dead_letters_listed
from tests.store import rows
from tests.system.relay.parts import channel, outbox_loop, running
from tests.system.submitter.bench import Bench, Provider, until


async def test_a_hint_buys_its_job_and_garbage_is_parked(
    submitter: Bench, provider: Provider, kafka_bootstrap: str
) -> None:
    database = submitter.database
    settings = KafkaSettings(kafka_bootstrap_servers=kafka_bootstrap)
    hints = hint_loop(settings, database, submitter.claimer, group=f"test-{uuid4()}")
    stopping = asyncio.Event()
    consuming = asyncio.create_task(hints.run(Pulse("hints", 120.0, stopping)))
    async with running(outbox_loop(database, channel(kafka_bootstrap))):
        first = await rows.requested(database)
        await _accepted(submitter, first)
        garbage = f"garbage {uuid4()}".encode()
        await _send(kafka_bootstrap, garbage)
        second = await rows.requested(database)
        await _accepted(submitter, second)

        async def is_parked() -> bool:
            letters = await dead_letters_listed(database, limit=100)
            return garbage in [letter.value for letter in letters]

        await until(is_parked)
    stopping.set()
    await consuming
    assert len(await provider.creates()) == 2


async def _accepted(submitter: Bench, job: Job) -> None:
    async def is_accepted() -> bool:
        return (await rows.now(submitter.database, job)).stage is Stage.accepted

    await until(is_accepted)


async def _send(bootstrap: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        await producer.send_and_wait(Topic.submit.value, value)
    finally:
        await producer.stop()
