"""The delays between looks: never under the provider's least, never over what retention allows."""

from datetime import timedelta

import pytest

from services.reconciler.pacing import Pacing, longest_gap_s
from shared.domain.durations import TimeScale
from tests.unit.some_rows import a_pinned

AGES = [timedelta(seconds=s) for s in (0, 1, 5, 10, 30, 100, 299, 301, 3600, 10**6)]


def pacing(factor: float = 1.0, chance: float = 0.0) -> Pacing:
    return Pacing(TimeScale(factor), lambda: chance)


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("age", AGES)
def test_a_gap_lies_between_the_least_and_the_longest(age: timedelta, chance: float) -> None:
    pinned = a_pinned()
    gap = pacing(chance=chance).gap(pinned, age).total_seconds()
    assert pinned.poll.min_s <= gap <= 60


def test_gaps_grow_with_age_to_the_longest() -> None:
    gaps = [pacing().gap(a_pinned(), age) for age in AGES]
    assert gaps == sorted(gaps)
    assert gaps[0] == timedelta(seconds=2)
    assert gaps[5] == timedelta(seconds=20)
    assert gaps[-1] == timedelta(seconds=60)


def test_six_looks_fit_into_a_short_retention() -> None:
    pinned = a_pinned(retention_s=60)
    assert longest_gap_s(pinned) == 10
    assert pacing().gap(pinned, timedelta(hours=1)) == timedelta(seconds=10)
    assert pacing().watch_gap(pinned) == timedelta(seconds=10)


def test_a_least_gap_above_the_longest_gives_way() -> None:
    pinned = a_pinned(retention_s=6, poll={"first_s": 5, "min_s": 5, "max_s": 60})
    for chance in (0.0, 0.999):
        assert pacing(chance=chance).gap(pinned, timedelta(0)) == timedelta(seconds=1)
        assert pacing(chance=chance).watch_gap(pinned) == timedelta(seconds=1)


def test_the_scale_divides_gaps_and_multiplies_ages() -> None:
    at_scale = pacing(factor=60).gap(a_pinned(), timedelta(seconds=1))
    assert at_scale == timedelta(seconds=12 / 60)


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_three_confirming_gaps_fill_the_span(chance: float) -> None:
    at = pacing(chance=chance)
    assert 3 * at.confirm_gap() >= at.confirm_span()


def test_a_wish_is_heeded_up_to_the_scaled_cap() -> None:
    pinned = a_pinned()
    assert pacing().retry_gap(pinned, timedelta(0), None) == timedelta(seconds=2)
    assert pacing().retry_gap(pinned, timedelta(0), 100) == timedelta(seconds=100)
    assert pacing().retry_gap(pinned, timedelta(0), 10**6) == timedelta(minutes=15)
    assert pacing(factor=60).retry_gap(pinned, timedelta(0), 10**6) == timedelta(seconds=15)
    # The provider's own seconds are not ours to shorten.
    assert pacing(factor=60).retry_gap(pinned, timedelta(0), 7) == timedelta(seconds=7)


def test_a_cancel_is_wished_again_after_a_scaled_while() -> None:
    assert pacing(factor=10).cancel_gap() == timedelta(seconds=3)
