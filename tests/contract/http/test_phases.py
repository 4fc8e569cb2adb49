"""The phase that an exchange reports is true, wherever the connection is cut."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.domain.provider import Phase
from shared.kit.http import calls
from shared.kit.http.phases import PhaseRecorder
from shared.kit.http.wire import PhaseBackend, PhaseStream
from tests.contract.http.calling import call
from tests.contract.http.hostile import OK, OK_BODY, Talk, serving

BIG = b'{"input":{"x":"' + b"a" * 32_000_000 + b'"}}'


async def test_a_whole_answer_is_complete() -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(OK)

    async with serving(script) as server:
        exchange = await call(server.url)
    assert (exchange.phase, exchange.status) == (Phase.body, 200)
    assert exchange.complete
    assert exchange.body == OK_BODY
    assert exchange.error is None
    assert exchange.headers["content-length"] == str(len(OK_BODY))
    received = bytes(server.talks[0].received)
    assert received.startswith(b"POST /v2/ep/run?token=")
    assert received.count(b'{"input"') == 1
    assert b"accept-encoding: identity" in received.lower()
    assert b"connection: close" in received.lower()


async def test_an_unknown_name_is_provably_unsent() -> None:
    exchange = await call("https://no-such-host.invalid/v2/ep/run")
    assert (exchange.phase, exchange.error) == (Phase.dns, "gaierror")


async def test_a_name_that_takes_too_long_is_provably_unsent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    exchange = await call("http://provider.example/v2/ep/run", connect_seconds=0.05)
    assert (exchange.phase, exchange.error) == (Phase.dns, "ConnectDeadlinePassed")


async def test_a_refused_connection_is_provably_unsent() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        exchange = await call(f"http://127.0.0.1:{closed.getsockname()[1]}/v2/ep/run")
    assert (exchange.phase, exchange.error) == (Phase.connect, "ConnectionRefusedError")


async def test_a_connection_never_answered_is_provably_unsent() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        async with _backlog_filled(full.getsockname()):
            exchange = await call(
                f"http://127.0.0.1:{full.getsockname()[1]}/v2/ep/run", connect_seconds=0.3
            )
    assert (exchange.phase, exchange.error) == (Phase.connect, "ConnectDeadlinePassed")


@asynccontextmanager
async def _backlog_filled(address: tuple[str, int]) -> AsyncIterator[None]:
    fillers = [socket.socket() for _ in range(8)]
    try:
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        yield
    finally:
        for filler in fillers:
            filler.close()


async def test_the_next_address_is_tried_when_the_first_is_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(OK)

    async with serving(script) as server:
        family, kind = socket.AF_INET, socket.SOCK_STREAM
        found = [
            (-1, kind, 6, "", ("no such family", 1)),
            (family, kind, 6, "", ("127.0.0.1", 1)),
            (family, kind, 6, "", ("127.0.0.1", server.port)),
        ]

        async def three(*_: Any, **__: Any) -> Any:
            return found

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", three)
        exchange = await call("http://provider.example/v2/ep/run")
    assert exchange.status == 200
    assert server.requests == 1


@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_a_connection_that_ended_before_the_first_byte_is_provably_unsent(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(talk: Talk) -> None:
        if ending == "reset":
            talk.reset()

    class WaitsForTheEnd(PhaseBackend):
        async def connect_tcp(self, *args: Any, **kwargs: Any) -> Any:
            stream = await super().connect_tcp(*args, **kwargs)
            assert isinstance(stream, PhaseStream)
            while not stream._wire.has_ended:
                await stream._wire._wait()
            return stream

    monkeypatch.setattr(calls, "PhaseBackend", WaitsForTheEnd)
    async with serving(script) as server:
        exchange = await call(server.url)
    assert (exchange.phase, exchange.error) == (Phase.connect, "ClosedBeforeSending")
    assert server.requests == 0


@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_a_cut_in_the_middle_of_the_request(ending: str) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_some()
        if ending == "reset":
            talk.reset()

    async with serving(script) as server:
        exchange = await call(server.url, body=BIG)
    assert exchange.phase is Phase.request_partly_written
    assert exchange.status is None
    assert exchange.error in ("ConnectionResetError", "BrokenPipeError")
    assert server.requests == 1


@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_a_cut_after_the_request_was_read(ending: str) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        if ending == "reset":
            talk.reset()

    async with serving(script) as server:
        exchange = await call(server.url)
    assert exchange.phase is Phase.request_written
    expected = "ConnectionResetError" if ending == "reset" else "RemoteProtocolError"
    assert exchange.error == expected
    assert server.requests == 1


@pytest.mark.parametrize(
    "head", [b"H", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nServer: x\r\n"]
)
async def test_a_cut_in_the_head(head: bytes) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(head)

    async with serving(script) as server:
        exchange = await call(server.url)
    assert (exchange.phase, exchange.status) == (Phase.headers, None)
    assert not exchange.complete
    assert exchange.error == "RemoteProtocolError"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n" + OK_BODY,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n22\r\n" + OK_BODY + b"\r\n",
    ],
)
@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_a_cut_in_the_body_keeps_what_was_read(answer: bytes, ending: str) -> None:
    head_seen = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(answer)
        await head_seen.wait()
        if ending == "reset":
            talk.reset()

    class Watched(PhaseRecorder):
        async def trace(self, event: str, info: Any) -> None:
            await super().trace(event, info)
            if self.phase is Phase.body:
                head_seen.set()

    async with serving(script) as server:
        exchange = await call(server.url, recorder=Watched())
    assert (exchange.phase, exchange.status) == (Phase.body, 200)
    assert not exchange.complete
    assert exchange.body == OK_BODY
    assert exchange.error == (
        "ConnectionResetError" if ending == "reset" else "RemoteProtocolError"
    )


async def test_an_early_answer_is_read_although_the_request_was_not_taken() -> None:
    async def script(talk: Talk) -> None:
        await talk.read_some()
        await talk.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\n{}")
        talk.writer.write_eof()
        await talk.wait_for_end()

    async with serving(script) as server:
        exchange = await call(server.url, body=BIG)
    assert (exchange.phase, exchange.status) == (Phase.body, 413)
    assert exchange.complete
    assert server.requests == 1


async def test_each_call_has_a_connection_of_its_own() -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(OK)
        await talk.wait_for_end()

    async with serving(script) as server:
        for _ in range(3):
            assert (await call(server.url)).complete
    assert [bytes(talk.received).count(b"POST") for talk in server.talks] == [1, 1, 1]
