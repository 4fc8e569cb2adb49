"""Consuming hints from a real broker: whatever comes, the loop goes on and loses no good one."""

import asyncio
import json
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from shared.domain.errors import Unavailable
from shared.domain.hints import Hint
from shared.kit.bus import ParkedMessage, Topic, ensure_topics
from shared.kit.settings import KafkaSettings
from shared.kit.telemetry import dead_letters
from tests import parts
from tests.system.kit.bus_driver import (
    Mouth,
    Sender,
    committed_lag,
    open_mouth,
    records_of,
    send_broken_header,
)

TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for these tests alone: they leave records behind that no client can read."""
    with parts.kafka(tmp_path_factory.mktemp("bus-kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture
def settings(kafka_bootstrap: str) -> KafkaSettings:
    return KafkaSettings(kafka_bootstrap_servers=kafka_bootstrap)


async def test_hints_are_taken_once_each_and_acknowledged(settings: KafkaSettings) -> None:
    async with Sender(settings) as sender, open_mouth(settings) as mouth:
        jobs = [await sender.hint() for _ in range(20)]
        await mouth.until_taken(*jobs)
    assert [mouth.times_taken(job) for job in jobs] == [1] * 20
    assert await committed_lag(settings, Topic.submit, mouth.group) == 0


async def test_a_hint_sent_before_the_first_join_is_not_missed(settings: KafkaSettings) -> None:
    async with Sender(settings) as sender:
        job = await sender.hint()
        async with open_mouth(settings) as mouth:
            await mouth.until_taken(job)


async def test_the_trace_of_a_hint_is_continued(settings: KafkaSettings) -> None:
    async with Sender(settings) as sender, open_mouth(settings) as mouth:
        traced = await sender.hint(headers=[("traceparent", TRACEPARENT)])
        untraced = await sender.hint(headers=[("traceparent", b"nonsense")])
        await mouth.until_taken(traced, untraced)
    traces = {hint.job_id: trace for hint, trace in mouth.taken}
    assert traces[traced] == TRACEPARENT.decode()
    assert traces[untraced] not in (None, TRACEPARENT.decode(), "nonsense")


BAD_VALUES = [
    (None, "empty"),
    (b"", "empty"),
    (b"s3cr3t-garbage", "not_json"),
    (b"\xff\xfe", "not_json"),
    (b"[" * 10_000, "not_json"),
    (b"s3cr3t" * 150_000, "too_large"),
    (b"{}", "wrong_fields"),
    (b'{"job_id": 1, "reason": "s3cr3t", "version": 1}', "wrong_fields"),
]


async def test_bad_messages_are_parked_and_told_of_and_never_seen_again(
    settings: KafkaSettings,
) -> None:
    counted = dead_letters.labels(Topic.submit.value)._value.get()
    async with Sender(settings) as sender, open_mouth(settings) as mouth:
        places = {await sender.raw(value): reason for value, reason in BAD_VALUES}
        job = await sender.hint()
        await mouth.until_taken(job)
        await mouth.until_parked(*places)
    ours = [parked for parked in mouth.parked if (parked.partition, parked.offset) in places]
    assert len(ours) == len(places)
    for parked in ours:
        assert parked.error == places[parked.partition, parked.offset]
        assert parked.topic == Topic.submit.value
    assert dead_letters.labels(Topic.submit.value)._value.get() >= counted + len(places)
    assert await committed_lag(settings, Topic.submit, mouth.group) == 0
    notices = await records_of(settings, Topic.dead_letters)
    told = {
        (body["partition"], body["offset"]): body["error"]
        for body in (json.loads(record.value) for record in notices)
        if body["topic"] == Topic.submit.value
    }
    assert places.items() <= told.items()
    assert not any(b"s3cr3t" in record.value for record in notices)


async def test_odd_headers_harm_nobody(settings: KafkaSettings) -> None:
    before = len(await _all_but_submit(settings))
    async with Sender(settings) as sender, open_mouth(settings) as mouth:
        jobs = [
            await sender.hint(headers=headers)
            for headers in (
                [("traceparent", None)],
                [("x", b"\xff\xfe")],
                [("content-type", b"text/plain")],
                [("content-type", b"application/xml")],
                [("reply_to", Topic.check.value.encode()), ("correlation_id", b"c")],
            )
        ]
        await mouth.until_taken(*jobs)
    assert not [parked for parked in mouth.parked if parked.error == "unreadable"]
    assert len(await _all_but_submit(settings)) == before


async def _all_but_submit(settings: KafkaSettings) -> list[object]:
    await ensure_topics(settings)
    return await records_of(settings, Topic.check)


async def test_a_part_that_is_away_brings_the_same_message_again(settings: KafkaSettings) -> None:
    attempts: dict[UUID, int] = {}
    troubled = uuid4()

    async def act(hint: Hint) -> None:
        attempts[hint.job_id] = attempts.get(hint.job_id, 0) + 1
        if hint.job_id == troubled and attempts[troubled] < 3:
            raise Unavailable("no database")

    async with Sender(settings) as sender, open_mouth(settings, act=act) as mouth:
        await sender.hint(troubled)
        after = await sender.hint()
        await mouth.until_taken(troubled, after)
    assert attempts[troubled] == 3
    assert attempts[after] == 1
    order = [hint.job_id for hint, _ in mouth.taken if hint.job_id in (troubled, after)]
    assert order == [troubled, after]
    assert await committed_lag(settings, Topic.submit, mouth.group) == 0


async def test_any_other_error_is_logged_and_not_repeated(
    settings: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts: dict[UUID, int] = {}
    troubled = uuid4()

    async def act(hint: Hint) -> None:
        attempts[hint.job_id] = attempts.get(hint.job_id, 0) + 1
        if hint.job_id == troubled:
            raise ValueError("a bug")

    async with Sender(settings) as sender, open_mouth(settings, act=act) as mouth:
        await sender.hint(troubled)
        after = await sender.hint()
        await mouth.until_taken(after)
    assert attempts[troubled] == 1
    assert "message_failed" in capsys.readouterr().out
    assert await committed_lag(settings, Topic.submit, mouth.group) == 0


async def test_a_handler_that_hangs_is_cut_off(settings: KafkaSettings) -> None:
    troubled = uuid4()
    was_cancelled = asyncio.Event()

    async def act(hint: Hint) -> None:
        if hint.job_id == troubled:
            try:
                await asyncio.Event().wait()
            finally:
                was_cancelled.set()

    how = {"act": act, "handler_seconds": 0.2}
    async with Sender(settings) as sender, open_mouth(settings, **how) as mouth:
        await sender.hint(troubled)
        await mouth.until_taken(await sender.hint())
    assert was_cancelled.is_set()
    assert mouth.times_taken(troubled) == 0


async def test_a_message_that_cannot_be_parked_now_is_parked_later(
    settings: KafkaSettings,
) -> None:
    attempts: dict[tuple[int, int], int] = {}

    async def park(parked: ParkedMessage) -> None:
        place = (parked.partition, parked.offset)
        attempts[place] = attempts.get(place, 0) + 1
        if attempts[place] == 1:
            raise Unavailable("no database")

    topic = Topic.capture
    async with Sender(settings) as sender, open_mouth(settings, topic=topic, park=park) as mouth:
        place = await sender.raw(b"garbage", topic=topic)
        await mouth.until_parked(place)
    assert attempts[place] == 2


@pytest.mark.slow
async def test_a_record_that_the_client_cannot_read_is_stepped_over(
    settings: KafkaSettings,
) -> None:
    topic, refused = Topic.transitions, set[int]()

    async def park(parked: ParkedMessage) -> None:
        if parked.error == "unreadable" and parked.offset not in refused:
            refused.add(parked.offset)
            raise Unavailable("no database")

    async with Sender(settings) as sender, open_mouth(settings, topic=topic, park=park) as mouth:
        partition, _ = await sender.raw(b"{}", topic=topic)
        place = await send_broken_header(settings, topic, partition)
        job = await sender.hint(topic=topic)
        await mouth.until_taken(job)
        await mouth.until_parked(place)
    (parked,) = [p for p in mouth.parked if (p.partition, p.offset) == place]
    assert (parked.error, parked.value) == ("unreadable", None)
    assert refused == {place[1]}
    assert await committed_lag(settings, topic, mouth.group) == 0


async def test_a_drain_finishes_and_acknowledges_the_message_in_hand(
    settings: KafkaSettings,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    held = uuid4()

    async def act(hint: Hint) -> None:
        if hint.job_id == held:
            begun.set()
            await go_on.wait()

    async with Sender(settings) as sender:
        async with open_mouth(settings, topic=Topic.check, act=act) as mouth:
            await sender.hint(held, topic=Topic.check)
            await begun.wait()
            mouth.stopping.set()
            await asyncio.sleep(0)
            assert not mouth.running.done()
            go_on.set()
        assert mouth.times_taken(held) == 1
        assert await committed_lag(settings, Topic.check, mouth.group) == 0
        async with open_mouth(settings, topic=Topic.check, group=mouth.group) as second:
            job = await sender.hint(topic=Topic.check)
            await second.until_taken(job)
        assert second.times_taken(held) == 0


async def test_a_stop_does_not_wait_for_a_part_that_is_away(settings: KafkaSettings) -> None:
    began = asyncio.Event()

    async def act(hint: Hint) -> None:
        began.set()
        raise Unavailable("no database")

    async with Sender(settings) as sender, open_mouth(settings, act=act) as mouth:
        await sender.hint()
        await began.wait()
    assert mouth.running.done()
    assert await committed_lag(settings, Topic.submit, mouth.group) > 0


async def test_two_members_share_a_group(settings: KafkaSettings) -> None:
    async with Sender(settings) as sender, open_mouth(settings, topic=Topic.capture) as first:
        await first.until_taken(await sender.hint(topic=Topic.capture))
        group = {"topic": Topic.capture, "group": first.group}
        async with open_mouth(settings, **group) as second:
            jobs = [await sender.hint(topic=Topic.capture) for _ in range(50)]
            for job in jobs:
                await _until_either_took(job, first, second)
    assert await committed_lag(settings, Topic.capture, first.group) == 0


async def _until_either_took(job: UUID, *mouths: Mouth) -> None:
    waits = [asyncio.create_task(mouth.until_taken(job)) for mouth in mouths]
    done, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in left:
        wait.cancel()
    for wait in done:
        wait.result()


async def test_without_a_configured_broker_the_loop_only_beats() -> None:
    async with open_mouth(KafkaSettings()) as mouth:
        await mouth.pulse.first_beat.wait()
        assert not mouth.running.done()
    assert mouth.taken == []
