"""Servers inside a room: its admin port, and uvicorn as a loop for its public one.

The admin port answers `/livez` (the loops beat), `/readyz` (the room can do its work now),
`/metrics`, and what a room adds. Promises that a taken port is an error naming the port and
its variable, that uvicorn never touches signals, and that open streams cannot hold up a stop.
Must never answer with anything of a job.
"""

import asyncio
import errno
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from shared.domain.errors import CoatcheckError
from shared.kit import telemetry
from shared.kit.logs import get_logger
from shared.kit.loops import Pulse

CHECK_SECONDS = 2.0
MAX_BODY_BYTES = 65_536
_BACKLOG = 2048
_JSON = "application/json"

_log = get_logger()

Check = Callable[[], Awaitable[bool]]


class PortTaken(CoatcheckError):
    """A port that this process needs is in use."""


@dataclass(frozen=True)
class AdminRequest:
    """A request on the admin port: header names in lower case, body up to 64 KiB."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class AdminAnswer:
    """An answer; `of_json` for the usual kind."""

    status: int
    body: bytes = b""
    content_type: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, status: int, value: object) -> "AdminAnswer":
        """An answer whose body is the value as JSON."""
        return cls(status, json.dumps(value).encode())


AdminHandler = Callable[[AdminRequest], Awaitable[AdminAnswer]]
AdminRoute = tuple[str, str, AdminHandler]
"""Method, exact path, handler."""


class Readiness:
    """Whether a room can do its work now: started, not draining, every check true."""

    def __init__(self) -> None:
        self.state = "starting"
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Adds a check; it may raise, and has two seconds."""
        self._checks[name] = check

    async def answer(self) -> AdminAnswer:
        """200 or 503, with the state and each check's result."""
        if self.state != "ready":
            return AdminAnswer.of_json(503, {"ready": False, "state": self.state})
        results = await asyncio.gather(*map(self._run, self._checks))
        checks = dict(zip(self._checks, results, strict=True))
        is_ready = all(results)
        body = {"ready": is_ready, "state": self.state, "checks": checks}
        return AdminAnswer.of_json(200 if is_ready else 503, body)

    async def _run(self, name: str) -> bool:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return await self._checks[name]()
        except Exception as error:  # noqa: BLE001  # whatever a check dies of, it is not ready
            _log.warning("readiness_check_failed", check=name, exc_info=error)
            return False


class AdminApp:
    """The ASGI application of one room's admin port."""

    def __init__(
        self, readiness: Readiness, pulses: Mapping[str, Pulse], routes: Sequence[AdminRoute]
    ) -> None:
        self._readiness = readiness
        self._pulses = pulses
        self._routes: dict[str, dict[str, AdminHandler]] = {}
        own: list[AdminRoute] = [
            ("GET", "/livez", self._livez),
            ("GET", "/readyz", self._readyz),
            ("GET", "/metrics", self._metrics),
        ]
        for method, path, handler in [*own, *routes]:
            self._routes.setdefault(path, {})[method] = handler

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        answer = await self._answer(scope, receive)
        headers = {"content-type": answer.content_type, "cache-control": "no-store"}
        headers |= {"content-length": str(len(answer.body)), **answer.headers}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any, receive: Any) -> AdminAnswer:
        methods = self._routes.get(scope["path"])
        if methods is None:
            return AdminAnswer.of_json(404, {"error": "not found"})
        handler = methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if handler is None:
            allow = {"allow": ", ".join(methods)}
            return AdminAnswer(405, b'{"error": "method not allowed"}', headers=allow)
        body = await _read_body(receive)
        if body is None:
            return AdminAnswer.of_json(413, {"error": "body too large"})
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        request = AdminRequest(scope["method"], scope["path"], headers, body)
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001  # one request's failure ends only itself
            _log.error("admin_request_failed", route=scope["path"], exc_info=error)
            return AdminAnswer.of_json(500, {"error": "failed; see the log"})

    async def _livez(self, _: AdminRequest) -> AdminAnswer:
        loops = {name: round(pulse.silent_seconds, 3) for name, pulse in self._pulses.items()}
        is_live = all(pulse.is_alive for pulse in self._pulses.values())
        body = {"live": is_live, "silent_seconds": loops}
        return AdminAnswer.of_json(200 if is_live else 503, body)

    async def _readyz(self, _: AdminRequest) -> AdminAnswer:
        return await self._readiness.answer()

    async def _metrics(self, _: AdminRequest) -> AdminAnswer:
        body, content_type = telemetry.exposition()
        return AdminAnswer(200, body, content_type)


class HttpServerLoop:
    """Serves an ASGI application on host:port as a loop of a room.

    `variable` names the setting that moves the port. After a stop, requests under way have
    `graceful_seconds` to end, then they are cancelled.
    """

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        *,
        variable: str,
        name: str = "http",
        graceful_seconds: float = 10.0,
        beat_bound_seconds: float = 15.0,
    ) -> None:
        self.name = name
        self.beat_bound_seconds = beat_bound_seconds
        self._app, self._host, self._port, self._variable = app, host, port, variable
        self._graceful_seconds = graceful_seconds

    async def run(self, pulse: Pulse) -> None:
        """Serves until stopped. Raises PortTaken, and whatever ends the server early."""
        listener = bind_port(self._host, self._port, self._variable)
        server = _Server(_server_config(self._app, self._graceful_seconds))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(pulse.stopping.wait())
        try:
            while not (stopping.done() or serving.done()):
                if server.started:
                    pulse.beat()
                seconds = self.beat_bound_seconds / 3 if server.started else 0.02
                await asyncio.wait(
                    [serving, stopping], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            stopping.cancel()
            server.should_exit = True
            await serving


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        """The runner owns signals; a server that took them would drop ours."""
        return _no_signals()


def _server_config(app: Any, graceful_seconds: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=max(1, round(graceful_seconds)),
    )


def bind_port(host: str, port: int, variable: str) -> socket.socket:
    """A listening socket. Raises PortTaken naming host, port and the variable that moves it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio turns Nagle's delay off; else every answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setblocking(False)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        why = "in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise PortTaken(f"port {port} on {host}: {why}; {variable} chooses another") from error
    return listener


async def _read_body(receive: Any) -> bytes | None:
    body = b""
    while True:
        message: dict[str, Any] = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return body
