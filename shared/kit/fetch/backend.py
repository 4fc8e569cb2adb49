"""The network side of a fetch: resolve once, judge every answer, dial the judged address.

Owns name look-ups and connections. It promises that a public target is dialled by address, at
the first of its answers and only when every answer is public, so that no second look-up can
lead elsewhere; the URL's own host stays the name for TLS. It reads no proxy variables and
keeps no connection for later.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import httpcore

from shared.kit.fetch.addresses import AddressKind, judge_address
from shared.kit.fetch.parser import Target
from shared.kit.fetch.verdicts import FetchRefused, Verdict

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port in, addresses as text out, in the order in which they should be tried.
Raises OSError when the name has none."""

SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)

# Look-ups cannot be cancelled; a pool of their own keeps hanging ones away from other threads.
_LOOKUP_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="lookup")


async def resolve(host: str, port: int) -> Sequence[str]:
    """The system's answers for `host`. Raises OSError when there are none."""
    loop = asyncio.get_running_loop()
    answers = await loop.run_in_executor(
        _LOOKUP_THREADS,
        lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP),
    )
    return [str(answer[4][0]) for answer in answers]


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """A network backend for one target that ignores what it is told to resolve.

    Whatever host it is asked for, it dials the address that the target's one look-up gave.
    """

    def __init__(
        self,
        target: Target,
        *,
        resolver: Resolver = resolve,
        inner: httpcore.AsyncNetworkBackend | None = None,
        allow_nat64: bool = False,
    ) -> None:
        self._target = target
        self._resolver = resolver
        self._inner = inner or httpcore.AnyIOBackend()
        self._allow_nat64 = allow_nat64

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A stream to the judged address. Raises FetchRefused; arguments only bound the time."""
        addresses = await self._look_up()
        if not self._target.is_private:
            self._judge(addresses)
            addresses = addresses[:1]
        for address in addresses:
            try:
                stream = await self._inner.connect_tcp(address, self._target.port, timeout)
            except httpcore.ConnectError:
                continue
            await self._check_peer(stream, address)
            return stream
        raise FetchRefused(Verdict.connect_failed)

    async def _look_up(self) -> Sequence[str]:
        try:
            addresses = await self._resolver(self._target.host, self._target.port)
        except (OSError, UnicodeError) as error:
            raise FetchRefused(Verdict.name_unresolved) from error
        if not addresses:
            raise FetchRefused(Verdict.name_unresolved)
        return addresses

    def _judge(self, addresses: Sequence[str]) -> None:
        for address in addresses:
            kind = judge_address(address, allow_nat64=self._allow_nat64)
            if kind is not AddressKind.public:
                raise FetchRefused(Verdict.address_not_public)

    async def _check_peer(self, stream: httpcore.AsyncNetworkStream, address: str) -> None:
        if self._target.is_private:
            return
        peer = stream.get_extra_info("server_addr")
        own = stream.get_extra_info("client_addr")
        # A public address of this very machine would lead behind its own front door.
        if not peer or peer[0] != address or (own and own[0] == address):
            await stream.aclose()
            raise FetchRefused(Verdict.peer_mismatch)


async def dial(
    target: Target, backend: httpcore.AsyncNetworkBackend, tls: ssl.SSLContext | None = None
) -> httpcore.AsyncNetworkStream:
    """A stream to the target, with TLS under the URL's own name where the scheme asks for it.

    `tls` replaces the default context. Raises FetchRefused.
    """
    stream = await backend.connect_tcp(target.host, target.port)
    if target.scheme == "http":
        return stream
    try:
        return await stream.start_tls(tls or tls_context(), server_hostname=target.host)
    except (httpcore.NetworkError, OSError) as error:
        raise FetchRefused(Verdict.tls_failed) from error
    except BaseException:
        # A deadline that ends a handshake must not leave the connection open.
        await stream.aclose()
        raise


@cache
def tls_context() -> ssl.SSLContext:
    """Certificate and name checks on, HTTP/1.1 only; made once, for reading all roots is slow."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
