"""The last gate: no first byte after its moment, and the caller always knows the phase."""

import asyncio

import pytest

from shared.domain.durations import TimeScale
from shared.domain.provider import Phase
from shared.kit.http import HttpTransport, PhaseRecorder, SendDeadline, boottime_seconds, phases
from tests.contract.http.calling import call
from tests.contract.http.hostile import OK, Certificates, Talk, serving


async def _answer(talk: Talk) -> None:
    await talk.read_request()
    await talk.send(OK)


async def test_after_the_moment_nothing_is_sent() -> None:
    async with serving(_answer) as server:
        exchange = await call(server.url, not_after_boottime=boottime_seconds())
    assert (exchange.phase, exchange.error) == (Phase.connect, "SendWindowClosed")
    assert exchange.phase.is_provably_unsent
    assert [bytes(talk.received) for talk in server.talks] in ([], [b""])


async def test_after_the_moment_nothing_is_sent_over_tls(certificates: Certificates) -> None:
    async with serving(_answer, certificates.server) as server:
        exchange = await call(
            server.tls_url, not_after_boottime=0.0, ssl_context=certificates.client
        )
    assert (exchange.phase, exchange.error) == (Phase.tls, "SendWindowClosed")
    assert [bytes(talk.received) for talk in server.talks] in ([], [b""])


async def test_the_clock_is_read_once_the_connection_stands_and_only_then(
    monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    recorder = PhaseRecorder()
    asked_in: list[Phase] = []

    def clock() -> float:
        asked_in.append(recorder.phase)
        return 99.0

    monkeypatch.setattr(phases, "boottime_seconds", clock)
    async with serving(_answer, certificates.server) as server:
        exchange = await call(
            server.tls_url,
            not_after_boottime=100.0,
            recorder=recorder,
            ssl_context=certificates.client,
        )
    assert exchange.complete
    assert asked_in == [Phase.tls]


async def test_the_caller_is_told_once_that_the_first_byte_left() -> None:
    told: list[Phase] = []
    recorder = PhaseRecorder(on_first_byte=lambda: told.append(recorder.phase))
    async with serving(_answer) as server:
        await call(server.url, recorder=recorder, body=b"x" * 500_000)
    assert told == [Phase.request_partly_written]


async def test_a_refused_first_byte_is_not_announced() -> None:
    told: list[bool] = []
    recorder = PhaseRecorder(on_first_byte=lambda: told.append(True))
    async with serving(_answer) as server:
        await call(server.url, recorder=recorder, not_after_boottime=0.0)
    assert told == []


async def test_cancellation_passes_and_leaves_the_phase_with_the_caller() -> None:
    request_read = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.read_request()
        request_read.set()
        await talk.wait_for_end()

    recorder = PhaseRecorder()
    async with serving(script) as server:
        task = asyncio.create_task(call(server.url, recorder=recorder))
        await request_read.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    exchange = recorder.exchange("CancelledError")
    assert exchange.phase is Phase.request_written
    assert not exchange.complete
    assert server.requests == 1


async def test_an_error_nobody_foresaw_becomes_an_exchange() -> None:
    def breaks() -> None:
        raise LookupError("a text that must not travel")

    async with serving(_answer) as server:
        exchange = await call(server.url, recorder=PhaseRecorder(on_first_byte=breaks))
    assert (exchange.phase, exchange.error) == (Phase.request_partly_written, "LookupError")


async def test_the_whole_deadline_ends_a_call_without_an_answer() -> None:
    async def script(talk: Talk) -> None:
        await talk.wait_for_end()

    async with serving(script) as server:
        exchange = await call(server.url, total_seconds=1.0)
    assert (exchange.phase, exchange.error) == (Phase.request_written, "TotalDeadlinePassed")


async def test_a_timeout_of_the_network_is_named_as_itself() -> None:
    def times_out() -> None:
        raise TimeoutError

    async with serving(_answer) as server:
        exchange = await call(server.url, recorder=PhaseRecorder(on_first_byte=times_out))
    assert exchange.error == "TimeoutError"


async def test_the_transport_keeps_to_the_deadline_of_the_claim() -> None:
    transport = HttpTransport(TimeScale(60))
    deadline = SendDeadline.after_claim(boottime_seconds() - 3.5, TimeScale(60))
    async with serving(_answer) as server:
        late = await transport.paid("POST", server.url, {}, b"{}", deadline)
        deadline = SendDeadline.after_claim(boottime_seconds(), TimeScale(1))
        in_time = await transport.paid("POST", server.url, {}, b"{}", deadline)
    assert (late.phase, late.error) == (Phase.connect, "SendWindowClosed")
    assert in_time.status == 200
    assert server.requests == 1


async def test_no_other_task_runs_between_the_clock_and_the_first_byte(
    monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    others: list[str] = []
    seen_at_first_byte: list[list[str]] = []

    def clock() -> float:
        asyncio.get_running_loop().call_soon(others.append, "another task")
        return 0.0

    monkeypatch.setattr(phases, "boottime_seconds", clock)
    async with serving(_answer) as plain, serving(_answer, certificates.server) as tls:
        for url in (plain.url, tls.tls_url):
            others.clear()
            recorder = PhaseRecorder(lambda: seen_at_first_byte.append(list(others)))
            await call(
                url,
                not_after_boottime=1.0,
                recorder=recorder,
                ssl_context=certificates.client,
            )
            assert others == ["another task"]
    assert seen_at_first_byte == [[], []]
