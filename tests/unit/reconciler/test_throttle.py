"""Pauses of a provider: its own wishes, and those that silence earns."""

from services.reconciler.throttle import Throttle
from shared.domain.provider import ProviderState, StatusReading
from shared.kit.loops import Backoff

KEY, OTHER = ("runpod", "https://a.example"), ("runpod", "https://b.example")
SILENT = StatusReading(ProviderState.retry_later)
RUNNING = StatusReading(ProviderState.running)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def throttle() -> tuple[Throttle, Clock]:
    clock = Clock()
    return Throttle(Backoff(2.0, 60.0), clock), clock


def test_a_wish_holds_every_call_of_its_key_and_no_other() -> None:
    held, clock = throttle()
    held.heed(KEY, SILENT, 30.0)
    assert held.held_seconds(KEY) == 30.0
    assert held.held_seconds(OTHER) == 0.0
    clock.now += 30
    assert held.held_seconds(KEY) == 0.0


def test_an_answer_does_not_cut_a_wish_short() -> None:
    held, _ = throttle()
    held.heed(KEY, SILENT, 30.0)
    held.heed(KEY, RUNNING, 0.0)
    assert held.held_seconds(KEY) == 30.0


def test_a_shorter_wish_does_not_shorten_a_longer_one() -> None:
    held, _ = throttle()
    held.heed(KEY, SILENT, 30.0)
    held.heed(KEY, SILENT, 1.0)
    assert held.held_seconds(KEY) == 30.0


def test_silence_pauses_from_the_third_in_a_row_and_longer_each_time() -> None:
    held, clock = throttle()
    held.heed(KEY, SILENT, 0.0)
    held.heed(KEY, SILENT, 0.0)
    assert held.held_seconds(KEY) == 0.0
    pauses = []
    for _ in range(8):
        held.heed(KEY, SILENT, 0.0)
        pauses.append(held.held_seconds(KEY))
        clock.now += pauses[-1]
    assert 1.0 <= pauses[0] <= 2.0
    assert 30.0 <= pauses[-1] <= 60.0


def test_a_burst_that_was_on_its_way_counts_once() -> None:
    held, _ = throttle()
    for _ in range(50):
        held.heed(KEY, SILENT, 0.0)
    assert held.held_seconds(KEY) <= 2.0


def test_an_answer_ends_the_silence() -> None:
    held, _ = throttle()
    for _ in range(3):
        held.heed(KEY, SILENT, 0.0)
    assert held.held_seconds(KEY) > 0
    held.heed(KEY, RUNNING, 0.0)
    assert held.held_seconds(KEY) == 0.0
    held.heed(KEY, SILENT, 0.0)
    assert held.held_seconds(KEY) == 0.0
