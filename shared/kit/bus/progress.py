"""Whether a consumer gets on: the watch for records it cannot read, and for standing still.

A record that the client library cannot read (a broken header, a codec we lack) is raised
before any handler sees it, and fetched again for ever. A partition that stands still over
several such errors, at a record that was never handed out, has its record's place parked and
is moved one on. A consumer that stands still with messages waiting and none in hand is stuck.
Must never step over a record that could be read.
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
ERRORS_TO_STEP_OVER = 3

Place = tuple[int, int]
"""Partition and offset; the topic is one."""

_log = get_logger()


class Progress:
    """Looks at one consumer; serves as its logger too, which is where FastStream tells of errors.

    `is_stuck` after STUCK_LOOKS looks in a row at messages that wait while nothing moves.
    """

    def __init__(self, park: Callable[[ParkedMessage], Awaitable[object]]) -> None:
        self._park = park
        self._errors = 0
        self._taken = self._taken_at_last_look = 0
        self._in_hand = 0
        self._handed_out: dict[int, int] = {}
        self._errors_at: dict[Place, int] = {}
        self._still_looks = 0

    @property
    def is_stuck(self) -> bool:
        """Whether only a new consumer can help."""
        return self._still_looks >= STUCK_LOOKS

    @contextmanager
    def one_in_hand(self, partition: int, offset: int) -> Iterator[None]:
        """Around the handling of one message, also one that will be delivered again."""
        self._handed_out[partition] = offset
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
            self._errors += 1
        if level >= logging.ERROR:
            topic = (extra or {}).get("topic")
            _log.error("consumer_error", topic=topic, message=str(msg), exc_info=exc_info)

    async def look(self, consumer: "AIOKafkaConsumer") -> None:
        """Compares positions with ends and with the last look. Raises what the client does."""
        positions = {item: await consumer.position(item) for item in consumer.assignment()}
        ends = await consumer.end_offsets(list(positions)) if positions else {}
        waiting = {item: at for item, at in positions.items() if at < ends[item]}
        last, self._errors_at = self._errors_at, {}
        is_still = bool(waiting) and not self._in_hand and self._taken == self._taken_at_last_look
        self._taken_at_last_look = self._taken
        for item, offset in waiting.items():
            place = (item.partition, offset)
            is_still = is_still and place in last
            self._errors_at[place] = last.get(place, self._errors)
            errors = self._errors - self._errors_at[place]
            was_read = self._handed_out.get(item.partition) == offset
            if errors >= ERRORS_TO_STEP_OVER and not was_read:
                await self._step_over(consumer, item, offset)
        self._still_looks = self._still_looks + 1 if is_still else 0

    async def _step_over(
        self, consumer: "AIOKafkaConsumer", item: "TopicPartition", offset: int
    ) -> None:
        error = ParkReason.unreadable.value
        try:
            await self._park(
                ParkedMessage(item.topic, item.partition, offset, error, key=None, value=None)
            )
        except Unavailable as unavailable:
            _log.warning("park_failed", topic=item.topic, exc_info=unavailable)
            return  # the next look finds it again
        consumer.seek(item, offset + 1)
