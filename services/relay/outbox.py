"""The relay's loop: claim rows, send them, delete what was acknowledged, give back the rest.

Promises at-least-once and no order beyond a partition's; no transaction is open while the
network is waited for. Polls a few milliseconds after it found work and ever slower without. With
Kafka or PostgreSQL away it waits, says so once, and rows stay where they are. Must never pick
rows by an id cursor: sequences commit out of order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from services.relay.channels import Channel, Dispatch
from shared.domain.errors import Unavailable
from shared.domain.hints import HintKind
from shared.kit.loops import Backoff, Outage, Pulse
from shared.kit.telemetry import relay_published
from shared.store.outbox import OutboxRow, outbox_claimed, outbox_released, outbox_settled
from shared.store.pool import Database

REFUSED_REST = timedelta(minutes=1)
AT_ONCE = timedelta(0)

_TOPICS = {kind.value: kind.topic for kind in HintKind}


@dataclass
class Pace:
    """Sleeps between passes: `busy_seconds` after work, doubling up to `idle_seconds`."""

    busy_seconds: float
    idle_seconds: float
    _next_seconds: float = 0.0

    def after(self, *, found_work: bool) -> float:
        """The sleep before the next pass."""
        doubled = max(self._next_seconds * 2, self.busy_seconds)
        self._next_seconds = self.busy_seconds if found_work else min(doubled, self.idle_seconds)
        return self._next_seconds


class OutboxLoop:
    """Forwards batches of at most `batch` rows, each claimed for `claim_life`."""

    name = "relay.outbox"
    beat_bound_seconds = 60.0

    def __init__(
        self,
        database: Database,
        channel: Channel,
        pace: Pace,
        *,
        claim_life: timedelta,
        batch: int = 500,
    ) -> None:
        self._database, self._channel, self._pace = database, channel, pace
        self._claim_life, self._batch = claim_life, batch
        self._backoff = Backoff(1.0, 10.0)
        self._kafka = Outage("relay: Kafka")
        self._postgres = Outage("relay: PostgreSQL")

    async def run(self, pulse: Pulse) -> None:
        """Forwards until stopped; a batch in hand is brought to its end."""
        try:
            while not pulse.stopping.is_set():
                pulse.beat()
                await pulse.sleep(await self._turn())
        finally:
            await self._channel.close()

    async def _turn(self) -> float:
        """One pass; how long to sleep after it."""
        try:
            await self._channel.open()
        except Unavailable as error:
            return self._lost(self._kafka, error)
        try:
            done = await self._forward()
        except Unavailable as error:
            return self._lost(self._postgres, error)
        self._postgres.worked()
        if done.error is not None:
            return self._lost(self._kafka, done.error)
        self._kafka.worked()
        return self._pace.after(found_work=bool(done.delivered or done.dropped))

    def _lost(self, outage: Outage, error: BaseException) -> float:
        outage.failed(error)
        return self._backoff.seconds(outage.attempts - 1)

    async def _forward(self) -> Dispatch:
        """One batch from claim to settlement. Raises Unavailable; its rows then free themselves."""
        token = uuid4()
        rows = await outbox_claimed(
            self._database, token=token, limit=self._batch, life=self._claim_life
        )
        if not rows:
            return Dispatch()
        done = await self._channel.dispatch(rows)
        gone = [row.id for row in (*done.delivered, *done.dropped)]
        if gone:
            await outbox_settled(self._database, token=token, ids=gone)
        _count(done.delivered, "published")
        _count((*done.dropped, *done.refused, *done.left), "failed")
        for kept, rest in ((done.left, AT_ONCE), (done.refused, REFUSED_REST)):
            if kept:
                ids = [row.id for row in kept]
                await outbox_released(self._database, token=token, ids=ids, delay=rest)
        return done


def _count(rows: Sequence[OutboxRow], result: str) -> None:
    for row in rows:
        topic = _TOPICS.get(row.aggregatetype, "other")
        relay_published.labels(topic=topic, result=result).inc()
