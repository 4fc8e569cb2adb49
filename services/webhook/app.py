"""The webhook room's application: one route, spoken in plain ASGI.

Promises that a token is judged before a byte of the body is read, that every way for it to be
wrong gives the same empty 404 and writes nothing, and that a 200 is sent only after the commit.
The path holds the token: it is never logged, not even in an error.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import unquote_to_bytes

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.webhook.deliveries import record_delivery
from shared.domain.errors import Unavailable
from shared.domain.webhook_token import NamedClaim, WebhookKeys, verify
from shared.kit import telemetry
from shared.kit.logs import get_logger
from shared.kit.loops import Outage
from shared.kit.tracing import continued_trace
from shared.providers import ADAPTERS
from shared.store.pool import Database

BODY_BYTES_MAX = 16 * 1024 * 1024
BODY_SECONDS_MAX = 30.0
RETRY_SECONDS = 5

_log = get_logger()


@dataclass(frozen=True)
class Route:
    """What the room's metrics call a request; the path itself holds a secret."""

    path: str


ROUTE = Route("/webhooks/{provider}/{token}")


class WebhookApp:
    """Judges, records, answers. `floor`: the least distance between hastened checks."""

    def __init__(self, database: Database, keys: WebhookKeys, *, floor: timedelta) -> None:
        self._database = database
        self._keys = keys
        self._floor = floor
        self._outage = Outage("database")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            return
        with continued_trace(None):
            try:
                response = await self._answer(scope, receive)
            except Exception as error:  # noqa: BLE001  # the server must outlive any request
                response = Response(None, 500)
                _log.error("request_failed", route=ROUTE.path, exc_info=error)
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        parts = bytes(scope["raw_path"]).split(b"/")
        if len(parts) != 4 or parts[:2] != [b"", b"webhooks"]:
            return Response(None, 404)
        scope["route"] = ROUTE
        provider = unquote_to_bytes(parts[2]).decode("utf-8", "replace")
        is_known = provider in ADAPTERS
        label = provider if is_known else telemetry.OTHER_PROVIDER
        named = verify(self._keys, provider, unquote_to_bytes(parts[3])) if is_known else None
        if named is None or scope["method"] != "POST":
            telemetry.webhooks.labels(label, "bad_token").inc()
            return Response(None, 404)
        return await self._recorded(provider, named, receive)

    async def _recorded(self, provider: str, named: NamedClaim, receive: Receive) -> Response:
        body, is_whole = await _read_body(receive)
        headers = {} if is_whole else {"Connection": "close"}
        try:
            recorded = await record_delivery(
                self._database, provider, named, body, floor=self._floor
            )
        except Unavailable as error:
            self._outage.failed(error)
            telemetry.webhooks.labels(provider, "unavailable").inc()
            return Response(None, 503, {**headers, "Retry-After": str(RETRY_SECONDS)})
        self._outage.worked()
        telemetry.webhooks.labels(provider, recorded.result.value).inc()
        return Response(b"{}", 200, headers, media_type="application/json")


async def _read_body(receive: Receive) -> tuple[bytes, bool]:
    """The body up to its cap, and whether that is all of it.

    A body that is too long, too slow or broken off is taken as far as it came: the token alone
    proves that the provider had the job.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            while len(body) <= BODY_BYTES_MAX:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return bytes(body), False
                body += message.get("body", b"")
                if not message.get("more_body"):
                    return bytes(body[:BODY_BYTES_MAX]), len(body) <= BODY_BYTES_MAX
    except TimeoutError:
        return bytes(body), False
    return bytes(body[:BODY_BYTES_MAX]), False
