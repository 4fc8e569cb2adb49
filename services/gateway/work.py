"""The gateway as a room: its parts, its one loop.

Opens the pool and the bucket around the HTTP server and promises that it is ready exactly while
PostgreSQL answers: without Kafka it still takes jobs, the outbox holds their hints.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from services.gateway.app import make_app
from services.gateway.desk import Desk
from services.gateway.sessions import Sessions
from services.gateway.settings import GatewaySettings
from services.gateway.validation import compile_rules
from shared.kit.admin import HttpServerLoop
from shared.kit.loops import Loop
from shared.kit.registry import load_registry
from shared.kit.service import Room, RoomContext
from shared.kit.settings import variable_of
from shared.kit.telemetry import export_zeros
from shared.media.objects import open_object_store
from shared.store.pool import open_database

POOL_SIZE = 16
CLOSE_SECONDS = 2.0
"""Of the drain, what is left for the server to end after its last request."""


@asynccontextmanager
async def _open(context: RoomContext[GatewaySettings]) -> AsyncIterator[Sequence[Loop]]:
    settings = context.settings
    registry = load_registry(settings.endpoints_file)
    endpoints = compile_rules(registry)
    export_zeros(endpoints=registry.endpoints)
    url = settings.database_url.get_secret_value()
    async with (
        # Without waiting: the runner tries again, and a signal meanwhile ends the start.
        open_database(url, room=context.name, max_size=POOL_SIZE, wait_seconds=0) as database,
        open_object_store(settings) as store,
    ):
        context.readiness.add("database", database.is_reachable)
        desk = Desk(database, store, endpoints, Sessions(settings), settings.app_origins)
        server = HttpServerLoop(
            make_app(desk),
            settings.listen_host,
            settings.gateway_port,
            variable=variable_of("gateway_port"),
            name="gateway.http",
            graceful_seconds=max(1.0, settings.drain_seconds - CLOSE_SECONDS),
        )
        yield [server]


ROOM = Room("gateway", GatewaySettings, _open)
