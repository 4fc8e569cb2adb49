"""A server that misbehaves on purpose: one script per connection over bare asyncio streams.

Owns: counting connections and keeping every byte it was sent, so that a test can say what left
the client. Also makes throw-away certificates. Must never speak better HTTP than its script.
"""

import asyncio
import datetime
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

OK_BODY = b'{"id":"job-1","status":"IN_QUEUE"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(OK_BODY), OK_BODY)


@dataclass
class Talk:
    """One connection as the script sees it; `received` grows as the script reads."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    received: bytearray = field(default_factory=bytearray)

    async def read_some(self) -> bytes:
        """Whatever comes next; b"" at the end."""
        data = await self.reader.read(65536)
        self.received += data
        return data

    async def read_request(self) -> None:
        """A whole request, as its Content-Length tells."""
        while b"\r\n\r\n" not in self.received:
            if not await self.read_some():
                return
        head, _, body = bytes(self.received).partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        got = len(body)
        while got < length:
            data = await self.read_some()
            if not data:
                return
            got += len(data)

    async def send(self, data: bytes) -> None:
        """Writes and waits until it is out."""
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Ends the connection with a TCP reset."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_for_end(self) -> None:
        """Reads on until the client is gone."""
        while await self.read_some():
            pass


Script = Callable[[Talk], Awaitable[None]]


@dataclass
class HostileServer:
    """What the client did to us."""

    port: int = 0
    talks: list[Talk] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The plain address."""
        return f"http://127.0.0.1:{self.port}/v2/ep/run"

    @property
    def tls_url(self) -> str:
        """The address by the name that the certificate holds."""
        return f"https://localhost:{self.port}/v2/ep/run"

    @property
    def requests(self) -> int:
        """Request lines received, over all connections."""
        return sum(bytes(talk.received).count(b"HTTP/1.1\r\n") for talk in self.talks)


@asynccontextmanager
async def serving(
    script: Script, tls: ssl.SSLContext | None = None
) -> AsyncIterator[HostileServer]:
    """Runs the script on each connection until the block ends."""
    server = HostileServer()
    tasks: set[asyncio.Task[None]] = set()

    async def talk_to(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
        talk = Talk(reader, writer)
        server.talks.append(talk)
        try:
            await script(talk)
        except (OSError, asyncio.CancelledError):
            pass  # the client left, or the test is over: both are part of the play
        finally:
            writer.transport.abort()

    listener = await asyncio.start_server(talk_to, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Certificates:
    """Contexts made from one throw-away certificate for `localhost`."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def make_certificates(folder: Path, name: str = "localhost") -> Certificates:
    """A self-made certificate for `name`, and a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / f"{name}.crt", folder / f"{name}.key"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert_path, key_path)
    return Certificates(server, ssl.create_default_context(cafile=cert_path))
