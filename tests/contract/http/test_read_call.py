"""A reading call gives a whole answer, or an error whose text holds nothing of it."""

import pytest

from shared.domain.errors import TooLarge, Unavailable
from shared.kit.http import HttpTransport, read_call
from tests.contract.http.calling import CANARY
from tests.contract.http.hostile import OK, OK_BODY, Script, Talk, serving


def _answers(answer: bytes) -> Script:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(answer)

    return script


async def test_any_status_is_an_answer() -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}"
    async with serving(_answers(answer)) as server:
        got = await read_call("GET", server.url, {}, max_bytes=1000)
    assert (got.status, got.body, got.headers["x-a"]) == (404, b"{}", "b")
    assert bytes(server.talks[0].received).startswith(b"GET /v2/ep/run HTTP/1.1\r\n")


async def test_a_body_is_sent_once() -> None:
    async with serving(_answers(OK)) as server:
        got = await HttpTransport().read("POST", server.url, {}, max_bytes=1000, body=b"{}")
    assert got.body == OK_BODY
    assert bytes(server.talks[0].received).endswith(b"\r\n\r\n{}")
    assert server.requests == 1


async def test_a_redirect_is_not_followed() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"
    async with serving(_answers(answer)) as server:
        got = await read_call("GET", server.url, {}, max_bytes=1000)
    assert got.status == 302
    assert server.requests == 1


async def test_an_answer_over_its_cap() -> None:
    async with serving(_answers(OK)) as server:
        with pytest.raises(TooLarge):
            await read_call("GET", server.url, {}, max_bytes=len(OK_BODY) - 1)
        assert (await read_call("GET", server.url, {}, max_bytes=len(OK_BODY))).status == 200


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", OK[:-1]])
async def test_no_whole_answer(answer: bytes) -> None:
    async with serving(_answers(answer)) as server:
        with pytest.raises(Unavailable) as raised:
            await read_call(
                "GET", f"{server.url}?{CANARY}", {"Authorization": CANARY}, max_bytes=1000
            )
    error: BaseException | None = raised.value
    while error is not None:
        assert CANARY not in repr(error)
        error = error.__cause__ or error.__context__


async def test_a_read_ends_with_its_deadline() -> None:
    async def script(talk: Talk) -> None:
        await talk.wait_for_end()

    async with serving(script) as server:
        with pytest.raises(Unavailable):
            await read_call("GET", server.url, {}, max_bytes=1000, total_seconds=0.5)
