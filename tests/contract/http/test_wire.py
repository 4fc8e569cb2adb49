"""The receiving half of a connection: bounded ahead of its reader, and it outlives a reset."""

import asyncio

import pytest

from shared.kit.http.phases import PhaseRecorder
from shared.kit.http.wire import READ_AHEAD_BYTES, Limits, PhaseBackend, PhaseStream, Wire
from tests.contract.http.hostile import Talk, serving


async def test_what_came_before_a_reset_is_read_before_the_reset_is_told() -> None:
    wire = Wire()
    wire.transport = asyncio.Transport()
    wire.data_received(b"answer")
    wire.connection_lost(ConnectionResetError())
    assert await wire.receive(4) == b"answ"
    assert await wire.receive(4) == b"er"
    with pytest.raises(ConnectionResetError):
        await wire.receive(4)


async def test_a_sender_is_held_back_by_a_reader_that_does_not_read() -> None:
    total = 40 * READ_AHEAD_BYTES

    async def script(talk: Talk) -> None:
        await talk.send(b"x" * total)

    async with serving(script) as server:
        backend = PhaseBackend(PhaseRecorder(), Limits(60, total, None), is_tls=False)
        stream = await backend.connect_tcp("127.0.0.1", server.port)
        assert isinstance(stream, PhaseStream)
        wire = stream._wire
        while wire.transport.is_reading():
            await wire._wait()
        assert READ_AHEAD_BYTES < len(wire._buffer) < 3 * READ_AHEAD_BYTES
        received = 0
        while data := await wire.receive(1_000_000):
            received += len(data)
        await stream.aclose()
    assert received == total
