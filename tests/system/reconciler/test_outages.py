"""The reconciler with a part away: it waits, says so once, and goes on by itself."""

import json
from collections.abc import MutableMapping
from typing import Any

from aiokafka import AIOKafkaProducer
from structlog.testing import capture_logs

from shared.domain.hints import HintKind
from shared.domain.stages import Stage
from shared.kit.bus import ensure_topics
from shared.kit.settings import KafkaSettings
from shared.store.dead_letters import dead_letters_listed
from tests.system.postgres_gate import PostgresGate
from tests.system.watchers import Scene, until


async def was_said(logs: list[MutableMapping[str, Any]], event: str) -> bool:
    """Whether the log holds a line of that name."""
    return event in [entry["event"] for entry in logs]


async def test_a_database_that_was_away_is_found_again(scene: Scene) -> None:
    async with PostgresGate(scene.database_url).listening() as gate:
        with capture_logs() as logs:
            async with scene.reconciler(database_url=gate.url):
                first = await scene.bought()
                await scene.settled(first, Stage.capturing)
                gate.shut()
                await until(lambda: was_said(logs, "part_lost"))
                second = await scene.bought()
                gate.reopen()
                await scene.settled(second, Stage.capturing)
    events = [entry["event"] for entry in logs]
    assert (events.count("part_lost"), events.count("part_back")) == (1, 1)


async def test_a_database_that_goes_away_during_a_check_costs_one_lease(scene: Scene) -> None:
    job = await scene.bought({"status": {"sequence": [{"gate": "held"}]}})

    async def is_held() -> bool:
        return await scene.fake.is_held("held")

    async with PostgresGate(scene.database_url).listening() as gate:
        with capture_logs() as logs:
            async with scene.reconciler(database_url=gate.url):
                await until(is_held)
                gate.shut()
                await scene.fake.control("POST", "gates/held/open")
                await until(lambda: was_said(logs, "part_lost"))
                gate.reopen()
                await scene.lose_lease(job)
                await scene.settled(job, Stage.capturing)
    assert "part_back" in [entry["event"] for entry in logs]


async def test_a_hint_is_looked_at_and_garbage_is_parked(
    scene: Scene, kafka_bootstrap: str
) -> None:
    scene.kafka = kafka_bootstrap
    topic = HintKind.check.topic
    await ensure_topics(KafkaSettings(kafka_bootstrap_servers=kafka_bootstrap))
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)
    await producer.start()
    try:
        # A sweep passes once an hour here: what moves the job is its hint.
        async with scene.reconciler(time_scale=1.0, reconciler_sweep_seconds=3600):
            sent = await producer.send_and_wait(topic, b"\x00 no hint")
            job = await scene.bought()
            hint = {"job_id": str(job.id), "reason": "submission_accepted", "version": 3}
            await producer.send_and_wait(topic, json.dumps(hint).encode())
            await scene.settled(job, Stage.capturing)

            async def is_parked() -> bool:
                # Others use this broker too, so that more than ours may have been set aside.
                letters = await dead_letters_listed(scene.database, limit=1000)
                places = [(item.topic, item.partition, item.offset) for item in letters]
                return (topic, sent.partition, sent.offset) in places

            await until(is_parked)
    finally:
        await producer.stop()
