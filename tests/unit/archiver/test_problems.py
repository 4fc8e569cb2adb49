"""What follows from a failed attempt: who may end a capture, and what only waits."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from services.archiver.problems import (
    Again,
    Barred,
    Decision,
    Denied,
    GiveToPerson,
    Judge,
    Missing,
    Problem,
    Refuse,
    Trouble,
    Unusable,
)
from shared.domain.durations import TimeScale
from shared.domain.job import Job
from shared.domain.provider import ProviderState
from shared.domain.stages import AttentionReason, ErrorCode, Stage
from tests.unit.some_rows import START, a_job, a_pinned

DEADLINE = START + timedelta(minutes=30)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
GONE, COMPLETED = ProviderState.gone, ProviderState.completed


def capturing(**changes: Any) -> Job:
    return a_job(**{"stage": Stage.capturing, "capture_deadline": DEADLINE, **changes})


def odd(state: ProviderState, answers: int) -> Job:
    return capturing(odd_state=state.value, odd_answers=answers, odd_since=START)


def decide(
    job: Job, problem: Problem, at: datetime, *, factor: float = 1.0, chance: float = 0.0
) -> Decision:
    return Judge(TimeScale(factor), lambda: chance).decide(job, a_pinned(), problem, at)


def test_a_refusal_is_believed_the_third_time_over_a_minute() -> None:
    denied = Denied("gone")
    again = Again(timedelta(seconds=20), GONE)
    assert decide(capturing(), denied, START) == again
    assert decide(odd(GONE, 1), denied, START + MINUTE) == again
    assert decide(odd(GONE, 2), denied, START + timedelta(seconds=59)) == again
    assert decide(odd(GONE, 2), denied, START + MINUTE) == Refuse(ErrorCode.result_lost)


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (Missing(), ErrorCode.result_missing),
        (Unusable("ip_literal"), ErrorCode.result_invalid),
    ],
)
def test_nothing_storable_ends_the_job_after_three_checks_more(
    problem: Problem, code: ErrorCode
) -> None:
    again = Again(timedelta(seconds=20), COMPLETED)
    assert decide(capturing(), problem, START) == again
    assert decide(odd(COMPLETED, 2), problem, START + MINUTE) == again
    assert decide(odd(COMPLETED, 3), problem, START + MINUTE) == Refuse(code)


def test_kinds_confirm_only_themselves() -> None:
    late = START + HOUR / 3
    assert decide(odd(COMPLETED, 9), Denied("gone"), late) == Again(timedelta(seconds=20), GONE)
    assert decide(odd(GONE, 9), Missing(), late) == Again(timedelta(seconds=20), COMPLETED)


def test_passing_the_deadline_ends_nothing() -> None:
    for problem in (Denied("gone"), Missing(), Trouble("connect_failed")):
        assert isinstance(decide(capturing(), problem, DEADLINE + MINUTE), Again)


def test_what_our_settings_refuse_waits_and_then_goes_to_a_person() -> None:
    barred = Barred("host_not_listed")
    early = decide(capturing(), barred, START)
    assert early == Again(MINUTE)
    near = decide(capturing(), barred, DEADLINE - timedelta(seconds=10))
    assert isinstance(near, Again)
    assert timedelta(seconds=10) <= near.delay <= timedelta(seconds=11)
    reason = AttentionReason.result_refused_by_config
    assert decide(capturing(), barred, DEADLINE) == GiveToPerson(reason, MINUTE)


def test_trouble_is_tried_again_until_the_budget_is_spent() -> None:
    trouble = Trouble("connect_failed")
    budget = DEADLINE + timedelta(minutes=30)
    assert isinstance(decide(capturing(), trouble, budget - MINUTE), Again)
    reason = AttentionReason.capture_budget_spent
    assert decide(capturing(), trouble, budget) == GiveToPerson(reason, MINUTE)
    forgotten = START + HOUR + HOUR / 2
    assert decide(capturing(), trouble, forgotten) == GiveToPerson(reason, None)


def test_a_refusal_is_counted_to_its_end_even_after_the_budget() -> None:
    assert isinstance(decide(capturing(), Denied("gone"), START + 9 * HOUR), Again)
    lost = Refuse(ErrorCode.result_lost)
    assert decide(odd(GONE, 2), Denied("gone"), START + 9 * HOUR) == lost


def test_retries_grow_to_a_bound_and_heed_a_wish() -> None:
    trouble = Trouble("connect_failed")
    delays = []
    for attempts in (1, 2, 3, 5, 9, 999):
        decision = decide(capturing(capture_attempts=attempts), trouble, START)
        assert isinstance(decision, Again)
        delays.append(decision.delay.total_seconds())
    assert delays == [1, 2, 4, 16, 60, 60]
    wished = decide(capturing(), Trouble("retry_later", retry_after_seconds=30.0), START)
    assert wished == Again(timedelta(seconds=30), was_silent=True)
    too_long = decide(capturing(), Trouble("retry_later", retry_after_seconds=1e6), START)
    assert too_long == Again(MINUTE, was_silent=True)


def test_no_scale_makes_a_hot_loop() -> None:
    decision = decide(capturing(), Trouble("x"), START, factor=1000, chance=0.999)
    assert isinstance(decision, Again)
    assert decision.delay >= timedelta(seconds=0.1)


def test_only_silence_keeps_the_count() -> None:
    silent = decide(capturing(), Trouble("connect_failed"), START)
    spoken = decide(capturing(), Trouble("running", was_silent=False), START)
    assert isinstance(silent, Again)
    assert isinstance(spoken, Again)
    assert (silent.was_silent, spoken.was_silent) == (True, False)


def test_a_capture_without_a_deadline_is_no_capture() -> None:
    with pytest.raises(ValueError, match="deadline"):
        decide(a_job(), Missing(), START)
