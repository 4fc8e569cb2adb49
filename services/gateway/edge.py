"""The outermost layer: what holds for every request, whatever becomes of it.

Gives each request an id (the caller's where it is sane) and a trace, and puts the headers on
that every answer carries. An error that nobody expected is logged here, once, by its places
and never by its text. Must never log a path.
"""

import re
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars
from uuid_utils.compat import uuid7

from shared.kit.logs import get_logger
from shared.kit.tracing import continued_trace

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_log = get_logger()


class Edge:
    """Wraps the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        request_id = request_id_of(headers)
        given = headers.getlist("traceparent")
        answer = _Answer(send, request_id, is_head=scope["method"] == "HEAD")
        with (
            bound_contextvars(request_id=request_id),
            continued_trace(given[0] if len(given) == 1 else None) as traceparent,
        ):
            scope.setdefault("state", {}).update(request_id=request_id, traceparent=traceparent)
            try:
                await self._app(scope, receive, answer.send)
            except Exception as error:  # noqa: BLE001  # the server must outlive any request
                # The application has answered already, unless its body broke off.
                route = getattr(scope.get("route"), "path", None)
                _log.error("request_failed", route=route, exc_info=error)


class _Answer:
    """Passes an answer on, with the headers that every answer carries."""

    def __init__(self, send: Send, request_id: str, *, is_head: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._is_head = is_head

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._complete(message)
        elif self._is_head:
            message = {**message, "body": b""}
        await self._send(message)

    def _complete(self, message: MutableMapping[str, Any]) -> None:
        given = {name for name, _ in message["headers"]}
        ours = {
            b"x-request-id": self._request_id.encode("ascii"),
            b"x-content-type-options": b"nosniff",
            b"referrer-policy": b"no-referrer",
            b"cache-control": b"no-store",
        }
        added = [(name, value) for name, value in ours.items() if name not in given]
        message["headers"] = [*message["headers"], *added]


def request_id_of(headers: Headers) -> str:
    """The caller's X-Request-Id where it is one sane word, else a new one."""
    given = headers.getlist("x-request-id")
    if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]):
        return given[0]
    return uuid7().hex
