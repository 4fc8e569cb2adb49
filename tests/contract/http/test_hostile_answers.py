"""Answers that lie, flood, drip or point elsewhere: bounded, never followed, never sent twice."""

import asyncio
import logging

import pytest

from shared.domain.provider import Phase
from shared.kit.http import paid_call
from tests.contract.http.calling import CANARY, call
from tests.contract.http.hostile import OK, OK_BODY, HostileServer, Script, Talk, serving

HEAD = b"HTTP/1.1 200 OK\r\n"


def _answers(*parts: bytes) -> Script:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        for part in parts:
            await talk.send(part)
        await talk.wait_for_end()

    return script


async def _slow_answer(talk: Talk) -> None:
    await talk.read_request()
    for part in (OK[:9], OK[9:30], OK[30:-3], OK[-3:]):
        await talk.send(part)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100 + OK,
        b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"1\r\n%c\r\n" % byte for byte in OK_BODY)
        + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 34\r\n\r\n" + OK_BODY + b"surplus bytes",
    ],
)
async def test_an_odd_but_whole_answer_is_read(answer: bytes) -> None:
    async with serving(_answers(answer)) as server:
        exchange = await call(server.url)
    assert (exchange.status, exchange.body, exchange.complete) == (200, OK_BODY, True)
    assert server.requests == 1


async def test_an_answer_in_pieces_is_read() -> None:
    async with serving(_slow_answer) as server:
        exchange = await call(server.url)
    assert exchange.body == OK_BODY


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_sends_nothing_again(status: int) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        head = f"HTTP/1.1 {status} Moved\r\nLocation: {server.url}2\r\nContent-Length: 0\r\n\r\n"
        await talk.send(head.encode())
        await talk.wait_for_end()

    server: HostileServer
    async with serving(script) as server:
        exchange = await call(server.url)
    assert (exchange.status, exchange.complete) == (status, True)
    assert server.requests == 1
    assert len(server.talks) == 1


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(_answers(OK)) as proxy, serving(_answers(OK)) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        exchange = await call(server.url)
    assert exchange.complete
    assert server.requests == 1
    assert proxy.talks == []


async def test_endless_interim_answers_are_bounded() -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        while True:
            await talk.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 500)

    async with serving(script) as server:
        exchange = await call(server.url)
    assert (exchange.phase, exchange.status) == (Phase.headers, None)
    assert exchange.error == "AnswerTooLarge"


async def test_dripping_interim_answers_end_with_the_whole_deadline() -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        while True:
            await talk.send(b"HTTP/1.1 102 Processing\r\n\r\n")
            await asyncio.sleep(0.05)

    async with serving(script) as server:
        exchange = await call(server.url, total_seconds=1.5)
    assert (exchange.phase, exchange.status) == (Phase.headers, None)
    assert exchange.error == "TotalDeadlinePassed"


@pytest.mark.parametrize(
    "drip", [(HEAD + b"X-Slow: ", b"a"), (HEAD + b"Content-Length: 999\r\n\r\n", b"a")]
)
async def test_a_drip_ends_with_the_whole_deadline(drip: tuple[bytes, bytes]) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(drip[0])
        while True:
            await talk.send(drip[1])
            await asyncio.sleep(0.05)

    async with serving(script) as server:
        exchange = await call(server.url, total_seconds=1.5)
    assert exchange.error == "TotalDeadlinePassed"
    assert not exchange.complete


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (b"X-Long: " + b"a" * 1_000_000, "RemoteProtocolError"),
        (b"X-A: b\r\n" * 20_000, "RemoteProtocolError"),
    ],
)
async def test_a_huge_head_is_bounded(part: bytes, error: str) -> None:
    async with serving(_answers(HEAD + part)) as server:
        exchange = await call(server.url)
    assert (exchange.phase, exchange.status, exchange.error) == (Phase.headers, None, error)


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 50000000000\r\n\r\n", b"\r\n", b"Transfer-Encoding: chunked\r\n\r\n"],
)
async def test_a_body_over_its_cap_is_cut_off(framing: bytes) -> None:
    piece = b"x" * 60_000
    if b"chunked" in framing:
        piece = b"ea60\r\n" + piece + b"\r\n"

    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(HEAD + framing)
        while True:
            await talk.send(piece)

    async with serving(script) as server:
        exchange = await call(server.url)
    assert (exchange.phase, exchange.status) == (Phase.body, 200)
    assert (exchange.complete, exchange.error) == (False, "AnswerTooLarge")
    assert len(exchange.body) < 100_000 + 2 * 64 * 1024


async def test_framing_may_not_outgrow_the_body() -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            await talk.send(b"00000000000001\r\nx\r\n" * 1000)

    async with serving(script) as server:
        exchange = await call(server.url)
    assert (exchange.complete, exchange.error) == (False, "AnswerTooLarge")
    assert len(exchange.body) < 100_000


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 9999 Odd\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
    ],
)
async def test_what_is_not_http_is_no_answer(answer: bytes) -> None:
    async with serving(_answers(answer)) as server:
        exchange = await call(server.url)
    assert not exchange.complete
    assert not exchange.phase.is_provably_unsent
    assert exchange.error == "RemoteProtocolError"


async def test_a_switch_of_protocols_that_nobody_asked_for_is_no_answer() -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    async with serving(_answers(head + OK)) as server:
        exchange = await call(server.url)
    assert (exchange.phase, exchange.status) == (Phase.headers, None)
    assert exchange.error == "RemoteProtocolError"


async def test_repeated_headers_are_joined_and_undecodable_ones_kept() -> None:
    answer = HEAD + b"Retry-After: 1\r\nretry-after: 2\r\nX-Odd: \xff\r\nContent-Length: 0\r\n\r\n"
    async with serving(_answers(answer)) as server:
        exchange = await call(server.url)
    assert exchange.headers["retry-after"] == "1, 2"
    assert exchange.headers["x-odd"] == "\xff"


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/x", "http://", "http://[::1/x", "no url at all", "http://a\u0101/"]
)
async def test_what_is_no_address_is_provably_unsent(url: str) -> None:
    exchange = await call(url)
    assert exchange.phase.is_provably_unsent
    assert exchange.error is not None


@pytest.mark.parametrize("kind", ["cut", "not_http", "refused_header", "unknown_name", "late"])
async def test_neither_key_nor_url_shows_anywhere(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore.http11").setLevel(logging.NOTSET)

    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(b"" if kind == "cut" else b"nonsense\r\n\r\n")

    async with serving(script) as server:
        url = "http://no-such-host.invalid/x" if kind == "unknown_name" else server.url
        exchange = await call(
            url + ("\r\nX-Evil: 1" if kind == "refused_header" else ""),
            not_after_boottime=0.0 if kind == "late" else None,
        )
    assert exchange.error is not None
    assert CANARY not in repr(exchange)
    records = [repr(record.__dict__) for record in caplog.records]
    assert not [record for record in records if CANARY in record]
    assert not [record for record in caplog.records if record.name.startswith(("http", "hpack"))]


async def test_a_header_that_cannot_be_sent_is_provably_unsent() -> None:
    async with serving(_answers(OK)) as server:
        exchange = await paid_call(
            "POST",
            server.url,
            {"Authorization": f"Bearer {CANARY}\r\nX-Evil: 1"},
            b"{}",
            total_seconds=60.0,
            not_after_boottime=None,
        )
    assert (exchange.phase, exchange.error) == (Phase.connect, "LocalProtocolError")
    assert server.requests == 0
