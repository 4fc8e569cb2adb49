"""A relay on loopback in front of the real store, for faults that the store itself has not.

Owns them: refusing requests like a store without a feature, answering in the store's place,
losing an answer after the store has acted, and breaking off in the middle of one. All other
requests go through unchanged.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from shared.kit.settings import StorageSettings
from shared.media.objects import ObjectStore, open_object_store


@dataclass(frozen=True)
class Request:
    """The head of a request: its line and headers, lower-case names."""

    line: str
    headers: dict[str, str]

    @property
    def method(self) -> str:
        """GET, PUT, …"""
        return self.line.split(" ", 1)[0]

    @property
    def target(self) -> str:
        """Path and query."""
        return self.line.split(" ", 2)[1]


@dataclass(frozen=True)
class Answer:
    """Answers in the store's place."""

    status: int
    code: str = ""


@dataclass(frozen=True)
class CutAnswer:
    """Lets the store act, then breaks the connection off after so many bytes of its answer."""

    after_bytes: int = 0


Verdict = Answer | CutAnswer | None
Rule = Callable[[Request], Verdict]


@asynccontextmanager
async def relay(endpoint_url: str, rule: Rule) -> AsyncIterator[str]:
    """The URL of a relay to `endpoint_url` that asks `rule` about every request."""
    place = urlsplit(endpoint_url)
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _serve_one(reader, writer, rule, str(place.hostname), int(place.port or 80))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort() if writer.is_closing() else writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024 * 1024)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def through_relay(settings: StorageSettings, rule: Rule) -> AsyncIterator[ObjectStore]:
    """The bucket of `settings`, reached through a relay with this rule."""
    assert settings.s3_endpoint_url
    async with relay(settings.s3_endpoint_url, rule) as url:
        moved = settings.model_copy(update={"s3_endpoint_url": url})
        async with open_object_store(moved) as opened:
            yield opened


async def _serve_one(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rule: Rule, host: str, port: int
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (h.partition(":") for h in rest)}
    if "expect" in headers:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    verdict = rule(Request(line, headers))
    if isinstance(verdict, Answer):
        writer.write(_answer(verdict))
        await writer.drain()
        return
    kept = [h for h in rest if h.split(":")[0].lower() not in ("expect", "connection")]
    from_store, to_store = await asyncio.open_connection(host, port)
    try:
        to_store.write("\r\n".join([line, *kept, "Connection: close", "", ""]).encode("latin-1"))
        to_store.write(body)
        await to_store.drain()
        left = verdict.after_bytes if isinstance(verdict, CutAnswer) else None
        while data := await from_store.read(65_536):
            writer.write(data[:left])
            await writer.drain()
            left = None if left is None else max(0, left - len(data))
    finally:
        to_store.close()


def _answer(answer: Answer) -> bytes:
    body = f"<Error><Code>{answer.code}</Code><Message>no</Message></Error>".encode()
    if answer.status == 200:
        body = b""
    return (
        f"HTTP/1.1 {answer.status} X\r\nContent-Length: {len(body)}\r\n"
        "Content-Type: application/xml\r\nConnection: close\r\n\r\n"
    ).encode() + body
