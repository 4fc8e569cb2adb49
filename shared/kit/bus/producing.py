"""Producers: idempotent, bounded, and thrown away at the first sign of trouble.

With the broker gone an idempotent producer waits for ever, in `send` and in `stop` alike, and
after some errors it never recovers. So every call here has a deadline, and a producer that
failed is disposed of and replaced. Must never be asked whether something was delivered: an
error only means that nobody knows.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shared.domain.errors import TooLarge, Unavailable
from shared.kit.bus.ending import ends
from shared.kit.bus.topics import Topic, connection_options, ensure_topics
from shared.kit.logs import get_logger
from shared.kit.settings import KafkaSettings

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

START_SECONDS = 10.0
SEND_SECONDS = 5.0
STOP_SECONDS = 3.0
MAX_RECORD_BYTES = 1_000_000

_log = get_logger()


def make_producer(
    settings: KafkaSettings, *, client_id: str, linger_ms: int = 0
) -> "AIOKafkaProducer":
    """A producer, not yet started: idempotent, acks=all. Its owner bounds every call to it."""
    from aiokafka import AIOKafkaProducer

    return AIOKafkaProducer(
        **connection_options(settings),
        client_id=client_id,
        enable_idempotence=True,
        acks="all",
        linger_ms=linger_ms,
        max_request_size=MAX_RECORD_BYTES,
    )


async def dispose(producer: "AIOKafkaProducer", seconds: float = STOP_SECONDS) -> None:
    """Stops a producer for good within that time, whatever state it or the broker is in."""
    if await ends(producer.stop(), seconds):
        return
    # A `stop` that was cut short leaves the sender retrying for the life of the process, and
    # there is no public way to end it: first the sender, then what it held, then the sockets.
    _log.warning("producer_abandoned")
    await ends(producer._sender.close(), seconds)
    _fail_held(producer._message_accumulator)
    await ends(producer.client.close(), seconds)


def _fail_held(accumulator: Any) -> None:
    """Ends every wait for a batch, so that no task stays behind waiting for one."""
    held = accumulator._pending_batches
    held.update(batch for batches in accumulator._batches.values() for batch in batches)
    for batch in list(held):
        batch.failure(Unavailable("the producer was abandoned"))
        batch._drain_waiter.exception()  # seen, so that its end is no stray error


class Publisher:
    """Sends single records, with a producer that is made at need and replaced after trouble.

    May be used by several tasks at once. `send` takes at most about 20 seconds.
    """

    def __init__(self, settings: KafkaSettings, *, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id
        self._starting = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None

    async def send(
        self,
        topic: Topic,
        value: bytes,
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Sends and waits for the brokers' word. Raises Unavailable (not known) or TooLarge."""
        from aiokafka.errors import KafkaError, MessageSizeTooLargeError

        producer = await self._started()
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await producer.send_and_wait(topic.value, value, key=key, headers=list(headers))
        except MessageSizeTooLargeError as error:
            raise TooLarge("the record is larger than the topic takes") from error
        except (KafkaError, OSError) as error:
            await self._discard(producer)
            raise Unavailable(f"Kafka did not confirm a record on {topic.value}") from error

    async def close(self) -> None:
        """Disposes of the producer, if there is one. May be called twice."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await dispose(producer)

    async def _started(self) -> "AIOKafkaProducer":
        from aiokafka.errors import KafkaError

        async with self._starting:
            if self._producer is not None:
                return self._producer
            await ensure_topics(self._settings)
            producer = make_producer(self._settings, client_id=self._client_id)
            try:
                async with asyncio.timeout(START_SECONDS):
                    await producer.start()
                self._producer = producer
            except (KafkaError, OSError) as error:
                raise Unavailable("Kafka does not answer") from error
            finally:
                if self._producer is not producer:  # failed, or cancelled half-way
                    await dispose(producer)
            return producer

    async def _discard(self, producer: "AIOKafkaProducer") -> None:
        if self._producer is producer:
            self._producer = None
        await dispose(producer)
