"""What a status answer means once a result was there."""

import pytest

from services.archiver.attempt import problem_of
from services.archiver.problems import Denied, Problem, Trouble
from shared.domain.provider import ProviderState, StatusReading


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ProviderState.completed, None),
        (ProviderState.gone, Denied("gone")),
        (ProviderState.failed, Denied("failed")),
        (ProviderState.cancelled, Denied("cancelled")),
        (ProviderState.timed_out, Denied("timed_out")),
        (ProviderState.queued, Trouble("queued", was_silent=False)),
        (ProviderState.running, Trouble("running", was_silent=False)),
        (ProviderState.unrecognised, Trouble("unrecognised")),
        (ProviderState.retry_later, Trouble("retry_later")),
    ],
)
def test_every_state_has_its_meaning(state: ProviderState, expected: Problem | None) -> None:
    assert problem_of(StatusReading(state)) == expected


def test_a_wish_is_passed_on() -> None:
    reading = StatusReading(ProviderState.retry_later, retry_after_seconds=9.0)
    assert problem_of(reading) == Trouble("retry_later", retry_after_seconds=9.0)
