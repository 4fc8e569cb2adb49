"""One consuming connection to Kafka: from joining the group until it is lost or stopped.

Wraps a FastStream broker with one sequential subscriber on one topic. Promises that nothing
here outlives `close`, and that whatever goes wrong with the connection is `Unavailable`; the
loop above then makes a new one. Must never decide anything about a message: `judge` does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.domain.errors import Unavailable
from shared.kit.bus.ending import ends
from shared.kit.bus.messages import ParkedMessage, with_safe_headers
from shared.kit.bus.progress import Progress
from shared.kit.bus.topics import Topic, connection_options, ensure_topics
from shared.kit.logs import get_logger
from shared.kit.settings import KafkaSettings

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from faststream.kafka import KafkaBroker
    from faststream.kafka.message import KafkaMessage

START_SECONDS = 45.0
PROBE_SECONDS = 5.0
CLOSE_SECONDS = 10.0
TEAR_DOWN_SECONDS = 3.0
MAX_POLL_INTERVAL_MS = 300_000
SESSION_TIMEOUT_MS = 10_000
MAX_RESTARTS = 5

CallNext = Callable[[Any], Awaitable[Any]]
Judge = Callable[[CallNext, "KafkaMessage"], Awaitable[None]]

_log = get_logger()


class Session:
    """Consumes one topic as one member of one group, handing every message to `judge`."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: Topic,
        group: str,
        *,
        judge: Judge,
        handle: Callable[[Any], Awaitable[None]],
        park: Callable[[ParkedMessage], Awaitable[object]],
        handler_seconds: float,
    ) -> None:
        self._settings, self._topic, self._group = settings, topic, group
        self._judge, self._handle = judge, handle
        self._handler_seconds = handler_seconds
        self._broker: KafkaBroker | None = None
        self._subscriber: Any = None
        self._progress = Progress(park)

    async def start(self) -> None:
        """Makes missing topics, connects, joins the group. Raises Unavailable."""
        await ensure_topics(self._settings)
        broker, subscriber = self._assemble()
        self._broker, self._subscriber = broker, subscriber
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._connect(broker)
        except Exception as error:
            # Whatever a client library dies of while it connects, the loop tries again.
            raise Unavailable("Kafka does not let us join") from error

    def _assemble(self) -> tuple["KafkaBroker", Any]:
        from faststream import AckPolicy, BaseMiddleware
        from faststream.kafka import KafkaBroker

        judge, progress = self._judge, self._progress

        class Judging(BaseMiddleware[Any, Any]):
            async def consume_scope(self, call_next: Any, msg: Any) -> Any:
                record = msg.raw_message
                with progress.one_in_hand(record.partition, record.offset):
                    return await judge(call_next, msg)

        options = connection_options(self._settings)
        security = _as_faststream_security(options)
        broker = KafkaBroker(
            **options,
            security=security,
            client_id=self._group,
            consumer_only=True,
            allow_auto_create_topics=False,
            ack_policy=AckPolicy.ACK,
            graceful_timeout=self._handler_seconds,
            middlewares=[Judging],
            parser=_parse,
            decoder=_raw_body,
            logger=self._progress,
            apply_types=False,
        )
        subscriber = broker.subscriber(
            self._topic.value,
            group_id=self._group,
            auto_offset_reset="earliest",
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            no_reply=True,
        )
        subscriber(self._handle)
        return broker, subscriber

    async def _connect(self, broker: "KafkaBroker") -> None:
        """Starts the broker on a consumer whose every error is one that FastStream waits after.

        It restarts its loop without a pause after any error that is not Kafka's own, and the
        client raises such errors for records that it cannot read.
        """
        await broker.connect()
        builder = broker.config.broker_config.builder
        broker.config.broker_config.builder = partial(_steady_consumer, builder)
        await broker.start()

    async def is_answered(self) -> bool:
        """Whether the cluster gives a sign of life. Raises Unavailable where only a new
        connection can help: the topic is gone, the consume loop ended or stands still.
        """
        ended = sum(task.done() for task in self._subscriber.tasks)
        if ended >= min(len(self._subscriber.tasks), MAX_RESTARTS):
            raise Unavailable("the consume loop keeps ending")  # it is restarted without a pause
        consumer: AIOKafkaConsumer = self._subscriber.consumer
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                is_there = self._topic.value in await consumer.topics()
                if is_there:
                    await self._progress.look(consumer)
        except Exception as error:  # noqa: BLE001  # whatever it dies of, it is no sign of life
            _log.debug("probe_failed", exc_info=error)
            return False
        if self._progress.is_stuck:
            raise Unavailable("messages wait and none is fetched")
        if not is_there:
            raise Unavailable("the topic is gone")  # a new connection makes it, and sees it
        return True

    async def close(self) -> None:
        """Lets the message in hand end, leaves the group, closes. Never raises."""
        broker, self._broker = self._broker, None
        if broker is None:
            return
        consumer = self._subscriber.consumer
        if not await ends(broker.stop(), self._handler_seconds + CLOSE_SECONDS):
            _log.warning("consumer_abandoned", topic=self._topic.value)
            await _tear_down(consumer)


async def _tear_down(consumer: "AIOKafkaConsumer | None") -> None:
    """Ends what a `stop` that was cut short left running; there is no public way to."""
    if consumer is None:
        return
    for name in ("_coordination_task", "_heartbeat_task", "_commit_refresh_task"):
        task = getattr(consumer._coordinator, name, None)
        if task is not None:
            task.cancel()
    if consumer._fetcher is not None:
        await ends(consumer._fetcher.close(), TEAR_DOWN_SECONDS)
    await ends(consumer._client.close(), TEAR_DOWN_SECONDS)


def _steady_consumer(builder: Callable[..., Any], **options: Any) -> Any:
    from aiokafka.errors import ConsumerStoppedError, CorruptRecordException, KafkaError

    consumer = builder(**options)
    getone = consumer.getone

    async def getone_steadily(*partitions: Any) -> Any:
        try:
            return await getone(*partitions)
        except (KafkaError, ConsumerStoppedError):
            raise
        except Exception as error:
            raise CorruptRecordException("a record cannot be read") from error

    consumer.getone = getone_steadily
    return consumer


async def _parse(record: Any, original: Callable[[Any], Awaitable[Any]]) -> Any:
    """FastStream's own parsing, of a record that it cannot stumble over."""
    return await original(with_safe_headers(record))


async def _raw_body(message: "KafkaMessage") -> Any:
    """The value as it came: `judge` reads it."""
    return message.body


def _as_faststream_security(options: dict[str, Any]) -> Any:
    """Takes the security arguments out of the options, as the object FastStream wants."""
    from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512

    protocol = options.pop("security_protocol")
    tls: dict[str, Any] = {
        "ssl_context": options.pop("ssl_context", None),
        "use_ssl": "SSL" in protocol.removeprefix("SASL"),
    }
    mechanism = options.pop("sasl_mechanism", None)
    if mechanism is None:
        return BaseSecurity(**tls)
    kinds = {
        "PLAIN": SASLPlaintext,
        "SCRAM-SHA-256": SASLScram256,
        "SCRAM-SHA-512": SASLScram512,
    }
    return kinds[mechanism](
        options.pop("sasl_plain_username"), options.pop("sasl_plain_password"), **tls
    )
