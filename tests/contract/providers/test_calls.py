"""What every adapter's client puts on the wire, against servers that misbehave."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from shared.domain.durations import TimeScale
from shared.domain.provider import Accepted, Ambiguous, CreateOutcome, Exchange, ProviderState
from shared.kit.http import HttpTransport, PhaseRecorder, SendDeadline, boottime_seconds
from shared.kit.settings import CoatcheckSettings
from shared.providers import ADAPTERS, ProviderClient
from tests.contract.http.hostile import HostileServer, Script, Talk, serving
from tests.contract.providers.openings import (
    JOB_ID,
    KEY,
    OPENINGS,
    create_request,
    handle,
)

adapters = pytest.mark.parametrize("name", sorted(ADAPTERS))


def _answer(status: int, body: bytes, head: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n%s" % (status, head, len(body), body)


def _always(answer: bytes) -> Script:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(answer)

    return script


def _deadline() -> SendDeadline:
    return SendDeadline(boottime_seconds() + 60)


def _client(name: str, base_url: str, scale: float = 1) -> ProviderClient:
    return ADAPTERS[name].open(OPENINGS[name].settings(base_url), HttpTransport(TimeScale(scale)))


def _base(server: HostileServer) -> str:
    return f"http://127.0.0.1:{server.port}/v2"


async def _create(name: str, script: Script) -> tuple[Exchange, CreateOutcome, HostileServer]:
    async with serving(script) as server:
        client = _client(name, _base(server))
        exchange = await client.create(create_request(client.base_url), _deadline())
    return exchange, ADAPTERS[name].classify(exchange, client.switched_on), server


@adapters
async def test_a_create_is_one_request_with_the_key_in_its_header_alone(name: str) -> None:
    recorder = PhaseRecorder()
    async with serving(_always(_answer(200, OPENINGS[name].accepted))) as server:
        client = _client(name, _base(server))
        exchange = await client.create(create_request(client.base_url), _deadline(), recorder)
    assert ADAPTERS[name].classify(exchange, client.switched_on) == Accepted(JOB_ID)
    assert recorder.exchange() == exchange
    assert server.requests == 1
    head, _, body = bytes(server.talks[0].received).partition(b"\r\n\r\n")
    assert head.count(KEY.encode()) == 1
    assert KEY.encode() not in head.split(b"\r\n")[0]
    assert KEY.encode() not in body
    assert json.loads(body)
    assert KEY not in repr(exchange)
    assert KEY not in repr(client)


@adapters
@pytest.mark.parametrize("status", [307, 308])
async def test_a_create_that_is_sent_elsewhere_stays_here(name: str, status: int) -> None:
    answer = _answer(status, b"", b"Location: /v2/other/run\r\n")
    _, outcome, server = await _create(name, _always(answer))
    assert isinstance(outcome, Ambiguous)
    assert server.requests == 1


@adapters
@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_create_answered_with_trouble_is_ambiguous(name: str, status: int) -> None:
    _, outcome, server = await _create(name, _always(_answer(status, b"")))
    assert isinstance(outcome, Ambiguous)
    assert server.requests == 1


@adapters
async def test_a_create_without_an_answer_is_ambiguous(name: str) -> None:
    async def script(talk: Talk) -> None:
        await talk.wait_for_end()

    async with serving(script) as server:
        client = _client(name, _base(server), scale=60)  # the whole call then takes 3 s
        exchange = await client.create(create_request(client.base_url), _deadline())
    assert isinstance(ADAPTERS[name].classify(exchange, client.switched_on), Ambiguous)
    assert exchange.error == "TotalDeadlinePassed"
    assert server.requests == 1


@adapters
async def test_a_create_cut_in_the_answer_keeps_the_id_as_evidence(name: str) -> None:
    cut = _answer(200, OPENINGS[name].accepted + b" " * 50)[:-50]
    _, outcome, server = await _create(name, _always(cut))
    assert isinstance(outcome, Ambiguous)
    assert outcome.evidence_id == JOB_ID
    assert server.requests == 1


@adapters
async def test_a_create_after_its_moment_is_not_sent(name: str) -> None:
    async with serving(_always(_answer(200, OPENINGS[name].accepted))) as server:
        client = _client(name, _base(server))
        exchange = await client.create(create_request(client.base_url), SendDeadline(0.0))
    assert exchange.phase.is_provably_unsent
    assert server.requests == 0


@adapters
async def test_a_status_is_read(name: str) -> None:
    opening = OPENINGS[name]
    record = opening.record(opening.running_word, JOB_ID)
    async with serving(_always(_answer(200, record))) as server:
        reading = await _client(name, _base(server)).status(handle(_base(server)))
    assert reading.state is ProviderState.running
    assert reading.provider_job_id == JOB_ID
    assert JOB_ID.encode() in bytes(server.talks[0].received).split(b"\r\n")[0]


@adapters
async def test_the_status_of_another_job_is_not_believed(name: str) -> None:
    opening = OPENINGS[name]
    record = opening.record(opening.running_word, "another-job")
    async with serving(_always(_answer(200, record))) as server:
        reading = await _client(name, _base(server)).status(handle(_base(server)))
    assert reading.state is ProviderState.unrecognised
    assert reading.provider_job_id is None


@adapters
async def test_a_job_is_asked_for_where_it_was_made(name: str) -> None:
    opening = OPENINGS[name]
    record = opening.record(opening.running_word, JOB_ID)
    async with serving(_always(_answer(200, record))) as server:
        client = _client(name, "http://127.0.0.1:1/today")
        reading = await client.status(handle(_base(server)))
    assert reading.state is ProviderState.running


@adapters
async def test_no_status_answer_says_nothing(name: str) -> None:
    async with serving(_always(b"")) as server:
        reading = await _client(name, _base(server)).status(handle(_base(server)))
    assert reading.state is ProviderState.retry_later


@adapters
async def test_a_status_answer_over_its_cap_is_unrecognised(name: str) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        await talk.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await talk.send(b" " * 1_000_000)

    async with serving(script) as server:
        reading = await _client(name, _base(server)).status(handle(_base(server)))
    assert reading.state is ProviderState.unrecognised


Ask = Callable[[ProviderClient, str], Awaitable[bool]]
ASKS: dict[str, Ask] = {
    "cancel": lambda client, base: client.cancel(handle(base)),
    "is_well": lambda client, base: client.is_well(base, "demo"),
}


@adapters
@pytest.mark.parametrize("ask", sorted(ASKS))
async def test_a_small_question_is_answered_by_200_alone(name: str, ask: str) -> None:
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 2_000_000
    answers = [_answer(200, b"{}"), _answer(202, b"{}"), _answer(404, b""), b"", endless]
    got = []
    for answer in answers:
        async with serving(_always(answer)) as server:
            got.append(await ASKS[ask](_client(name, _base(server)), _base(server)))
            assert server.requests == 1
    assert got == [True, False, False, False, False]


@adapters
async def test_sixteen_creates_at_once_are_sixteen_requests(name: str) -> None:
    async with serving(_always(_answer(200, OPENINGS[name].accepted))) as server:
        client = _client(name, _base(server))
        request = create_request(client.base_url)
        exchanges = await asyncio.gather(*(client.create(request, _deadline()) for _ in range(16)))
    assert [exchange.status for exchange in exchanges] == [200] * 16
    assert server.requests == 16


@adapters
def test_the_settings_of_another_adapter_are_not_taken(name: str) -> None:
    with pytest.raises(TypeError):
        ADAPTERS[name].open(CoatcheckSettings(), HttpTransport())
