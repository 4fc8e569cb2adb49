"""Hosts that lie, stall, flood and break off: every answer ends in one named verdict."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.kit.fetch import (
    FetchedResult,
    FetchLimits,
    FetchRefused,
    FetchRules,
    Verdict,
    open_result,
    private_targets,
)
from tests.unit.fetch.loopback import (
    Script,
    ScriptedHost,
    drips,
    says,
    scripted_host,
)

OK = b"HTTP/1.1 200 OK\r\n"
LIMITS = FetchLimits(bytes_max=1_000_000, total_seconds=60)


@asynccontextmanager
async def fetching(
    script: Script, limits: FetchLimits = LIMITS
) -> AsyncIterator[tuple[ScriptedHost, FetchedResult]]:
    async with scripted_host(script) as host:
        place = f"127.0.0.1:{host.port}"
        rules = FetchRules(hosts=(), private_targets=private_targets([place]))
        async with open_result(f"http://{place}/r?x=%2f", rules, limits) as result:
            yield host, result


async def body_of(script: Script, limits: FetchLimits = LIMITS) -> bytes:
    async with fetching(script, limits) as (_, result):
        return b"".join([chunk async for chunk in result.chunks])


async def refusal_of(script: Script, limits: FetchLimits = LIMITS) -> Verdict:
    with pytest.raises(FetchRefused) as refused:
        await body_of(script, limits)
    return refused.value.verdict


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


TE = OK + b"Transfer-Encoding: chunked\r\n\r\n"


async def test_a_proper_answer_is_read_whole_and_its_claims_are_told() -> None:
    answer = OK + b"Content-Length: 5\r\nContent-Type: Video/MP4; codecs=x\r\nSet-Cookie: a=b\r\n"
    async with fetching(says(answer + b"\r\nclip!")) as (host, result):
        assert (result.declared_bytes, result.declared_media_type) == (5, "video/mp4")
        assert b"".join([chunk async for chunk in result.chunks]) == b"clip!"
    request = host.requests[0].lower()
    assert host.targets == [b"/r?x=%2f"]
    assert host.header(b"Accept-Encoding") == b"identity"
    assert host.header(b"Connection") == b"close"
    for name in (b"cookie", b"authorization", b"referer", b"range"):
        assert b"\r\n" + name + b":" not in request


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        ([OK + b"Content-Length: 0\r\n\r\n"], b""),
        ([TE + chunked(b"ab", b"cde") + b"0\r\n\r\n"], b"abcde"),
        ([TE, chunked(b"ab"), b"0\r\nTrailer: x\r\n\r\n"], b"ab"),
        ([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", OK, b"Content-Length: 1\r\n\r\nx"], b"x"),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"], b"x"),
    ],
)
async def test_answers_with_an_announced_end_are_taken(pieces: list[bytes], body: bytes) -> None:
    assert await body_of(says(*pieces)) == body


async def test_a_chunked_answer_declares_no_size() -> None:
    async with fetching(says(TE + b"0\r\n\r\n")) as (_, result):
        assert (result.declared_bytes, result.declared_media_type) == (None, None)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (OK + b"\r\nbody until the end", Verdict.length_missing),
        (OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", Verdict.ambiguous_length),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", Verdict.malformed),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", Verdict.malformed),
        (OK + b"Content-Length: -1\r\n\r\n", Verdict.malformed),
        (OK + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n", Verdict.malformed),
        (OK + b"Content-Length: 1000001\r\n\r\n", Verdict.too_large),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", Verdict.content_encoding),
        (OK + b"Content-Encoding: identity\r\nContent-Length: 1\r\n\r\n", Verdict.content_encoding),
        (OK + b"Content-Length: 5\r\n\r\nclip", Verdict.body_short),
        (OK + b"Content-Length: 5\r\n\r\nclip!more", Verdict.body_surplus),
        (TE + chunked(b"clip"), Verdict.body_short),
        (TE + b"5\r\ncli", Verdict.body_short),
        (TE + b"zz\r\nclip", Verdict.malformed),
        (TE + chunked(b"clip") + b"0\r\n\r\nmore", Verdict.body_surplus),
        (TE + b"f4241\r\n" + b"x" * 1_000_001, Verdict.too_large),
        (b"", Verdict.connection_lost),
        (b"HTTP/1.1 200", Verdict.connection_lost),
        (b"not http at all\r\n\r\n", Verdict.malformed),
        (b"HTTP/1.1 101 Switch\r\n\r\n", Verdict.malformed),
        (b"HTTP/1.1 103 x\r\n\r\n" * 9, Verdict.header_flood),
        (OK + b"X: y\r\n" * 201 + b"Content-Length: 1\r\n\r\nx", Verdict.header_flood),
        (OK + b"X: " + b"y" * 200_000 + b"\r\n", Verdict.header_flood),
        (OK + b"X: y\r\n" * 50_000, Verdict.header_flood),
        (b"HTTP/1.1 206 Partial\r\nContent-Length: 1\r\n\r\nx", Verdict.bad_status),
        (b"HTTP/1.1 204 None\r\n\r\n", Verdict.bad_status),
        (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", Verdict.bad_status),
        (b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n", Verdict.bad_status),
        (b"HTTP/1.1 500 Ow\r\nContent-Length: 0\r\n\r\n", Verdict.bad_status),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", Verdict.gone),
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", Verdict.gone),
        (b"HTTP/1.1 410 No\r\nContent-Length: 0\r\n\r\n", Verdict.gone),
        (TE + chunked(*[b"x"] * 5_000), Verdict.chunk_flood),
    ],
    ids=lambda value: value.name if isinstance(value, Verdict) else "",
)
async def test_every_other_answer_has_its_verdict(answer: bytes, verdict: Verdict) -> None:
    assert await refusal_of(says(answer)) is verdict


async def test_a_refused_status_is_told() -> None:
    with pytest.raises(FetchRefused) as refused:
        await body_of(says(b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n"))
    assert refused.value.status == 429


async def test_a_stream_over_the_cap_ends_at_the_cap() -> None:
    seen: list[bytes] = []

    async def collect() -> None:
        limits = FetchLimits(bytes_max=100_000, total_seconds=60)
        async with fetching(drips(TE, chunked(b"x" * 10_000)), limits) as (_, result):
            async for chunk in result.chunks:
                seen.append(chunk)  # noqa: PERF401

    with pytest.raises(FetchRefused) as refused:
        await collect()
    assert refused.value.verdict is Verdict.too_large
    assert 0 < sum(map(len, seen)) <= 100_000


STALLS = {
    "silent before the head": says(stays_open=True),
    "head dripping": drips(OK, b"X: y\r\n"),
    "silent in the body": says(OK + b"Content-Length: 9\r\n\r\nx", stays_open=True),
    "body dripping": drips(OK + b"Content-Length: 900000\r\n\r\n", b"x"),
    "chunks dripping": drips(TE, chunked(b"x")),
}


@pytest.mark.parametrize("name", STALLS)
async def test_a_host_that_stalls_is_too_slow(name: str) -> None:
    limits = FetchLimits(
        bytes_max=1_000_000, total_seconds=60, head_seconds=0.3, window_seconds=0.3
    )
    assert await refusal_of(STALLS[name], limits) is Verdict.too_slow


async def test_interim_answers_without_end_are_a_flood() -> None:
    script = drips(b"", b"HTTP/1.1 102 Processing\r\n\r\n")
    assert await refusal_of(script) is Verdict.header_flood


@pytest.mark.parametrize("name", STALLS)
async def test_the_whole_transfer_has_a_deadline(name: str) -> None:
    limits = FetchLimits(bytes_max=1_000_000, total_seconds=0.3)
    assert await refusal_of(STALLS[name], limits) is Verdict.deadline


async def test_enough_bytes_in_every_window_are_fast_enough() -> None:
    limits = FetchLimits(bytes_max=1_000, total_seconds=60, window_seconds=0.02, window_bytes_min=1)
    script = drips(OK + b"Content-Length: 100\r\n\r\n", b"x", times=100)
    assert await body_of(script, limits) == b"x" * 100


async def test_leaving_early_closes_the_connection() -> None:
    is_closed = asyncio.Event()

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(TE)
        try:
            while True:
                writer.write(chunked(b"x" * 1_000))
                await writer.drain()
                await asyncio.sleep(0.002)
        finally:
            is_closed.set()

    async with fetching(endless) as (_, result):
        async for _ in result.chunks:
            break
    await is_closed.wait()


async def test_a_cancelled_fetch_leaves_nothing_for_later_fetches_to_wait_for() -> None:
    for _ in range(20):
        task = asyncio.create_task(body_of(says(stays_open=True)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await body_of(says(OK + b"Content-Length: 1\r\n\r\nx")) == b"x"
