"""Endpoints that are left alone for a moment."""

from services.submitter.rests import EndpointRests
from shared.kit.loops import Backoff

ANY = Backoff(1000.0, 1000.0)
NONE = Backoff(0.0, 0.0)


async def test_an_endpoint_rests_alone_until_its_provider_takes_a_job() -> None:
    rests = EndpointRests(ANY)
    assert not rests.is_resting("a")
    rests.refused("a", None)
    assert rests.is_resting("a")
    assert not rests.is_resting("b")
    rests.accepted("a")
    assert not rests.is_resting("a")


async def test_the_providers_wish_counts_where_it_is_longer() -> None:
    rests = EndpointRests(NONE)
    rests.refused("a", None)
    assert not rests.is_resting("a")
    rests.refused("a", 1000.0)
    assert rests.is_resting("a")


async def test_calls_that_failed_together_count_once() -> None:
    asked: list[int] = []

    class Noted(Backoff):
        def seconds(self, attempt: int) -> float:
            asked.append(attempt)
            return 1000.0

    rests = EndpointRests(Noted())
    for _ in range(5):
        rests.refused("a", None)
    assert asked == [0]


async def test_rests_in_a_row_are_counted() -> None:
    asked: list[int] = []

    class Noted(Backoff):
        def seconds(self, attempt: int) -> float:
            asked.append(attempt)
            return 0.0

    rests = EndpointRests(Noted())
    for _ in range(3):
        rests.refused("a", None)
    rests.accepted("a")
    rests.refused("a", None)
    assert asked == [0, 1, 2, 0]
