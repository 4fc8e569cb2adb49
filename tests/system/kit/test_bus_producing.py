"""Topics made once, and producers that are bounded, disposable and leave nothing behind."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from shared.domain.errors import TooLarge, Unavailable
from shared.kit.bus import Publisher, Topic, dispose, ensure_topics, make_producer, producing
from shared.kit.settings import KafkaSettings
from tests.system.kit.own_broker import Lines, OwnBroker, is_only_task


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(90):
        while not await holds():  # noqa: ASYNC110  # a broker has no event to wait for
            await asyncio.sleep(0.02)


async def _delete(admin: AIOKafkaAdminClient, *topics: Topic) -> None:
    names = {topic.value for topic in topics}

    async def are_gone() -> bool:
        return not names & set(await admin.list_topics())

    await admin.delete_topics(list(names))
    await _until(are_gone)


async def test_topics_are_made_once_by_whoever_comes_first(
    admin: AIOKafkaAdminClient, settings: KafkaSettings
) -> None:
    async def have_six_partitions() -> bool:
        described = await admin.describe_topics([topic.value for topic in Topic])
        return {len(topic["partitions"]) for topic in described} == {6}

    await _delete(admin, *Topic)
    made = await asyncio.gather(*(ensure_topics(settings) for _ in range(4)))
    assert sorted(topic for part in made for topic in part) == sorted(Topic)
    assert await ensure_topics(settings) == frozenset()
    await _until(have_six_partitions)
    resource = ConfigResource(ConfigResourceType.TOPIC, Topic.transitions.value)
    (answer,) = await admin.describe_configs([resource])
    configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert configs["compression.type"] == "uncompressed"
    assert configs["retention.ms"] == str(30 * 24 * 3600 * 1000)


async def test_a_topic_that_cannot_be_made_is_named(
    admin: AIOKafkaAdminClient, settings: KafkaSettings
) -> None:
    await _delete(admin, Topic.callbacks)
    three = settings.model_copy(update={"kafka_replication_factor": 3})
    with pytest.raises(Unavailable, match="callbacks"):
        await ensure_topics(three)
    assert await ensure_topics(settings) == {Topic.callbacks}


async def test_a_frozen_broker_holds_nobody_up_and_leaves_nothing_behind(
    running: OwnBroker, settings: KafkaSettings, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producing, "SEND_SECONDS", 0.5)
    monkeypatch.setattr(producing, "STOP_SECONDS", 0.5)
    publisher = Publisher(settings, client_id="test")
    await publisher.send(Topic.check, b"{}", key=None)
    with running.frozen():
        with pytest.raises(Unavailable):
            await publisher.send(Topic.check, b"{}", key=b"k")
        assert any(line["event"] == "producer_abandoned" for line in lines)
        await publisher.close()
        assert is_only_task()
    await publisher.send(Topic.check, b"{}", key=b"k")
    await publisher.close()
    assert is_only_task()


async def test_a_start_that_a_frozen_broker_holds_up_is_given_up(
    running: OwnBroker, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_topics(_: KafkaSettings) -> frozenset[Topic]:
        return frozenset()

    monkeypatch.setattr(producing, "START_SECONDS", 0.2)
    monkeypatch.setattr(producing, "ensure_topics", no_topics)
    with running.frozen():
        publisher = Publisher(settings, client_id="test")
        with pytest.raises(Unavailable):
            await publisher.send(Topic.check, b"{}", key=b"k")
        sending = asyncio.create_task(publisher.send(Topic.check, b"{}", key=b"k"))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert is_only_task()


async def test_a_producer_that_dies_while_it_stops_is_only_logged(
    running: OwnBroker,
    settings: KafkaSettings,
    lines: Lines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = make_producer(settings, client_id="test")
    await producer.start()

    async def die() -> None:
        raise KeyError("a bug of the library")

    monkeypatch.setattr(producer, "stop", die)
    await dispose(producer)
    assert any(line["event"] == "end_failed" for line in lines)
    producer._closed = True  # as its own `stop` would have noted
    assert is_only_task()


async def test_a_record_over_the_cap_is_refused_and_the_producer_kept(
    running: OwnBroker, publisher: Publisher
) -> None:
    await publisher.send(Topic.check, b"{}", key=None)
    producer = publisher._producer
    with pytest.raises(TooLarge):
        await publisher.send(Topic.check, b"x" * 2_000_000, key=None)
    assert publisher._producer is producer
    await publisher.send(Topic.check, b"{}", key=None)


async def test_many_tasks_share_one_publisher(running: OwnBroker, publisher: Publisher) -> None:
    sends = (publisher.send(Topic.check, b"{}", key=str(n).encode()) for n in range(50))
    await asyncio.gather(*sends)
