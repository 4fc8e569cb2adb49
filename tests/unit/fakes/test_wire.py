"""The HTTP side on raw sockets: what clients may send, and what they must not get away with."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.fakes.runpod import wire
from tests.fakes.runpod.wire import Answer, Call, HttpServer


async def echo(call: Call) -> Answer:
    return Answer(200, {"X-Path": call.path}, call.body)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = HttpServer(echo)
    bound = server.bind("127.0.0.1", 0)
    await server.start()
    yield bound
    await server.stop()


async def exchanged(port: int, *pieces: bytes) -> bytes:
    """Everything the server sends until it closes; each piece after the last one was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_requests_follow_each_other_on_one_connection(port: int) -> None:
    first = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
    second = b"GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = await exchanged(port, first + second)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.index(b"X-Path: /a") < answer.index(b"\r\n\r\nhi") < answer.index(b"X-Path: /b")
    assert answer.count(b"Connection: keep-alive") == answer.count(b"Connection: close") == 1


async def test_a_body_may_come_in_pieces_and_chunks(port: int) -> None:
    head = b"POST /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = await exchanged(port, head[:20], head[20:], b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nabcde")


async def test_an_old_client_gets_one_answer(port: int) -> None:
    assert (await exchanged(port, b"GET / HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


async def test_a_client_that_waits_for_100_is_told_to_go_on(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n"
    writer.write(head + b"Expect: 100-continue\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"ok")
    assert (await reader.read()).endswith(b"\r\n\r\nok")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
async def test_what_is_no_http_is_a_400(port: int, sent: bytes) -> None:
    assert (await exchanged(port, sent)).startswith(b"HTTP/1.1 400 Bad Request")


async def test_a_body_beyond_all_limits_is_a_400(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_BODY_BYTES", 10)
    sent = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n" + b"x" * 11
    assert (await exchanged(port, sent)).startswith(b"HTTP/1.1 400 Bad Request")


async def test_a_client_that_leaves_early_is_no_error(port: int) -> None:
    for sent in (b"", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.close()
        await writer.wait_closed()
    assert (await exchanged(port, b"GET / HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


async def test_a_taken_port_is_refused(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        HttpServer(echo).bind("127.0.0.1", port)


async def test_a_stop_drops_what_is_under_way() -> None:
    entered = asyncio.Event()

    async def never(_: Call) -> Answer:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    server = HttpServer(never)
    port = server.bind("::1", 0)
    await server.start()
    reader, writer = await asyncio.open_connection("::1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await entered.wait()
    await server.stop()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
