"""Loops that consume: a topic, a group, one message at a time, whatever comes.

The policy of the house for every message: unreadable → parked and acknowledged; a part that is
away (`Unavailable`) → a pause with jitter, then the same message again; any other error →
logged, counted, acknowledged, for the sweep remembers what Kafka forgets. With the broker gone
the loop lives on and joins again by itself. Must never act on a message as if it were a fact.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shared.domain.errors import TooLarge, Unavailable
from shared.domain.hints import Hint
from shared.kit.bus.messages import ParkedMessage, Undecodable, decode_hint, header_of
from shared.kit.bus.producing import Publisher
from shared.kit.bus.session import Session
from shared.kit.bus.topics import Topic
from shared.kit.logs import get_logger
from shared.kit.loops import Backoff, Outage, Pulse, wait_any
from shared.kit.settings import KafkaSettings
from shared.kit.telemetry import dead_letters
from shared.kit.tracing import continued_trace

if TYPE_CHECKING:
    from faststream.kafka.message import KafkaMessage

HANDLER_SECONDS = 60.0
PROBE_EVERY_SECONDS = 3.0
SILENT_PROBES = 2
HOPELESS_PROBES = 60
PARK_ATTEMPTS = 3

T = TypeVar("T")

Park = Callable[[ParkedMessage], Awaitable[object]]

_log = get_logger()


class TopicLoop(Generic[T]):
    """Consumes one topic: `decode` reads a value or raises Undecodable, `take` acts on it.

    `take` has 60 seconds. `park` keeps a bad message (once per topic, partition and offset).
    Both may raise Unavailable. Without a configured broker the loop only beats.
    """

    beat_bound_seconds = 150.0  # joining and leaving have deadlines of their own below this

    def __init__(
        self,
        settings: KafkaSettings,
        topic: Topic,
        group: str,
        take: Callable[[T], Awaitable[None]],
        park: Park,
        *,
        decode: Callable[[bytes | None], T],
        name: str | None = None,
        handler_seconds: float = HANDLER_SECONDS,
    ) -> None:
        self.name = name or f"{group}.{topic.name}"
        self._settings, self._topic, self._group = settings, topic, group
        self._take, self._park, self._decode = take, park, decode
        self._handler_seconds = handler_seconds
        self._publisher = Publisher(settings, client_id=f"{group}-parking")
        self._part = Outage(f"{self.name}: a part that a message needs")
        self._pause = Backoff(0.5, 10.0)
        self._stopping = asyncio.Event()

    async def run(self, pulse: Pulse) -> None:
        """Consumes until stopped, joining again after every loss of the broker."""
        self._stopping = pulse.stopping
        if not self._settings.kafka_bootstrap_servers:
            _log.warning("kafka_not_configured", message="sweeps carry the load alone")
            await pulse.sleep(float("inf"))
            return
        outage, backoff = Outage(f"{self.name}: Kafka"), Backoff(0.5, 10.0)
        try:
            while not pulse.stopping.is_set():
                pulse.beat()
                try:
                    await self._consume(pulse, outage)
                except Unavailable as error:
                    outage.failed(error)
                    await pulse.sleep(backoff.seconds(outage.attempts - 1))
        finally:
            await self._publisher.close()

    async def _consume(self, pulse: Pulse, outage: Outage) -> None:
        session = Session(
            self._settings,
            self._topic,
            self._group,
            judge=self._judge,
            handle=self._handle,
            park=self._set_aside,
            handler_seconds=self._handler_seconds,
        )
        try:
            await session.start()
            outage.worked()
            _log.info("joined", topic=self._topic.value, group=self._group)
            await self._watch(session, pulse, outage)
        finally:
            await session.close()

    async def _watch(self, session: Session, pulse: Pulse, outage: Outage) -> None:
        """Until stopped. A lost broker is waited for: the member that stays resumes at once,
        while a new one would wait for the old one's session to end.
        """
        silent = 0
        while not pulse.stopping.is_set():
            await pulse.sleep(PROBE_EVERY_SECONDS)
            if await session.is_answered():
                silent = 0
                outage.worked()
                continue
            silent += 1
            if silent >= SILENT_PROBES:
                outage.failed(Unavailable("Kafka does not answer"))
            if silent >= HOPELESS_PROBES:
                raise Unavailable("Kafka has not answered for long")

    async def _handle(self, content: T) -> None:
        await self._take(content)

    async def _judge(self, call_next: Callable[[Any], Awaitable[Any]], msg: "KafkaMessage") -> None:
        """One message, to its end; raises only to have it delivered again."""
        from faststream.exceptions import NackMessage

        record: Any = msg.raw_message
        try:
            with continued_trace(header_of(msg.headers, "traceparent")):
                await self._act(call_next, msg, record)
        except Unavailable as error:
            self._part.failed(error)
            pause_seconds = self._pause.seconds(self._part.attempts - 1)
            await wait_any(self._stopping, seconds=pause_seconds)
            raise NackMessage from error
        self._part.worked()

    async def _act(
        self, call_next: Callable[[Any], Awaitable[Any]], msg: "KafkaMessage", record: Any
    ) -> None:
        place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        try:
            content = self._decode(record.value)
        except Undecodable as error:
            await self._set_aside(
                ParkedMessage(**place, error=error.reason.value, key=record.key, value=record.value)
            )
            return
        msg.set_decoder(_already(content))
        try:
            async with asyncio.timeout(self._handler_seconds):
                await call_next(msg)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001  # one message's failure ends only itself
            _log.error("message_failed", **place, exc_info=error)

    async def _set_aside(self, parked: ParkedMessage) -> None:
        """Keeps the message in the table, then tells of it on the dead-letters topic."""
        await self._park(parked)
        dead_letters.labels(parked.topic).inc()
        place = {"topic": parked.topic, "partition": parked.partition, "offset": parked.offset}
        _log.warning("message_parked", **place, reason=parked.error)
        key, value, headers = parked.record()
        for attempt in range(PARK_ATTEMPTS):
            try:
                await self._publisher.send(Topic.dead_letters, value, key=key, headers=headers)
            except (Unavailable, TooLarge) as error:
                # The row stands. Holding up the partition for a notice would make it a loop.
                _log.error("dead_letter_not_sent", **place, attempt=attempt, exc_info=error)
            else:
                return


class HintLoop(TopicLoop[Hint]):
    """Consumes the hints of one topic; the second mouth beside a room's sweep."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: Topic,
        group: str,
        take: Callable[[Hint], Awaitable[None]],
        park: Park,
        *,
        name: str | None = None,
        handler_seconds: float = HANDLER_SECONDS,
    ) -> None:
        super().__init__(
            settings,
            topic,
            group,
            take,
            park,
            decode=decode_hint,
            name=name,
            handler_seconds=handler_seconds,
        )


def _already(content: object) -> Callable[[Any], Awaitable[object]]:
    """A decoder that hands out what was decoded before."""

    async def decode(_: Any) -> object:
        return content

    return decode
