"""The webhook room: its parts, its one loop.

Opens the pool around the HTTP server and promises that it is ready exactly while PostgreSQL
answers. Kafka is not asked for: the hint of a hastened check goes through the outbox.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from services.webhook.app import WebhookApp
from services.webhook.settings import WebhookSettings
from shared.kit.admin import HttpServerLoop
from shared.kit.http_metrics import HttpMetrics
from shared.kit.loops import Loop
from shared.kit.service import Room, RoomContext
from shared.kit.settings import variable_of
from shared.kit.telemetry import export_zeros
from shared.providers import ADAPTERS
from shared.store.pool import open_database

POOL_SIZE = 8
CLOSE_SECONDS = 2.0
"""Of the drain, what is left for the server to end after its last request."""


@asynccontextmanager
async def _open(context: RoomContext[WebhookSettings]) -> AsyncIterator[Sequence[Loop]]:
    settings = context.settings
    export_zeros(providers=ADAPTERS)
    url = settings.database_url.get_secret_value()
    # Without waiting: the runner tries again, and a signal meanwhile ends the start.
    async with open_database(
        url, room=context.name, max_size=POOL_SIZE, wait_seconds=0
    ) as database:
        context.readiness.add("database", database.is_reachable)
        floor = settings.scale.span(settings.webhook_floor_seconds)
        server = HttpServerLoop(
            HttpMetrics(WebhookApp(database, settings.keys, floor=floor), room=context.name),
            settings.listen_host,
            settings.webhook_port,
            variable=variable_of("webhook_port"),
            name="webhook.http",
            graceful_seconds=max(1.0, settings.drain_seconds - CLOSE_SECONDS),
        )
        yield [server]


ROOM = Room("webhook", WebhookSettings, _open)
