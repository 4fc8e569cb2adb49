"""Whether a consumer gets on: the watch for records it cannot read, and for standing still.

A record that the client library cannot read (a broken header, a codec we lack) is raised
before any handler sees it, and fetched again for ever: two looks in a row that find such an
error and a partition that does not move park the record's place and step over it. A consumer
that stands still with messages waiting and none in hand is called stuck. A hint lost here
costs latency only. Must never step over a record that could be read.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shared.domain.errors import Unavailable
from shared.kit.bus.messages import ParkedMessage, ParkReason
from shared.kit.logs import get_logger

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, TopicPartition

STUCK_LOOKS = 10

_log = get_logger()


class Progress:
    """Looks at one consumer; serves as its logger too, which is where FastStream tells of errors.

    `is_stuck` after STUCK_LOOKS looks in a row at messages that wait while nothing moves.
    """

    def __init__(self, park: Callable[[ParkedMessage], Awaitable[None]]) -> None:
        self._park = park
        self._saw_unreadable = False
        self._in_hand = 0
        self._taken = 0
        self._last: tuple[int, dict[TopicPartition, int]] = (0, {})
        self._still_looks = 0

    @property
    def is_stuck(self) -> bool:
        """Whether only a new consumer can help."""
        return self._still_looks >= STUCK_LOOKS

    @contextmanager
    def one_in_hand(self) -> Iterator[None]:
        """Around the handling of one message, also one that will be delivered again."""
        self._in_hand += 1
        self._taken += 1
        try:
            yield
        finally:
            self._in_hand -= 1

    def log(
        self,
        level: int,
        msg: Any,
        /,
        *,
        exc_info: Any = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes a line of FastStream's; only errors are passed on."""
        from aiokafka.errors import CorruptRecordException, UnsupportedCodecError

        if isinstance(exc_info, CorruptRecordException | UnsupportedCodecError):
            self._saw_unreadable = True
        if level >= logging.ERROR:
            topic = (extra or {}).get("topic")
            _log.error("consumer_error", topic=topic, message=str(msg), exc_info=exc_info)

    async def look(self, consumer: "AIOKafkaConsumer") -> None:
        """Compares positions with the ends and with the last look. Raises what the client does."""
        saw_unreadable, self._saw_unreadable = self._saw_unreadable, False
        positions = {item: await consumer.position(item) for item in consumer.assignment()}
        ends = await consumer.end_offsets(list(positions)) if positions else {}
        last_taken, last_positions = self._last
        still = [
            item
            for item, offset in positions.items()
            if offset < ends[item] and last_positions.get(item) == offset
        ]
        if still and not self._in_hand and self._taken == last_taken:
            self._still_looks += 1
        else:
            self._still_looks = 0
        self._last = (self._taken, positions)
        if saw_unreadable:
            for item in still:
                await self._step_over(consumer, item, positions[item])

    async def _step_over(
        self, consumer: "AIOKafkaConsumer", place: "TopicPartition", offset: int
    ) -> None:
        error = ParkReason.unreadable.value
        try:
            await self._park(
                ParkedMessage(place.topic, place.partition, offset, error, key=None, value=None)
            )
        except Unavailable as unavailable:
            _log.warning("park_failed", topic=place.topic, exc_info=unavailable)
            return  # it is raised again, and looked at again
        consumer.seek(place, offset + 1)
        self._still_looks = 0
