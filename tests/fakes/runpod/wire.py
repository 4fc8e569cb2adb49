"""HTTP/1.1 on bare asyncio streams, so that an answer can also be late, wrong or torn.

Owns: reading requests (h11), writing answers, cutting connections.
Promises: one handler call per complete request; an answer is written exactly as described, even
where it lies about its length or stops in the middle.
Never: knows what the paths mean, and never retries or repairs anything.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus

import h11

MAX_BODY_BYTES = 64 * 1024 * 1024
READ_BYTES = 64 * 1024
BACKLOG = 1024
PHRASES = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True)
class Call:
    """One request as received; `path` and `query` are the raw text of the request line."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    peer: str


class CutStyle(StrEnum):
    """How a connection ends before its time: a TCP reset or an orderly close."""

    reset = "reset"
    close = "close"


@dataclass(frozen=True)
class Cut:
    """Ends the connection after `after_bytes` body bytes; None: before the status line."""

    how: CutStyle = CutStyle.reset
    after_bytes: int | None = None


@dataclass(frozen=True)
class Answer:
    """What goes back; `chunks` replaces `body`, `declared_bytes` is the Content-Length to claim."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: Callable[[], AsyncIterator[bytes]] | None = None
    declared_bytes: int | None = None
    cut: Cut | None = None


Handler = Callable[[Call], Awaitable[Answer]]


class BodyTooLarge(Exception):
    """The request body is over what this server reads at all."""


class HttpServer:
    """Listens on one address and hands every complete request to `handler`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    def bind(self, host: str, port: int) -> int:
        """Takes the address, answers nobody yet; the port. Raises OSError where it is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        bound: int = self._socket.getsockname()[1]
        return bound

    async def start(self) -> None:
        """Serves on the bound address."""
        self._server = await asyncio.start_server(
            self._connected, sock=self._socket, backlog=BACKLOG
        )

    async def stop(self) -> None:
        """Stops listening and drops every connection, answered or not."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        # An aborted transport lets go of its socket one turn of the loop later.
        await asyncio.sleep(0)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio sets this only on sockets it made itself; without it an answer in two writes
        # waits 40 ms for the client's delayed ACK.
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A task of our own: asyncio's own callback trips over one that was cancelled.
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            # Here and not in the task: one cancelled before its first step runs no `finally`.
            self._connections.discard(task)
            if task.cancelled():
                writer.transport.abort()
            else:
                writer.close()

        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername") or ("unknown", 0)
        connection = _Connection(reader, writer, f"{peer[0]}:{peer[1]}", self._handler)
        try:
            await connection.serve()
        except (h11.RemoteProtocolError, BodyTooLarge):
            connection.write_head(400, {}, 0, keep=False)
        except (ConnectionError, TimeoutError):
            pass  # the client left: there is nobody to tell


class _Connection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: str,
        handler: Handler,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._peer = peer
        self._handler = handler
        self._left_over = b""

    async def serve(self) -> None:
        while True:
            received = await self._receive()
            if received is None:
                return
            call, keep = received
            answer = await self._handler(call)
            if not await self._write(answer, call.method == "HEAD", keep):
                return

    async def _receive(self) -> tuple[Call, bool] | None:
        """The next request and whether the connection may stay; None at an orderly end."""
        # A parser per request: answers may break the protocol, so h11 never sees them.
        parser = h11.Connection(h11.SERVER)
        if self._left_over:
            parser.receive_data(self._left_over)
            self._left_over = b""
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                if parser.they_are_waiting_for_100_continue:
                    self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                parser.receive_data(await self._reader.read(READ_BYTES))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY_BYTES:
                    raise BodyTooLarge
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                self._left_over = parser.trailing_data[0]
                return self._call(request, bytes(body)), parser.their_state is h11.DONE
            else:
                return None

    def _call(self, request: h11.Request, body: bytes) -> Call:
        path, _, query = request.target.decode("latin-1").partition("?")
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in request.headers
        }
        return Call(request.method.decode("latin-1"), path, query, headers, body, self._peer)

    async def _write(self, answer: Answer, head_only: bool, keep: bool) -> bool:
        """Writes the answer; says whether the connection may carry another request."""
        cut = answer.cut
        if cut is not None and cut.after_bytes is None:
            self._end(cut.how)
            return False
        streamed = answer.chunks is not None
        declared = len(answer.body) if answer.declared_bytes is None else answer.declared_bytes
        keep = keep and cut is None and (streamed or declared == len(answer.body))
        self.write_head(answer.status, answer.headers, declared, keep=keep)
        if head_only:
            return keep
        limit = cut.after_bytes if cut is not None else None
        sent = 0
        async for chunk in answer.chunks() if answer.chunks else _once(answer.body):
            piece = chunk if limit is None else chunk[: limit - sent]
            self._writer.write(piece)
            await self._writer.drain()
            sent += len(piece)
            if limit is not None and sent >= limit:
                break
        if cut is not None:
            self._end(cut.how)
            return False
        return keep and sent == declared

    def write_head(
        self, status: int, headers: Mapping[str, str], declared: int, *, keep: bool
    ) -> None:
        lines = [f"HTTP/1.1 {status} {PHRASES.get(status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {declared}", f"Connection: {'keep-alive' if keep else 'close'}"]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def _end(self, how: CutStyle) -> None:
        if how is CutStyle.reset:
            # Linger 0 turns the close into a RST, which is what a dying proxy looks like.
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        else:
            self._writer.close()


async def _once(body: bytes) -> AsyncIterator[bytes]:
    if body:
        yield body
