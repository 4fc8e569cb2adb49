"""A scripted host on loopback: answers what a test tells it, byte by byte.

Owns the server side of the fetch tests: raw sockets, optional TLS under a throw-away
authority, and a network backend that leads every judged address to it. It knows nothing of
the rules under test.
"""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

import httpcore
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class ScriptedHost:
    """A running host: its port and the request heads it was sent."""

    port: int
    requests: list[bytes] = field(default_factory=list)

    @property
    def targets(self) -> list[bytes]:
        """The request targets, as they came."""
        return [request.split(b" ", 2)[1] for request in self.requests]

    def header(self, name: bytes) -> bytes | None:
        """That header of the last request."""
        for line in self.requests[-1].split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == name.lower():
                return value.strip()
        return None


@asynccontextmanager
async def scripted_host(
    script: Script, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ScriptedHost]:
    """Serves `script` to every connection that sends a whole request head."""
    host = ScriptedHost(0)
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            host.requests.append(await reader.readuntil(b"\r\n\r\n"))
            await script(writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def says(*pieces: bytes, stays_open: bool = False) -> Script:
    """A script that writes the pieces, then closes or keeps silent."""

    async def script(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if stays_open:
            await asyncio.Event().wait()
        writer.close()

    return script


def drips(first: bytes, drop: bytes, times: int | None = None) -> Script:
    """A script that writes `first`, then `drop` again and again, for ever if not told how often."""

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        for _ in repeat(None) if times is None else range(times):
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.002)
        writer.close()

    return script


class _ToldAddress(httpcore.AsyncNetworkStream):
    """The loopback stream, telling the address that was asked for as its peer."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, peer: str) -> None:
        self._stream = stream
        self._peer = peer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return await self._stream.start_tls(ssl_context, server_hostname, timeout)

    def get_extra_info(self, info: str) -> Any:
        if info == "server_addr":
            return (self._peer, 443)
        return self._stream.get_extra_info(info)


@dataclass
class LeadingBackend(httpcore.AsyncNetworkBackend):
    """Leads every address to one loopback port and remembers what was dialled.

    `peer` overrides the address that the stream then claims to be connected to.
    """

    port: int
    peer: str | None = None
    dialled: list[tuple[str, int]] = field(default_factory=list)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append((host, port))
        stream = await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", self.port, timeout)
        return _ToldAddress(stream, self.peer or host)


@dataclass
class Authority:
    """A throw-away certificate authority in a folder."""

    folder: Path
    key: ec.EllipticCurvePrivateKey = field(init=False)
    certificate: x509.Certificate = field(init=False)

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self.certificate = self._sign(
            name, self.key.public_key(), constraints, name, is_critical=True
        )

    def trust(self) -> ssl.SSLContext:
        """A client context that trusts this authority alone."""
        pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()
        return ssl.create_default_context(cadata=pem)

    def serve_as(self, host: str) -> ssl.SSLContext:
        """A server context with a certificate for `host`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([])
        alternative = x509.SubjectAlternativeName([x509.DNSName(host)])
        issuer = self.certificate.subject
        leaf = self._sign(subject, key.public_key(), alternative, issuer, is_critical=True)
        path = self.folder / "leaf.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + leaf.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _sign(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        extension: x509.ExtensionType,
        issuer: x509.Name,
        *,
        is_critical: bool,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=is_critical)
        )
        return builder.sign(self.key, hashes.SHA256())
