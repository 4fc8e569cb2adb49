"""Counts and times the requests of a room's public server.

An ASGI middleware, outermost. Promises one count per request, under the route's template and
never under its path, so that no job or token becomes a label.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from shared.kit.telemetry import http_request_duration_seconds, http_requests

UNMATCHED = "unmatched"
NO_ANSWER = "none"
"""The status of a request whose caller left, or whose handler failed, before an answer began."""

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


class HttpMetrics:
    """Wraps an ASGI application whose router notes `scope["route"]`."""

    def __init__(self, app: AsgiApp, *, room: str) -> None:
        self._app = app
        self._room = room

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes the request on; counts it when its answer has ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = NO_ANSWER
        started_at = time.perf_counter()

        async def send_noting(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        finally:
            route = getattr(scope.get("route"), "path", UNMATCHED)
            http_requests.labels(self._room, route, status).inc()
            duration = http_request_duration_seconds.labels(self._room, route)
            duration.observe(time.perf_counter() - started_at)
