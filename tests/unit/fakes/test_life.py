"""A job's life as a function of time: every ending, its moment, and what is shown before."""

import math
from typing import Any

import pytest

from tests.fakes.runpod.jobs import Ending, Job, Rules, life_of, record_of
from tests.fakes.runpod.scripts import Script

RULES = Rules(queue_seconds=10, run_seconds=100, time_scale=1, public_url="http://fake")
CREATED = 1_000_000.0


def job(plan: dict[str, Any] | None = None, **changed: Any) -> Job:
    fields: dict[str, Any] = {
        "id": "j-u1",
        "endpoint": "demo",
        "created_at": CREATED,
        "input": {"a": 1},
        "webhook": None,
        "execution_timeout_seconds": 600,
        "ttl_seconds": 3600,
        "price_usd": "0.05",
        "script": Script.model_validate({"job": plan or {}}),
    }
    return Job(**(fields | changed))


def shown(one: Job, after: float) -> dict[str, Any] | None:
    return record_of(one, RULES, CREATED + after)


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (0, "IN_QUEUE"),
        (9.9, "IN_QUEUE"),
        (10, "IN_PROGRESS"),
        (109.9, "IN_PROGRESS"),
        (110, "COMPLETED"),
        (110 + 1799, "COMPLETED"),
        (110 + 1800, None),
    ],
)
def test_the_ordinary_states_by_time(after: float, state: str | None) -> None:
    record = shown(job(), after)
    assert (record["status"] if record else None) == state


def test_progress_rises_with_time_and_stops_short_of_the_end() -> None:
    outputs = [(shown(job(), after) or {})["output"] for after in (10, 60, 109.9)]
    assert outputs == [{"progress": 0}, {"progress": 50}, {"progress": 95}]


def test_times_are_milliseconds_of_waiting_and_of_running() -> None:
    record = shown(job(), 500)
    assert record is not None
    assert (record["delayTime"], record["executionTime"]) == (10_000, 100_000)


def test_the_execution_timeout_ends_in_failed_not_timed_out() -> None:
    late = job(execution_timeout_seconds=30)
    assert life_of(late, RULES).ends_at == CREATED + 40
    record = shown(late, 40)
    assert record is not None
    assert (record["status"], record["error"]) == ("FAILED", "executionTimeout exceeded")
    assert "output" not in record


def test_a_ttl_that_ends_while_the_job_runs_deletes_it() -> None:
    late = job(ttl_seconds=50)
    assert shown(late, 49) is not None
    assert shown(late, 50) is None
    assert life_of(late, RULES).ending is Ending.ttl_deleted


def test_a_ttl_that_ends_in_the_queue_times_out_or_deletes() -> None:
    assert shown(job(ttl_seconds=5), 5) == {"id": "j-u1", "status": "TIMED_OUT"}
    assert shown(job(ttl_seconds=5), 5 + 1800) is None
    assert shown(job({"queue_expiry": "deleted"}, ttl_seconds=5), 5) is None


def test_a_ttl_behind_the_end_shortens_nothing() -> None:
    assert shown(job(ttl_seconds=111), 110 + 1799) is not None


def test_an_empty_input_fails_after_a_retry_unless_scripted() -> None:
    record = shown(job(input={}), 50)
    assert record is not None
    assert (record["status"], record["retries"]) == ("FAILED", 1)
    assert record["error"] == "job timed out after 1 retries"
    scripted = shown(job({"outcome": "COMPLETED"}, input={}), 110)
    assert scripted is not None
    assert scripted["status"] == "COMPLETED"


def test_a_cancel_ends_the_job_unless_the_script_ignores_it() -> None:
    assert shown(job(cancelled_at=CREATED + 20), 21) == {"id": "j-u1", "status": "CANCELLED"}
    ignoring = job({"ignore_cancel": True}, cancelled_at=CREATED + 20)
    assert (shown(ignoring, 110) or {})["status"] == "COMPLETED"


def test_a_forced_end_replaces_the_planned_one() -> None:
    ended = job({"queue_s": "forever"}, forced_end_at=CREATED + 7)
    assert (shown(ended, 7) or {})["status"] == "COMPLETED"
    assert (shown(ended, 7) or {})["delayTime"] == 7000


def test_a_job_without_end_never_ends_before_its_limits() -> None:
    endless = job({"run_s": "forever"}, execution_timeout_seconds=math.inf, ttl_seconds=math.inf)
    life = life_of(endless, RULES)
    assert life.ends_at == math.inf
    assert (shown(endless, 1e9) or {})["output"] == {"progress": 0}


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"output": "none"}, {"status": "COMPLETED"}),
        ({"output": None}, {"status": "COMPLETED", "output": None}),
        ({"output": []}, {"status": "COMPLETED", "output": []}),
        ({"output": "{result_url}"}, {"output": "http://fake/results/j-u1.mp4"}),
        (
            {"output": {"images": [{"data": "{result_url}", "n": 1}]}},
            {"output": {"images": [{"data": "http://fake/results/j-u1.mp4", "n": 1}]}},
        ),
        ({"outcome": "FAILED"}, {"status": "FAILED", "error": "the job failed"}),
        ({"outcome": "FAILED", "error": {"code": 1}}, {"error": {"code": 1}}),
        ({"outcome": "FAILED", "error": None}, {"error": None}),
        ({"outcome": "FAILED", "output": {"x": 1}}, {"output": {"x": 1}}),
        ({"outcome": "COMPLETED", "error": "half"}, {"status": "COMPLETED", "error": "half"}),
        ({"outcome": "SHRUGGED"}, {"status": "SHRUGGED"}),
        ({"fields": {"retries": 1, "delayTime": 3}}, {"retries": 1, "delayTime": 3}),
        ({"price_usd": "7"}, {"output": {"video_url": "http://fake/results/j-u1.mp4", "cost": 7}}),
    ],
)
def test_scripted_endings(plan: dict[str, Any], expected: dict[str, Any]) -> None:
    record = shown(job(plan, price_usd=plan.get("price_usd", "0.05")), 110)
    assert record is not None
    assert {name: record.get(name) for name in expected} == expected
    if plan.get("output") == "none" or ("output" not in plan and "FAILED" in plan.values()):
        assert "output" not in record


@pytest.mark.parametrize(
    ("plan", "output"),
    [({"progress": "4/10"}, "4/10"), ({"progress": 7}, 7), ({"progress": None}, "absent")],
)
def test_scripted_progress(plan: dict[str, Any], output: object) -> None:
    record = shown(job(plan), 60)
    assert record is not None
    assert record.get("output", "absent") == output


def test_the_time_scale_divides_retention_and_nothing_the_caller_chose() -> None:
    quick = Rules(queue_seconds=10, run_seconds=100, time_scale=60, public_url="http://fake")
    life = life_of(job(), quick)
    assert life.ends_at == CREATED + 110
    assert life.gone_at == CREATED + 110 + 30
    assert life_of(job(ttl_seconds=50), quick).ends_at == CREATED + 50
