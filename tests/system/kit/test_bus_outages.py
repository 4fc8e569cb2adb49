"""Consuming while the broker is absent, stopped, frozen, or takes a topic away: it lives on."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from deploy.local import ports
from shared.domain.errors import Unavailable
from shared.kit.bus import ParkedMessage, Publisher, Topic, consuming, ensure_topics, session
from shared.kit.settings import KafkaSettings
from tests.system.kit.bus_driver import Mouth, Sender, open_mouth, records_of
from tests.system.kit.own_broker import Lines, OwnBroker, is_only_task, until_logged


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[session.Session]:
    """Every consuming session, as it is made."""
    made: list[session.Session] = []

    class Noted(session.Session):
        def __init__(self, *args: Any, **how: Any) -> None:
            super().__init__(*args, **how)
            made.append(self)

    monkeypatch.setattr(consuming, "Session", Noted)
    return made


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes in quick succession."""
    monkeypatch.setattr(consuming, "PROBE_EVERY_SECONDS", 0.05)


async def _hint_comes_through(settings: KafkaSettings, mouth: Mouth) -> None:
    async with Sender(settings) as sender:
        await mouth.until_taken(await sender.hint())


@pytest.mark.slow
async def test_everything_waits_for_a_broker_that_is_absent_and_starts_when_it_comes(
    broker: OwnBroker, settings: KafkaSettings, publisher: Publisher, lines: Lines
) -> None:
    with pytest.raises(Unavailable):
        await ensure_topics(settings)
    with pytest.raises(Unavailable):
        await publisher.send(Topic.submit, b"{}", key=None)
    async with open_mouth(settings) as mouth:
        await until_logged(lines, "part_lost")
        assert not mouth.running.done()
        await broker.start()
        await _hint_comes_through(settings, mouth)
        await publisher.send(Topic.check, b"{}", key=None)
    lost = [line for line in lines if line["event"] == "part_lost"]
    assert len(lost) == 1
    assert lost[0]["log_level"] == "error"


@pytest.mark.slow
async def test_hints_and_records_flow_again_after_a_stop_and_a_start(
    running: OwnBroker, settings: KafkaSettings, publisher: Publisher, lines: Lines
) -> None:
    async with open_mouth(settings) as mouth:
        await _hint_comes_through(settings, mouth)
        await publisher.send(Topic.check, b"{}", key=None)
        await running.stop()
        with pytest.raises(Unavailable):
            await publisher.send(Topic.check, b"{}", key=None)
        await until_logged(lines, "part_lost")
        assert not mouth.running.done()
        await running.start()
        await _hint_comes_through(settings, mouth)
        await publisher.send(Topic.check, b"{}", key=None)
        await until_logged(lines, "part_back")
    assert sum(line["event"] == "part_lost" for line in lines) == 1
    assert sum(line["event"] == "joined" for line in lines) == 1


@pytest.mark.slow
async def test_a_long_outage_ends_in_a_new_connection(
    running: OwnBroker,
    settings: KafkaSettings,
    lines: Lines,
    hasty: None,
    sessions: list[session.Session],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consuming, "HOPELESS_PROBES", 3)
    async with open_mouth(settings) as mouth:
        await _hint_comes_through(settings, mouth)
        await running.stop()
        async with asyncio.timeout(90):
            while len(sessions) < 3:  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.02)
        await running.start()
        await _hint_comes_through(settings, mouth)
    assert sum(line["event"] == "joined" for line in lines) == 2


async def test_a_notice_that_cannot_be_sent_holds_up_nothing(
    running: OwnBroker, settings: KafkaSettings, lines: Lines
) -> None:
    """The broker goes while a message is parked: parked again later, and then told of."""
    stops = 0

    async def park(parked: ParkedMessage) -> None:
        nonlocal stops
        if parked.value == garbage and not stops:
            stops += 1
            await running.stop()

    garbage = uuid4().bytes
    async with Sender(settings) as sender, open_mouth(settings, park=park) as mouth:
        place = await sender.raw(garbage)
        await until_logged(lines, "dead_letter_not_sent", times=3)
        await running.start()
        await _hint_comes_through(settings, mouth)
    assert (Topic.submit.value, *place) in {
        (parked.topic, parked.partition, parked.offset) for parked in mouth.parked
    }


async def test_a_consumer_that_stands_still_is_replaced(
    running: OwnBroker,
    settings: KafkaSettings,
    lines: Lines,
    hasty: None,
    sessions: list[session.Session],
) -> None:
    async with open_mouth(settings) as mouth:
        await _hint_comes_through(settings, mouth)
        consumer = sessions[0]._subscriber.consumer
        consumer.pause(*consumer.assignment())
        await _hint_comes_through(settings, mouth)
    assert len(sessions) == 2


async def test_a_consume_loop_that_ended_is_replaced(
    running: OwnBroker,
    settings: KafkaSettings,
    hasty: None,
    sessions: list[session.Session],
) -> None:
    async with open_mouth(settings) as mouth:
        await _hint_comes_through(settings, mouth)
        for task in sessions[0]._subscriber.tasks:
            task.cancel()
        await mouth.until(lambda: True)
        await _hint_comes_through(settings, mouth)
    assert len(sessions) == 2


async def test_a_topic_that_was_deleted_is_made_again(
    admin: AIOKafkaAdminClient, settings: KafkaSettings, lines: Lines
) -> None:
    topic = Topic.capture
    async with open_mouth(settings, topic=topic) as mouth:
        async with Sender(settings) as sender:
            await mouth.until_taken(await sender.hint(topic=topic))
        await admin.delete_topics([topic.value])
        await until_logged(lines, "joined", times=2)
        async with Sender(settings) as sender:
            await mouth.until_taken(await sender.hint(topic=topic))
    assert len(await records_of(settings, topic)) == 1


async def test_a_client_that_fails_while_it_joins_is_unavailable(
    running: OwnBroker, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_topics(_: KafkaSettings) -> frozenset[Topic]:
        return frozenset()

    async def nothing(*_: Any) -> None:
        raise AssertionError

    (free,) = ports.free_block(1)
    monkeypatch.setattr(session, "ensure_topics", no_topics)
    nowhere = settings.model_copy(update={"kafka_bootstrap_servers": f"127.0.0.1:{free}"})
    how: dict[str, Any] = {"judge": nothing, "handle": nothing, "park": nothing}
    opened = session.Session(nowhere, Topic.submit, "g", **how, handler_seconds=1.0)
    with pytest.raises(Unavailable, match="join"):
        await opened.start()
    await opened.close()
    await opened.close()
    assert is_only_task()


async def test_a_session_that_cannot_leave_in_time_is_abandoned(
    running: OwnBroker,
    settings: KafkaSettings,
    lines: Lines,
    sessions: list[session.Session],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "CLOSE_SECONDS", 0.1)
    async with open_mouth(settings, handler_seconds=0.1) as mouth:
        await _hint_comes_through(settings, mouth)
        with running.frozen():
            await mouth.stop()
    assert any(line["event"] == "consumer_abandoned" for line in lines)
    assert is_only_task()
