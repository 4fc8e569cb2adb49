"""Writes that outlive an outage."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from services.submitter.writing import PatientWriter
from shared.domain.errors import Unavailable

LATER = float("inf")


class Server:
    """Is away for the first `away` knocks."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.knocks = 0
        self.inside = 0
        self.most_inside = 0

    async def write(self) -> str:
        """A write."""
        self.knocks += 1
        is_away = self.knocks <= self.away
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        if is_away:
            raise Unavailable
        return "written"


async def test_a_write_is_tried_until_it_is_done() -> None:
    server = Server(away=4)
    assert await PatientWriter(0.0).write(server.write, until_boottime=LATER) == "written"
    assert server.knocks == 5


async def test_a_write_whose_time_is_over_is_given_up() -> None:
    server = Server(away=9)
    with pytest.raises(Unavailable):
        await PatientWriter(0.0).write(server.write, until_boottime=0.0)
    assert server.knocks == 2


async def test_other_errors_pass_through_at_once() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    writer = PatientWriter(0.0)
    with pytest.raises(ZeroDivisionError):
        await writer.write(broken, until_boottime=LATER)
    with pytest.raises(Unavailable):
        await writer.write(Server(9).write, until_boottime=0.0)
    with pytest.raises(ZeroDivisionError):
        await writer.write(broken, until_boottime=LATER)


async def test_many_writers_knock_one_at_a_time_and_go_in_together() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    together, server = asyncio.Barrier(16), Server(away=5)

    def write() -> Callable[[], Awaitable[str]]:
        """A write whose first try fails in the same moment as all the others' first tries."""
        tries = iter([True])

        async def attempt() -> str:
            if next(tries, False):
                await together.wait()
                raise Unavailable
            return await server.write()

        return attempt

    writer = PatientWriter(1.0, sleep)
    writes = (writer.write(write(), until_boottime=LATER) for _ in range(16))
    assert await asyncio.gather(*writes) == ["written"] * 16
    assert server.most_inside == 1
    assert server.knocks == 5 + 16
    assert slept == [1.0] * 6, "once before each knock until the server is back, then never"
