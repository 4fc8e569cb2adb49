"""One GET over one connection, read with suspicion.

Owns the HTTP/1.1 exchange of a fetch on top of h11: what is sent, which answers are taken, and
how long and how much is read. It promises a body whose end was announced and reached, at most
`bytes_max` long; everything else ends in FetchRefused. Waiting is bounded by a total deadline
and a minimum rate, both looked at around every read. The connection is never used twice.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import h11
import httpcore

from shared.kit.fetch.parser import Target
from shared.kit.fetch.verdicts import FetchRefused, Verdict

READ_BYTES = 65_536
HEAD_READ_BYTES = 16_384
HEAD_BYTES_MAX = 65_536
HEADERS_MAX = 200
INTERIM_ANSWERS_MAX = 8
TINY_PIECES_MAX = 4_096
TINY_PIECE_BYTES = 64

_GONE = frozenset({403, 404, 410})


@dataclass(frozen=True)
class FetchLimits:
    """How much and how long. Times in seconds, from the start of the fetch.

    A fetch is too slow when `window_seconds` of waiting for the host brought fewer than
    `window_bytes_min` bytes; time the consumer takes is not counted against the host.
    """

    bytes_max: int
    total_seconds: float
    connect_seconds: float = 10.0
    head_seconds: float = 60.0
    window_seconds: float = 30.0
    window_bytes_min: int = 65_536


@dataclass(frozen=True)
class Head:
    """What an accepted answer says about its body."""

    declared_bytes: int | None
    declared_media_type: str | None


class GetExchange:
    """The exchange over `stream`, which the caller closes. `deadline`: the loop's clock."""

    def __init__(
        self, stream: httpcore.AsyncNetworkStream, limits: FetchLimits, deadline: float
    ) -> None:
        self._stream = stream
        self._limits = limits
        self._deadline = deadline
        self._wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._is_ended = False
        self._has_head = False
        self._window_waited_seconds = 0.0
        self._window_bytes = 0

    async def send(self, target: Target) -> None:
        """Writes the whole request."""
        request = h11.Request(
            method=b"GET",
            target=target.wire_target,
            headers=[
                (b"Host", target.host_header.encode("ascii")),
                (b"User-Agent", b"coatcheck"),
                (b"Accept", b"*/*"),
                (b"Accept-Encoding", b"identity"),
                (b"Connection", b"close"),
            ],
        )
        data = (self._wire.send(request) or b"") + (self._wire.send(h11.EndOfMessage()) or b"")
        try:
            async with asyncio.timeout(self._patience(self._limits.head_seconds)):
                await self._stream.write(data)
        except TimeoutError as error:
            raise FetchRefused(self._lateness()) from error
        except (httpcore.WriteError, OSError) as error:
            raise FetchRefused(Verdict.connection_lost) from error

    async def read_head(self) -> Head:
        """The accepted answer's head. Raises FetchRefused for every other answer."""
        head_deadline = asyncio.get_running_loop().time() + self._limits.head_seconds
        interim_answers = 0
        while True:
            event = self._next_event()
            if event is h11.NEED_DATA:
                await self._feed_head(head_deadline)
            elif isinstance(event, h11.InformationalResponse):
                interim_answers += 1
                if interim_answers > INTERIM_ANSWERS_MAX:
                    raise FetchRefused(Verdict.header_flood)
            elif isinstance(event, h11.Response):
                self._has_head = True
                return _judge_head(event, self._limits.bytes_max)
            else:
                raise FetchRefused(Verdict.malformed)

    async def read_body(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces of at most 64 KiB. Ends only where the answer said it would."""
        received = pieces = 0
        while True:
            event = self._next_event()
            if event is h11.NEED_DATA:
                await self._feed_body()
            elif isinstance(event, h11.Data):
                received += len(event.data)
                pieces += 1
                if received > self._limits.bytes_max:
                    raise FetchRefused(Verdict.too_large)
                if pieces > TINY_PIECES_MAX and received < pieces * TINY_PIECE_BYTES:
                    raise FetchRefused(Verdict.chunk_flood)
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                if self._wire.trailing_data[0]:
                    raise FetchRefused(Verdict.body_surplus)
                return
            else:
                raise FetchRefused(Verdict.malformed)

    def _next_event(self) -> object:
        try:
            return self._wire.next_event()
        except h11.RemoteProtocolError as error:
            raise FetchRefused(self._protocol_verdict(error)) from error

    def _protocol_verdict(self, error: h11.RemoteProtocolError) -> Verdict:
        # 431 is how h11 says that an unfinished head outgrew its cap.
        if error.error_status_hint == 431:
            return Verdict.header_flood
        if self._is_ended:
            return Verdict.body_short if self._has_head else Verdict.connection_lost
        return Verdict.malformed

    def _patience(self, seconds: float) -> float:
        return min(seconds, self._deadline - asyncio.get_running_loop().time())

    def _lateness(self) -> Verdict:
        is_over = asyncio.get_running_loop().time() >= self._deadline
        return Verdict.deadline if is_over else Verdict.too_slow

    async def _feed_head(self, head_deadline: float) -> None:
        loop = asyncio.get_running_loop()
        await self._feed(HEAD_READ_BYTES, self._patience(head_deadline - loop.time()))

    async def _feed_body(self) -> None:
        window_left = self._limits.window_seconds - self._window_waited_seconds
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            self._window_bytes += await self._feed(READ_BYTES, self._patience(window_left))
        except FetchRefused as error:
            # A window that ends while we wait is judged below by what it brought.
            if error.verdict is not Verdict.too_slow:
                raise
        self._window_waited_seconds += loop.time() - started
        if self._window_waited_seconds >= self._limits.window_seconds:
            if self._window_bytes < self._limits.window_bytes_min:
                raise FetchRefused(Verdict.too_slow)
            self._window_waited_seconds, self._window_bytes = 0.0, 0

    async def _feed(self, bytes_max: int, patience_seconds: float) -> int:
        try:
            async with asyncio.timeout(patience_seconds):
                data = await self._stream.read(bytes_max)
        except TimeoutError as error:
            raise FetchRefused(self._lateness()) from error
        except (httpcore.ReadError, OSError) as error:
            raise FetchRefused(Verdict.connection_lost) from error
        self._is_ended = not data
        self._wire.receive_data(data)
        return len(data)


def _judge_head(response: h11.Response, bytes_max: int) -> Head:
    status = response.status_code
    if status in _GONE:
        raise FetchRefused(Verdict.gone, status)
    if 300 <= status < 400:
        raise FetchRefused(Verdict.redirect, status)
    if status != 200:
        raise FetchRefused(Verdict.bad_status, status)
    headers = list(response.headers)
    if len(headers) > HEADERS_MAX:
        raise FetchRefused(Verdict.header_flood, status)
    values = dict(headers)
    if b"content-encoding" in values:
        raise FetchRefused(Verdict.content_encoding, status)
    length, is_chunked = values.get(b"content-length"), b"transfer-encoding" in values
    if length is not None and is_chunked:
        raise FetchRefused(Verdict.ambiguous_length, status)
    if length is None and not is_chunked:
        raise FetchRefused(Verdict.length_missing, status)
    if length is not None and int(length) > bytes_max:
        raise FetchRefused(Verdict.too_large, status)
    media_type = values.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip()
    return Head(None if length is None else int(length), media_type.lower() or None)
