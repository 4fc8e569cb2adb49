"""The network under a call: name, address, TLS and bytes, each reported as it begins.

Owns: the network backend given to httpcore. Promises: the gate for the first request byte is
passed in the same step of the event loop in which that byte is handed over; bytes of an answer
that came before a reset are still read; closing never waits. A TLS connection starts on the bare
socket, so bytes that a stranger sent before the handshake can never be taken for the answer.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterable
from typing import Any, cast

import httpcore

from shared.domain.provider import Phase
from shared.kit.http.phases import ClosedBeforeSending, PhaseRecorder

READ_AHEAD_BYTES = 256 * 1024
HEAD_BYTES = 128 * 1024
PIECE_BYTES = 64 * 1024
ADDRESSES = 8


class ConnectDeadlinePassed(Exception):
    """Name, connection and TLS took longer than they may."""


class AnswerTooLarge(Exception):
    """The answer's head, framing or body went over its cap."""


class Wire(asyncio.Protocol):
    """The receiving half of a connection: a bounded buffer that outlives a reset."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.has_ended = False
        self._error: Exception | None = None
        self._buffer = bytearray()
        self._is_held = False
        self._writing_paused = False
        self._wakened = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport; a write is done when nothing of it is buffered any more."""
        self.transport = cast(asyncio.Transport, transport)
        # asyncio's TLS transport counts an empty buffer as full when the limit is 0.
        is_tls = transport.get_extra_info("sslcontext") is not None
        self.transport.set_write_buffer_limits(high=1 if is_tls else 0)

    def data_received(self, data: bytes) -> None:
        """Buffers, and stops reading ahead past the bound."""
        self._buffer += data
        if len(self._buffer) > READ_AHEAD_BYTES and not self._is_held:
            self._is_held = True
            self.transport.pause_reading()
        self._wakened.set()

    def eof_received(self) -> None:
        """The other side will send no more."""
        self.has_ended = True
        self._wakened.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; what was buffered stays readable."""
        self.has_ended = True
        self._error = exc
        self._wakened.set()

    def pause_writing(self) -> None:
        """Bytes wait in the transport's buffer."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """The transport's buffer is empty."""
        self._writing_paused = False
        self._wakened.set()

    async def receive(self, max_bytes: int) -> bytes:
        """The next bytes, b"" at the end. Raises the connection's error once all is read."""
        while not self._buffer and not self.has_ended:
            await self._wait()
        if not self._buffer and self._error is not None:
            raise self._error
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[:max_bytes]
        if self._is_held and len(self._buffer) <= READ_AHEAD_BYTES:
            self._is_held = False
            self.transport.resume_reading()
        return data

    async def flush(self) -> None:
        """Returns when all written bytes left the buffer. Raises ConnectionError if it is lost."""
        while self._writing_paused and not self.transport.is_closing():
            await self._wait()
        if self.transport.is_closing():
            raise self._error or ConnectionAbortedError

    async def _wait(self) -> None:
        self._wakened.clear()
        await self._wakened.wait()


class PhaseStream(httpcore.AsyncNetworkStream):
    """A connection that can carry a request; the last gate before money may be spent."""

    def __init__(self, wire: Wire, recorder: PhaseRecorder, limits: "Limits") -> None:
        self._wire = wire
        self._recorder = recorder
        self._limits = limits
        self._received_bytes = 0

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Hands bytes over. The checks and the first write have no await between them."""
        if not buffer:
            return
        if self._recorder.phase.is_provably_unsent:
            if self._wire.has_ended:
                raise ClosedBeforeSending
            self._recorder.open_for_sending(self._limits.not_after_boottime)
        # In pieces, because a TLS transport takes any amount at once and calls it written.
        for start in range(0, len(buffer), PIECE_BYTES):
            self._wire.transport.write(buffer[start : start + PIECE_BYTES])
            self._recorder.first_byte_sent()
            try:
                await self._wire.flush()
            except OSError as error:
                raise httpcore.WriteError(type(error).__name__) from error

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes of the answer; its head and its framing are bounded here."""
        if self._received_bytes > self._bound():
            raise AnswerTooLarge
        try:
            data = await self._wire.receive(max_bytes)
        except OSError as error:
            raise httpcore.ReadError(type(error).__name__) from error
        if data:
            self._received_bytes += len(data)
            self._recorder.advance(Phase.headers)
        return data

    async def aclose(self) -> None:
        """Drops the connection at once; nothing is worth waiting for."""
        self._wire.transport.abort()

    def get_extra_info(self, info: str) -> Any:
        """What the transport knows under that name."""
        return self._wire.transport.get_extra_info(info)

    def _bound(self) -> int:
        if self._recorder.phase is not Phase.body:
            return HEAD_BYTES
        # One-byte chunks cost six bytes each: framing may at most double a body.
        return HEAD_BYTES + 2 * self._limits.max_answer_bytes


class Limits:
    """The bounds of one call, in seconds and bytes; `connect_by` in the loop's own time."""

    def __init__(
        self, connect_seconds: float, max_answer_bytes: int, not_after_boottime: float | None
    ) -> None:
        self.connect_by = asyncio.get_running_loop().time() + connect_seconds
        self.max_answer_bytes = max_answer_bytes
        self.not_after_boottime = not_after_boottime


class DialledSocket(httpcore.AsyncNetworkStream):
    """A TCP connection on which TLS is still to come."""

    def __init__(self, sock: socket.socket, recorder: PhaseRecorder, limits: Limits) -> None:
        self._sock = sock
        self._recorder = recorder
        self._limits = limits

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """The handshake. Raises ssl.SSLError, OSError or ConnectDeadlinePassed."""
        self._recorder.advance(Phase.tls)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._limits.connect_by):
                _, wire = await loop.create_connection(
                    Wire, sock=self._sock, ssl=ssl_context, server_hostname=server_hostname
                )
        except TimeoutError:
            raise ConnectDeadlinePassed from None
        return PhaseStream(wire, self._recorder, self._limits)


class PhaseBackend(httpcore.AsyncNetworkBackend):
    """Opens the one connection of one call."""

    def __init__(self, recorder: PhaseRecorder, limits: Limits, *, is_tls: bool) -> None:
        self._recorder = recorder
        self._limits = limits
        self._is_tls = is_tls

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolves and connects. Raises OSError or ConnectDeadlinePassed."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._limits.connect_by):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                self._recorder.advance(Phase.connect)
                sock = await self._dial(found[:ADDRESSES])
        except TimeoutError:
            raise ConnectDeadlinePassed from None
        if self._is_tls:
            return DialledSocket(sock, self._recorder, self._limits)
        _, wire = await loop.create_connection(Wire, sock=sock)
        return PhaseStream(wire, self._recorder, self._limits)

    async def _dial(self, found: list[Any]) -> socket.socket:
        """The first address that answers; each gets an equal share of the time that is left."""
        loop = asyncio.get_running_loop()
        failure = OSError()
        for index, (family, kind, proto, _, address) in enumerate(found):
            share = (self._limits.connect_by - loop.time()) / (len(found) - index)
            try:
                async with asyncio.timeout(share):
                    return await _connected(socket.socket(family, kind, proto), address)
            except OSError as error:  # a share that ran out is one as well
                failure = error
        raise failure


async def _connected(sock: socket.socket, address: Any) -> socket.socket:
    with contextlib.ExitStack() as unless_connected:
        unless_connected.enter_context(sock)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
        unless_connected.pop_all()
    return sock
