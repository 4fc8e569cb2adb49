"""The one way to fetch a provider's result: `open_result`.

Owns the order of the steps: judge the URL, look the name up once, dial, ask, read. It promises
that nothing is fetched that the rules refuse, that every refusal is a FetchRefused with a
named verdict, and that the connection is closed on the way out, whatever happened. It sends
no cookie and no credential, follows no redirect and logs nothing.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import httpcore

from shared.kit.fetch.backend import PinnedBackend, Resolver, dial, resolve
from shared.kit.fetch.parser import FetchRules, Target, parse_target
from shared.kit.fetch.verdicts import FetchRefused, Verdict
from shared.kit.fetch.wire import FetchLimits, GetExchange


@dataclass(frozen=True)
class Network:
    """How fetches reach the world; tests put their own parts here."""

    resolver: Resolver = resolve
    inner: httpcore.AsyncNetworkBackend | None = None
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True)
class FetchedResult:
    """An answer whose head was accepted.

    `declared_bytes` is None for a chunked body; `declared_media_type` is the host's claim and
    proves nothing. `chunks` gives the body once and raises FetchRefused where it breaks.
    """

    declared_bytes: int | None
    declared_media_type: str | None
    chunks: AsyncIterator[bytes]


@asynccontextmanager
async def open_result(
    url: object, rules: FetchRules, limits: FetchLimits, network: Network | None = None
) -> AsyncIterator[FetchedResult]:
    """Opens the result at `url` over a connection of its own. Raises FetchRefused."""
    target = parse_target(url, rules)
    if isinstance(target, Verdict):
        raise FetchRefused(target)
    network = network or Network()
    deadline = asyncio.get_running_loop().time() + limits.total_seconds
    stream = await _connect(target, rules, limits, network, deadline)
    try:
        exchange = GetExchange(stream, limits, deadline)
        await exchange.send(target)
        head = await exchange.read_head()
        async with aclosing(exchange.read_body()) as chunks:
            yield FetchedResult(head.declared_bytes, head.declared_media_type, chunks)
    finally:
        await stream.aclose()


async def _connect(
    target: Target, rules: FetchRules, limits: FetchLimits, network: Network, deadline: float
) -> httpcore.AsyncNetworkStream:
    loop = asyncio.get_running_loop()
    backend = PinnedBackend(
        target,
        resolver=network.resolver,
        inner=network.inner,
        allow_nat64=rules.allow_nat64,
    )
    try:
        async with asyncio.timeout_at(min(loop.time() + limits.connect_seconds, deadline)):
            return await dial(target, backend, network.tls)
    except TimeoutError as error:
        is_over = loop.time() >= deadline
        raise FetchRefused(Verdict.deadline if is_over else Verdict.connect_failed) from error
