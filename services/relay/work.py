"""Puts the relay together: database, channel, the forwarding loop and the gauges."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from services.relay.channels import Channel, DiscardingChannel, KafkaChannel
from services.relay.gauges import GaugeReader
from services.relay.outbox import OutboxLoop, Pace
from services.relay.settings import RelaySettings
from shared.kit import telemetry
from shared.kit.logs import get_logger
from shared.kit.loops import SweepLoop
from shared.kit.registry import load_registry
from shared.kit.service import Loop, Room, RoomContext
from shared.store.pool import open_database

SEND_SECONDS = 10.0
GAUGES_SECONDS = 5.0
LEAST_GAUGES_SECONDS = 1.0

_log = get_logger()


@asynccontextmanager
async def open_relay(context: RoomContext[RelaySettings]) -> AsyncIterator[Sequence[Loop]]:
    """The relay's loops around its open parts. Raises Unavailable without a database."""
    settings, scale = context.settings, context.scale
    send_seconds = scale.transport_seconds(SEND_SECONDS)
    channel, pace = _channel(settings, send_seconds)
    url = settings.database_url.get_secret_value()
    if settings.endpoints_file is not None:
        telemetry.export_zeros(endpoints=load_registry(settings.endpoints_file).endpoints)
    async with open_database(url, room="relay", max_size=3, wait_seconds=0) as database:
        context.readiness.add("postgres", database.is_reachable)
        context.readiness.add("kafka", channel.is_up)
        gauges = GaugeReader(database, scale)
        yield [
            OutboxLoop(
                database,
                channel,
                pace,
                # A batch that was sent is settled well before another relay may send it again.
                claim_life=timedelta(seconds=2 * send_seconds + 5),
            ),
            SweepLoop(
                "relay.gauges",
                gauges.read_once,
                idle_seconds=max(LEAST_GAUGES_SECONDS, scale.seconds(GAUGES_SECONDS)),
            ),
        ]


def _channel(settings: RelaySettings, send_seconds: float) -> tuple[Channel, Pace]:
    if settings.kafka_bootstrap_servers:
        return KafkaChannel(settings, send_seconds=send_seconds), Pace(0.005, 0.5)
    _log.error(
        "hints_are_not_sent",
        reason="KAFKA_BOOTSTRAP_SERVERS is not set: outbox rows are deleted unsent, and sweeps"
        " carry the load alone",
    )
    return DiscardingChannel(), Pace(1.0, 5.0)


ROOM = Room(name="relay", settings_type=RelaySettings, open=open_relay)
