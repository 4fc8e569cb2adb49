"""Where outbox rows go: a Kafka producer that can be thrown away, or nowhere at all.

Owns the one producer of this process. Promises that no call hangs, that what was acknowledged
is told apart from what was not even when the time ran out half-way, and that a producer which
failed once is never used again. Must never keep a row to itself: what is not delivered is named,
and the loop gives it back.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from services.relay.records import outgoing
from shared.domain.errors import Unavailable
from shared.kit.bus import dispose, ensure_topics, make_producer
from shared.kit.logs import get_logger
from shared.kit.settings import KafkaSettings
from shared.store.outbox import OutboxRow

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

START_SECONDS = 10.0
PROBE_SECONDS = 2.0
CLIENT_ID = "coatcheck-relay"

_log = get_logger()


@dataclass
class Dispatch:
    """What became of a batch; every row stands in exactly one list.

    `dropped` rows are to be deleted unsent, `refused` ones can never be sent as they are, `left`
    ones may be sent later. `error` is what made a producer useless.
    """

    delivered: list[OutboxRow] = field(default_factory=list)
    dropped: list[OutboxRow] = field(default_factory=list)
    refused: list[OutboxRow] = field(default_factory=list)
    left: list[OutboxRow] = field(default_factory=list)
    error: BaseException | None = None


class Channel(Protocol):
    """Implemented by KafkaChannel and DiscardingChannel."""

    async def open(self) -> None:
        """Makes sure that rows can be dispatched now. Raises Unavailable."""

    async def dispatch(self, rows: Sequence[OutboxRow]) -> Dispatch:
        """Sends rows; never raises for trouble on the way."""

    async def is_up(self) -> bool:
        """Whether rows can be dispatched now, without making anything new."""

    async def close(self) -> None:
        """Lets go of everything, within seconds."""


class DiscardingChannel:
    """No broker is configured: nobody will ever read these rows, so they are dropped."""

    async def open(self) -> None:
        """There is nothing to open."""

    async def dispatch(self, rows: Sequence[OutboxRow]) -> Dispatch:
        """Drops every row."""
        return Dispatch(dropped=list(rows))

    async def is_up(self) -> bool:
        """Always: dropping needs nobody."""
        return True

    async def close(self) -> None:
        """There is nothing to close."""


class KafkaChannel:
    """Sends a batch pipelined; idempotent, acks=all. `send_seconds` bounds one batch."""

    def __init__(self, settings: KafkaSettings, *, send_seconds: float) -> None:
        self._settings = settings
        self._send_seconds = send_seconds
        self._producer: AIOKafkaProducer | None = None

    async def open(self) -> None:
        """Makes a producer where there is none, or where the last one lost its brokers."""
        if self._producer is not None:
            if await self.is_up():
                return
            await self.close()
        from aiokafka.errors import KafkaError

        await ensure_topics(self._settings)
        producer = make_producer(self._settings, client_id=CLIENT_ID)
        try:
            async with asyncio.timeout(START_SECONDS):
                await producer.start()
        except (KafkaError, OSError) as error:
            await dispose(producer)
            raise Unavailable("Kafka does not take a producer") from error
        self._producer = producer

    async def dispatch(self, rows: Sequence[OutboxRow]) -> Dispatch:
        """Sends every row and waits for the brokers' word, for `send_seconds` at most."""
        from aiokafka.errors import KafkaError, MessageSizeTooLargeError

        done = Dispatch()
        waiting: list[tuple[OutboxRow, asyncio.Future[object]]] = []
        try:
            async with asyncio.timeout(self._send_seconds):
                for row in rows:
                    try:
                        acknowledged = await self._hand_over(row)
                    except MessageSizeTooLargeError:
                        acknowledged = None
                    if acknowledged is None:
                        done.refused.append(row)
                    else:
                        acknowledged.add_done_callback(_look_at)
                        waiting.append((row, acknowledged))
                if waiting:
                    await asyncio.wait([future for _, future in waiting])
        except (KafkaError, OSError, Unavailable) as error:
            done.error = error
        _sort(done, rows, waiting)
        if done.error is not None:
            await self.close()
        return done

    async def is_up(self) -> bool:
        """Whether some broker has a live connection with us, or takes a new one."""
        producer = self._producer
        if producer is None:
            return False
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                for broker in producer.client.cluster.brokers():
                    if await producer.client.ready(broker.nodeId):
                        return True
        except TimeoutError:
            return False
        return False

    async def close(self) -> None:
        """Disposes of the producer, if there is one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await dispose(producer)

    async def _hand_over(self, row: OutboxRow) -> "asyncio.Future[object] | None":
        """Puts one record into the producer's buffer; None where it has no topic."""
        record = outgoing(row)
        if record is None:
            return None
        if self._producer is None:
            raise Unavailable("the producer was closed meanwhile")
        sent: asyncio.Future[object] = await self._producer.send(
            record.topic, record.value, key=record.key, headers=list(record.headers)
        )
        return sent


def _look_at(acknowledged: "asyncio.Future[object]") -> None:
    """Looks at a late error, so that nobody complains that it was never looked at."""
    if not acknowledged.cancelled():
        acknowledged.exception()


def _sort(
    done: Dispatch,
    rows: Sequence[OutboxRow],
    waiting: list[tuple[OutboxRow, "asyncio.Future[object]"]],
) -> None:
    """Tells acknowledged rows from the rest, and takes the first error that a row met."""
    for row, acknowledged in waiting:
        if not acknowledged.done() or acknowledged.cancelled():
            continue
        error = acknowledged.exception()
        if error is None:
            done.delivered.append(row)
        else:
            done.error = done.error or error
    settled = {row.id for row in (*done.delivered, *done.refused)}
    done.left.extend(row for row in rows if row.id not in settled)
    if done.refused:
        kinds = sorted({row.aggregatetype for row in done.refused})
        _log.error("outbox_rows_refused", kind=kinds, rows=len(done.refused))
