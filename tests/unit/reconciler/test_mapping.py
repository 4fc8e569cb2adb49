"""What follows from one answer: who may end a job, and how often it must be said."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from services.reconciler.mapping import (
    Cancelled,
    Capture,
    Decision,
    Failed,
    Judge,
    Look,
    LookAgain,
    OpenReview,
    TimedOut,
)
from services.reconciler.pacing import Pacing
from services.reconciler.survey import NOTHING, Survey
from shared.domain.durations import TimeScale
from shared.domain.job import Job
from shared.domain.provider import FailureClass, ProviderState, StatusReading
from shared.domain.stages import AttentionReason, ErrorCode, Stage
from tests.unit.some_rows import START, a_job, a_pinned

WHOLE = Survey(is_whole=True)
GONE, UNRECOGNISED = ProviderState.gone, ProviderState.unrecognised
COMPLETED, RUNNING = ProviderState.completed, ProviderState.running
QUEUED, RETRY = ProviderState.queued, ProviderState.retry_later
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def decide(
    job: Job,
    state: ProviderState,
    at: datetime,
    *,
    survey: Survey = NOTHING,
    rules_changed: bool = False,
    factor: float = 1.0,
    **reading: Any,
) -> Decision:
    scale = TimeScale(factor)
    judge = Judge(scale, Pacing(scale, lambda: 0.0))
    said = StatusReading(state, "job-1-u1", **reading)
    return judge.decide(Look(job, at, a_pinned(), said, survey, rules_changed))


def odd(state: ProviderState, answers: int, since: datetime = START, **changes: Any) -> Job:
    return a_job(odd_state=state.value, odd_answers=answers, odd_since=since, **changes)


def in_review(reason: AttentionReason, **changes: Any) -> Job:
    return a_job(
        stage=Stage.review, attention_reason=reason.value, attention_since=START, **changes
    )


@pytest.mark.parametrize("state", [QUEUED, RUNNING])
def test_a_job_under_way_is_looked_at_again(state: ProviderState) -> None:
    decision = decide(a_job(), state, START + timedelta(seconds=50), progress=40)
    assert decision == LookAgain(timedelta(seconds=10), state, 40, is_unfinished=True)


def test_silence_moves_nothing_and_heeds_the_wish() -> None:
    at = START + timedelta(seconds=50)
    assert decide(a_job(), RETRY, at) == LookAgain(timedelta(seconds=10))
    wished = decide(a_job(), RETRY, at, retry_after_seconds=70.0)
    assert wished == LookAgain(timedelta(seconds=70))


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ({"failure_class": FailureClass.oom}, Failed(ErrorCode.provider_failed, FailureClass.oom)),
        ({}, Failed(ErrorCode.provider_failed)),
        ({"failure_class": FailureClass.exec_timeout}, TimedOut(ErrorCode.provider_timed_out)),
        ({"failure_class": FailureClass.queue_timeout}, TimedOut(ErrorCode.provider_expired)),
    ],
)
def test_a_failure_is_believed_at_once(reading: dict[str, Any], expected: Decision) -> None:
    assert decide(a_job(), ProviderState.failed, START, **reading) == expected


@pytest.mark.parametrize(
    ("changes", "reading", "code"),
    [
        ({}, {}, ErrorCode.provider_expired),
        ({"started_at": START}, {}, ErrorCode.provider_timed_out),
        ({}, {"execution_seconds": 3.0}, ErrorCode.provider_timed_out),
        ({}, {"failure_class": FailureClass.exec_timeout}, ErrorCode.provider_timed_out),
        (
            {"started_at": START},
            {"failure_class": FailureClass.queue_timeout},
            ErrorCode.provider_expired,
        ),
    ],
)
def test_a_timeout_is_told_apart_from_an_expiry(
    changes: dict[str, Any], reading: dict[str, Any], code: ErrorCode
) -> None:
    decision = decide(a_job(**changes), ProviderState.timed_out, START, **reading)
    assert decision == TimedOut(code)


def test_a_cancellation_is_believed_at_once() -> None:
    assert decide(a_job(), ProviderState.cancelled, START) == Cancelled()


def test_a_whole_completion_is_captured() -> None:
    survey = Survey(is_whole=True, link_expires_at=START + HOUR)
    assert decide(a_job(), COMPLETED, START, survey=survey) == Capture(START + HOUR)


def test_a_completion_without_its_artifact_is_checked_three_times_over_a_minute() -> None:
    again = LookAgain(timedelta(seconds=20), odd_state=COMPLETED)
    assert decide(a_job(), COMPLETED, START) == again
    for answers in (1, 2):
        assert decide(odd(COMPLETED, answers), COMPLETED, START + MINUTE) == again
    assert decide(odd(COMPLETED, 3), COMPLETED, START + timedelta(seconds=59)) == again
    missing = Failed(ErrorCode.result_missing)
    assert decide(odd(COMPLETED, 3), COMPLETED, START + MINUTE) == missing


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (GONE, AttentionReason.provider_job_gone),
        (UNRECOGNISED, AttentionReason.provider_state_unrecognised),
    ],
)
def test_an_odd_answer_opens_a_review_after_three_over_a_minute(
    state: ProviderState, reason: AttentionReason
) -> None:
    again = LookAgain(timedelta(seconds=20), odd_state=state)
    assert decide(a_job(), state, START + MINUTE) == again
    assert decide(odd(state, 1), state, START + MINUTE) == again
    assert decide(odd(state, 2), state, START + timedelta(seconds=59)) == again
    opened = OpenReview(reason, timedelta(seconds=60), state)
    assert decide(odd(state, 2), state, START + MINUTE) == opened


def test_odd_answers_of_another_kind_confirm_nothing() -> None:
    for before, now in ((GONE, COMPLETED), (UNRECOGNISED, GONE), (COMPLETED, UNRECOGNISED)):
        decision = decide(odd(before, 9), now, START + HOUR / 2)
        assert decision == LookAgain(timedelta(seconds=20), odd_state=now)


def test_spans_are_scaled() -> None:
    second = timedelta(seconds=1)
    assert isinstance(decide(odd(GONE, 2), GONE, START + second, factor=60), OpenReview)
    assert isinstance(decide(odd(GONE, 2), GONE, START + second / 2, factor=60), LookAgain)


@pytest.mark.parametrize("state", [QUEUED, RUNNING, RETRY])
def test_a_spent_budget_opens_a_review(state: ProviderState) -> None:
    before = decide(a_job(), state, START + HOUR - MINUTE)
    assert isinstance(before, LookAgain)
    said = None if state is RETRY else state
    reason = AttentionReason.check_budget_spent
    assert decide(a_job(), state, START + HOUR) == OpenReview(reason, MINUTE, said)


def test_a_spent_budget_does_not_hide_a_better_reason() -> None:
    assert isinstance(decide(a_job(), GONE, START + HOUR), LookAgain)
    opened = decide(odd(GONE, 2), GONE, START + HOUR)
    assert isinstance(opened, OpenReview)
    assert opened.reason is AttentionReason.provider_job_gone


@pytest.mark.parametrize("state", [GONE, UNRECOGNISED, QUEUED, RUNNING, RETRY])
def test_a_review_is_watched_until_the_provider_forgets(state: ProviderState) -> None:
    job = in_review(AttentionReason.provider_job_gone)
    watched = decide(job, state, START + HOUR)
    assert isinstance(watched, LookAgain)
    assert watched.delay == MINUTE
    assert watched.odd_state is None
    forgotten = decide(job, state, START + HOUR + HOUR / 2)
    assert isinstance(forgotten, LookAgain)
    assert forgotten.delay is None


@pytest.mark.parametrize("reason", list(AttentionReason)[:3])
def test_a_proper_answer_moves_a_review_on(reason: AttentionReason) -> None:
    job = in_review(reason)
    assert decide(job, COMPLETED, START, survey=WHOLE) == Capture(None)
    assert isinstance(decide(job, ProviderState.failed, START), Failed)
    assert decide(job, ProviderState.cancelled, START) == Cancelled()


def test_a_review_counts_missing_artifacts_anew() -> None:
    job = in_review(AttentionReason.provider_job_gone)
    assert isinstance(decide(job, COMPLETED, START + HOUR), LookAgain)


@pytest.mark.parametrize(
    "reason",
    [AttentionReason.result_refused_by_config, AttentionReason.capture_budget_spent],
)
def test_an_archivers_review_waits_for_another_registry(reason: AttentionReason) -> None:
    job = in_review(reason)
    assert decide(job, COMPLETED, START, survey=WHOLE) == LookAgain(MINUTE, COMPLETED)
    changed = decide(job, COMPLETED, START, survey=WHOLE, rules_changed=True)
    assert changed == Capture(None)
    # Another word of the provider counts all the same.
    assert isinstance(decide(job, ProviderState.failed, START), Failed)
