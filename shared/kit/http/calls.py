"""The two calls: one that may cost money, one that only reads.

Owns: the single path by which a request leaves this process for a provider's API. Promises that
`paid_call` never raises for trouble on the way: whatever breaks, its answer is an Exchange whose
phase is true. Cancellation alone passes through; the caller's recorder then still tells the
phase. Must never send twice.
"""

import asyncio
import functools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpcore
import httpx

from shared.domain.durations import TimeScale
from shared.domain.errors import TooLarge, Unavailable
from shared.domain.provider import Exchange
from shared.kit.http.phases import PhaseRecorder, SendDeadline
from shared.kit.http.wire import AnswerTooLarge, Limits, PhaseBackend

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
DEFAULT_ANSWER_BYTES = 1024 * 1024

_FIXED_HEADERS = {"Accept-Encoding": "identity", "Connection": "close", "User-Agent": "coatcheck"}


class TotalDeadlinePassed(Exception):
    """The whole call took longer than it may."""


@dataclass(frozen=True)
class HttpAnswer:
    """A whole answer. Header names are lower case; the body is undecoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def paid_call(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    connect_seconds: float = CONNECT_SECONDS,
    total_seconds: float,
    not_after_boottime: float | None,
    recorder: PhaseRecorder | None = None,
    max_answer_bytes: int = DEFAULT_ANSWER_BYTES,
    ssl_context: ssl.SSLContext | None = None,
) -> Exchange:
    """Sends one request at most once and says how far it came; raises only CancelledError.

    `connect_seconds` bounds name, connection and TLS together, `total_seconds` all of it. At or
    after `not_after_boottime` (CLOCK_BOOTTIME, seconds) the first byte is refused: the Exchange
    is then provably unsent. An answer over its cap or cut short has `complete=False` and keeps
    what was read of it.
    """
    recorder = recorder or PhaseRecorder()
    limits = Limits(connect_seconds, max_answer_bytes, not_after_boottime)
    error = await _carry(method, url, headers, body, recorder, limits, total_seconds, ssl_context)
    return recorder.exchange(error)


async def read_call(
    method: str,
    url: str,
    headers: Mapping[str, str],
    *,
    total_seconds: float = READ_SECONDS,
    max_bytes: int,
    body: bytes | None = None,
    connect_seconds: float = CONNECT_SECONDS,
    ssl_context: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """A whole answer of any status. Raises Unavailable without one, TooLarge over `max_bytes`."""
    recorder = PhaseRecorder()
    limits = Limits(connect_seconds, max_bytes, None)
    error = await _carry(method, url, headers, body, recorder, limits, total_seconds, ssl_context)
    if error == AnswerTooLarge.__name__:
        raise TooLarge
    if recorder.status is None or not recorder.complete:
        raise Unavailable(f"no whole answer: {error} in phase {recorder.phase}")
    return HttpAnswer(recorder.status, recorder.headers, bytes(recorder.body))


@dataclass(frozen=True)
class HttpTransport:
    """The calls with their deadlines set: what an adapter's client is opened on."""

    scale: TimeScale = field(default_factory=TimeScale)
    ssl_context: ssl.SSLContext | None = None

    async def paid(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        deadline: SendDeadline,
        recorder: PhaseRecorder | None = None,
    ) -> Exchange:
        """One paid call within the scaled deadlines; see `paid_call`."""
        return await paid_call(
            method,
            url,
            headers,
            body,
            connect_seconds=self.scale.transport_seconds(CONNECT_SECONDS),
            total_seconds=self.scale.paid_call_seconds,
            not_after_boottime=deadline.not_after_boottime,
            recorder=recorder,
            ssl_context=self.ssl_context,
        )

    async def read(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        max_bytes: int,
        body: bytes | None = None,
    ) -> HttpAnswer:
        """One reading call within the scaled deadlines; see `read_call`."""
        return await read_call(
            method,
            url,
            headers,
            total_seconds=self.scale.transport_seconds(READ_SECONDS),
            max_bytes=max_bytes,
            body=body,
            connect_seconds=self.scale.transport_seconds(CONNECT_SECONDS),
            ssl_context=self.ssl_context,
        )


async def _carry(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    recorder: PhaseRecorder,
    limits: Limits,
    total_seconds: float,
    ssl_context: ssl.SSLContext | None,
) -> str | None:
    """Carries one request and fills the recorder. The class name of what broke, or None."""
    try:
        async with asyncio.timeout(total_seconds) as total:
            await _converse(method, url, headers, body, recorder, limits, ssl_context)
    except TimeoutError as error:
        return TotalDeadlinePassed.__name__ if total.expired() else type(error).__name__
    except Exception as error:  # noqa: BLE001 - whatever broke, the phase says what may be paid
        return type(error.__cause__ or error).__name__
    return None


async def _converse(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    recorder: PhaseRecorder,
    limits: Limits,
    ssl_context: ssl.SSLContext | None,
) -> None:
    target = httpcore.URL(url)
    is_tls = target.scheme == b"https"
    connection = httpcore.AsyncHTTPConnection(
        origin=target.origin,
        ssl_context=(ssl_context or _trusted()) if is_tls else None,
        http1=True,
        http2=False,
        retries=0,
        network_backend=PhaseBackend(recorder, limits, is_tls=is_tls),
    )
    async with (
        connection,
        connection.stream(
            method,
            target,
            headers=[*{**_FIXED_HEADERS, **headers}.items()],
            content=body,
            extensions={"trace": recorder.trace},
        ) as response,
    ):
        async for chunk in response.aiter_stream():
            recorder.body += chunk
            if len(recorder.body) > limits.max_answer_bytes:
                raise AnswerTooLarge
        recorder.complete = True


@functools.cache
def _trusted() -> ssl.SSLContext:
    """One context for all calls (making one takes longer than a call); honours SSL_CERT_FILE."""
    return httpx.create_ssl_context()
