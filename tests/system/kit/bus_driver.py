"""What the bus tests drive: a running loop with its takings, and records of every kind.

Topics are shared by all tests of a session, so every test has its own group and looks only at
its own jobs and offsets.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.record.util import calc_crc32c

from shared.domain.hints import Hint
from shared.kit.bus import (
    HintLoop,
    ParkedMessage,
    Topic,
    connection_options,
    dispose,
    ensure_topics,
    make_producer,
)
from shared.kit.loops import Pulse
from shared.kit.settings import KafkaSettings
from shared.kit.tracing import current_traceparent

WAIT_SECONDS = 90.0
CRC_AT, CHECKED_FROM = 17, 21  # of a record batch of the present format

Headers = Sequence[tuple[str, bytes | None]]
Act = Callable[[Hint], Awaitable[None]]


class Mouth:
    """A hint loop that runs; what it took and parked."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        topic: Topic = Topic.submit,
        group: str | None = None,
        act: Act | None = None,
        park: Callable[[ParkedMessage], Awaitable[None]] | None = None,
        handler_seconds: float = 60.0,
    ) -> None:
        self.group = group or f"test-{uuid4().hex}"
        self.taken: list[tuple[Hint, str | None]] = []
        self.parked: list[ParkedMessage] = []
        self.stopping = asyncio.Event()
        self._act, self._park = act, park
        self._changed = asyncio.Condition()
        self.loop = HintLoop(
            settings,
            topic,
            self.group,
            self._take,
            self._set_aside,
            handler_seconds=handler_seconds,
        )
        self.pulse = Pulse(self.loop.name, self.loop.beat_bound_seconds, self.stopping)
        self.running = asyncio.create_task(self.loop.run(self.pulse))

    async def _take(self, hint: Hint) -> None:
        if self._act is not None:
            await self._act(hint)
        async with self._changed:
            self.taken.append((hint, current_traceparent()))
            self._changed.notify_all()

    async def _set_aside(self, parked: ParkedMessage) -> None:
        if self._park is not None:
            await self._park(parked)
        async with self._changed:
            self.parked.append(parked)
            self._changed.notify_all()

    def times_taken(self, job_id: UUID) -> int:
        """How often a job's hint was taken to its end."""
        return sum(hint.job_id == job_id for hint, _ in self.taken)

    async def until_taken(self, *job_ids: UUID) -> None:
        """Waits until each of these jobs was hinted at."""
        await self.until(lambda: all(self.times_taken(job_id) for job_id in job_ids))

    async def until_parked(self, *offsets: tuple[int, int]) -> None:
        """Waits until the records at these (partition, offset) were parked."""
        await self.until(lambda: {(p.partition, p.offset) for p in self.parked} >= set(offsets))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for something to hold of what was taken and parked."""
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(holds)

    async def stop(self) -> None:
        """Drains the loop, as the runner does."""
        self.stopping.set()
        await self.running


@asynccontextmanager
async def open_mouth(settings: KafkaSettings, **how: Any) -> AsyncIterator[Mouth]:
    """A mouth that is stopped afterwards."""
    mouth = Mouth(settings, **how)
    try:
        yield mouth
    finally:
        await mouth.stop()


class Sender:
    """Puts records of any kind on topics."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer: Any = None

    async def __aenter__(self) -> "Sender":
        await ensure_topics(self._settings)
        self._producer = make_producer(self._settings, client_id="test")
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await dispose(self._producer)

    async def raw(
        self, value: bytes | None, *, topic: Topic = Topic.submit, headers: Headers = ()
    ) -> tuple[int, int]:
        """Sends any bytes; where they stand."""
        sent = await self._producer.send_and_wait(
            topic.value, value, key=b"k", headers=list(headers)
        )
        return sent.partition, sent.offset

    async def hint(
        self,
        job_id: UUID | None = None,
        *,
        topic: Topic = Topic.submit,
        headers: Headers = (),
    ) -> UUID:
        """Sends a good hint; its job."""
        job_id = job_id or uuid4()
        body = {"job_id": str(job_id), "reason": "test", "version": 1}
        await self.raw(json.dumps(body).encode(), topic=topic, headers=headers)
        return job_id


async def send_broken_header(
    settings: KafkaSettings, topic: Topic, partition: int
) -> tuple[int, int]:
    """Sends a record whose header name is not UTF-8, which our client cannot read."""
    producer = AIOKafkaProducer(**connection_options(settings))
    await producer.start()
    try:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=b"k", value=b"v", headers=[("broken-name", b"x")])
        data = batch._build()
        at = data.index(b"broken-name")
        data[at : at + 2] = b"\xff\xfe"
        data[CRC_AT:CHECKED_FROM] = calc_crc32c(bytes(data[CHECKED_FROM:])).to_bytes(4, "big")
        sending = await producer.send_batch(batch, topic.value, partition=partition)
        sent = await sending
    finally:
        await producer.stop()
    return partition, sent.offset


async def committed_lag(settings: KafkaSettings, topic: Topic, group: str) -> int:
    """How many records of a topic the group has not acknowledged."""
    admin = AIOKafkaAdminClient(**connection_options(settings))
    consumer = AIOKafkaConsumer(**connection_options(settings))
    await admin.start()
    await consumer.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
        partitions = [TopicPartition(topic.value, n) for n in range(6)]
        ends = await consumer.end_offsets(partitions)
        return sum(
            ends[item] - (offsets[item].offset if item in offsets else 0) for item in partitions
        )
    finally:
        await consumer.stop()
        await admin._client.close()


async def records_of(settings: KafkaSettings, topic: Topic) -> list[Any]:
    """Every record of a topic, from the beginning to its present end."""
    consumer = AIOKafkaConsumer(**connection_options(settings), auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(topic.value, n) for n in range(6)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        records: list[Any] = []
        while sum(ends.values()) > len(records):
            for batch in (await consumer.getmany(timeout_ms=1000)).values():
                records.extend(batch)
        return records
    finally:
        await consumer.stop()
