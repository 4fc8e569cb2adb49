"""Sends one webhook POST over a fresh connection and tells what came back.

Owns: the outgoing HTTP/1.1 client side, http and https.
Promises: one request, no retry, no redirect, no proxy from the environment; every way to fail
is the same to the caller, as it is to the real sender.
Never: raises for what a receiver does.
"""

import asyncio
import ssl
from urllib.parse import urlsplit

import h11

READ_BYTES = 64 * 1024
USER_AGENT = "runpod-webhook"


async def post_json(url: str, body: bytes, timeout_seconds: float) -> int | None:
    """POSTs `body` to `url`; the answer's status, or None if there was none in time."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _post(url, body)
    except (OSError, TimeoutError, ValueError, h11.ProtocolError, EOFError):
        return None


async def _post(url: str, body: bytes) -> int:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise ValueError("not an http URL")
    secured = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if secured else 80),
        ssl=ssl.create_default_context() if secured else None,
    )
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return await _exchange(reader, writer, parts.netloc, target, body)
    finally:
        writer.close()


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    target: str,
    body: bytes,
) -> int:
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(
        method="POST",
        target=target,
        headers=[
            ("Host", host),
            ("User-Agent", USER_AGENT),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ],
    )
    writer.write(connection.send(request) or b"")
    writer.write(connection.send(h11.Data(data=body)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    # No drain: a receiver may answer without reading a long body, and that answer counts.
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            return event.status_code
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.ConnectionClosed):
            raise EOFError("closed without an answer")
