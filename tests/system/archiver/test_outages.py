"""The archiver with a part away: it waits, says so once, and goes on by itself."""

import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from structlog.testing import capture_logs

from shared.domain.errors import Refused
from shared.domain.hints import HintKind
from shared.domain.stages import Stage
from shared.kit.bus import ensure_topics
from shared.kit.settings import KafkaSettings
from shared.media.objects import ObjectStore
from shared.store.dead_letters import dead_letters_listed
from tests.store.objects.relay import Answer, CutAnswer, Request, Verdict, relay
from tests.system.archiver.findings import capturing, keys, published
from tests.system.postgres_gate import PostgresGate
from tests.system.watchers import Scene, counted, until

MIB = 1024 * 1024


async def was_said(logs: list[MutableMapping[str, Any]], event: str) -> bool:
    """Whether the log holds a line of that name."""
    return event in [entry["event"] for entry in logs]


def bucket_of(scene: Scene) -> str:
    assert scene.storage is not None
    assert scene.storage.s3_endpoint_url is not None
    return scene.storage.s3_endpoint_url


async def test_a_database_that_was_away_is_found_again(
    scene: Scene, object_store: ObjectStore
) -> None:
    first = await capturing(scene, await scene.bought())
    async with PostgresGate(scene.database_url).listening() as gate:
        with capture_logs() as logs:
            async with scene.archiver(database_url=gate.url):
                await scene.settled(first, Stage.succeeded)
                gate.shut()
                await until(lambda: was_said(logs, "part_lost"))
                second = await capturing(scene, await scene.bought())
                gate.reopen()
                await scene.settled(second, Stage.succeeded)
    events = [entry["event"] for entry in logs]
    assert (events.count("part_lost"), events.count("part_back")) == (1, 1)
    assert len(await published(scene, object_store, second)) == 1


async def test_a_bucket_that_was_away_is_found_again(
    scene: Scene, object_store: ObjectStore
) -> None:
    is_away = False

    def rule(_: Request) -> Verdict:
        return Answer(503, "SlowDown") if is_away else None

    async with relay(bucket_of(scene), rule) as url:
        with capture_logs() as logs:
            async with scene.archiver(s3_endpoint_url=url):
                is_away = True
                job = await capturing(scene, await scene.bought())
                await until(lambda: was_said(logs, "part_lost"))
                assert (await scene.job(job)).stage is Stage.capturing
                is_away = False
                await scene.settled(job, Stage.succeeded)
    events = [entry["event"] for entry in logs]
    assert (events.count("part_lost"), events.count("part_back")) == (1, 1)
    assert len(await published(scene, object_store, job)) == 1


async def test_a_completion_whose_answer_is_lost_is_adopted_by_the_next_lease(
    scene: Scene, object_store: ObjectStore
) -> None:
    lost = 0

    def rule(request: Request) -> Verdict:
        nonlocal lost
        is_join = request.method == "POST" and "uploadId" in request.target
        if not is_join or lost:
            return None
        lost += 1
        return CutAnswer()

    job = await capturing(scene, await scene.bought({"result": {"bytes": 10 * MIB}}))
    async with relay(bucket_of(scene), rule) as url, scene.archiver(s3_endpoint_url=url):
        seen = await scene.settled(job, Stage.succeeded, Stage.failed, Stage.review)
    assert (seen.stage, lost) == (Stage.succeeded, 1)
    assert len(await scene.fake.calls("result", job.provider_job_id)) == 1
    (master,) = await published(scene, object_store, job)
    assert await keys(object_store, f"results/{job.id}/") == {master.key, seen.manifest_key}


async def test_a_publish_whose_answer_is_lost_is_not_done_twice(
    scene: Scene, object_store: ObjectStore
) -> None:
    job = await capturing(scene, await scene.bought())

    def rule(request: Request) -> Verdict:
        # The manifest is the last thing that the bucket is asked for before the publish.
        if request.method == "PUT" and "/manifest." in request.target:
            gate.lose_next_commit()
        return None

    async with (
        PostgresGate(scene.database_url).listening() as gate,
        relay(bucket_of(scene), rule) as url,
        scene.archiver(s3_endpoint_url=url, database_url=gate.url),
    ):
        seen = await scene.settled(job, Stage.succeeded)
    assert not gate.loses_commit
    (master,) = await published(scene, object_store, job)
    assert await keys(object_store, f"results/{job.id}/") == {master.key, seen.manifest_key}
    events = [entry.event for entry in await scene.told(job)]
    assert events.count("result_stored") == 1


async def test_a_bucket_that_answers_strangers_is_refused(scene: Scene) -> None:
    def rule(request: Request) -> Verdict:
        return None if "authorization" in request.headers else Answer(200)

    async with relay(bucket_of(scene), rule) as url:
        with pytest.raises(Refused, match="private"):
            async with scene.archiver(s3_endpoint_url=url):
                pass


async def test_a_hint_is_looked_at_and_garbage_is_parked(
    scene: Scene, kafka_bootstrap: str
) -> None:
    scene.kafka = kafka_bootstrap
    topic = HintKind.capture.topic
    parked = counted("coatcheck_dead_letters_total", topic=topic)
    await ensure_topics(KafkaSettings(kafka_bootstrap_servers=kafka_bootstrap))
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)
    await producer.start()
    try:
        # A sweep passes once an hour here: what moves the job is its hint.
        async with scene.archiver(time_scale=1.0, archiver_sweep_seconds=3600):
            sent = await producer.send_and_wait(topic, b"\x00 no hint")
            job = await capturing(scene, await scene.bought())
            hint = {"job_id": str(job.id), "reason": "completion_observed", "version": 4}
            await producer.send_and_wait(topic, json.dumps(hint).encode())
            await scene.settled(job, Stage.succeeded)

            async def is_parked() -> bool:
                # Others use this broker too, so that more than ours may have been set aside.
                letters = await dead_letters_listed(scene.database, limit=1000)
                places = [(item.topic, item.partition, item.offset) for item in letters]
                return (topic, sent.partition, sent.offset) in places

            await until(is_parked)
    finally:
        await producer.stop()
    assert counted("coatcheck_dead_letters_total", topic=topic) > parked
