"""Runpod's status answers: states, errors in disguise, progress, times."""

import json
from typing import Any

import pytest

from shared.domain.provider import FailureClass, ProviderState, StatusReading
from shared.providers.runpod.status_answers import read_status


def _read(**record: Any) -> StatusReading:
    return read_status(200, {}, json.dumps({"id": "job-1", **record}).encode())


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("IN_QUEUE", ProviderState.queued),
        ("IN_PROGRESS", ProviderState.running),
        ("RUNNING", ProviderState.running),
        ("COMPLETED", ProviderState.completed),
        ("FAILED", ProviderState.failed),
        ("CANCELLED", ProviderState.cancelled),
        ("CANCELED", ProviderState.cancelled),
        ("TIMED_OUT", ProviderState.timed_out),
        ("TIMEOUT", ProviderState.timed_out),
        ("TIME_OUT", ProviderState.timed_out),
        ("completed", ProviderState.unrecognised),
        ("SUCCESS", ProviderState.unrecognised),
        ("", ProviderState.unrecognised),
        (None, ProviderState.unrecognised),
        (200, ProviderState.unrecognised),
    ],
)
def test_the_states(word: object, state: ProviderState) -> None:
    assert _read(status=word).state is state


@pytest.mark.parametrize(
    ("status", "body", "state"),
    [
        (404, b'{"id":"job-1","status":"COMPLETED"}', ProviderState.gone),
        (410, b"", ProviderState.gone),
        (400, b'{"id":"job-1","status":"FAILED"}', ProviderState.retry_later),
        (500, b'{"id":"job-1","status":"COMPLETED","output":1}', ProviderState.retry_later),
        (200, b"<html>a page in between</html>", ProviderState.retry_later),
        (200, b"", ProviderState.retry_later),
        (200, b'{"id":"job-1","status":"COMPL', ProviderState.retry_later),
        (200, b"[]", ProviderState.unrecognised),
        (200, b'{"status":"FAILED","status":"COMPLETED"}', ProviderState.unrecognised),
        (200, b'{"id":"a","id":"b","status":"COMPLETED"}', ProviderState.unrecognised),
        (200, b'{"status":"COMPLETED","output":' + b"[" * 9_000, ProviderState.unrecognised),
    ],
)
def test_only_a_200_with_a_readable_record_speaks_of_the_job(
    status: int, body: bytes, state: ProviderState
) -> None:
    assert read_status(status, {}, body).state is state


@pytest.mark.parametrize(
    "output",
    [
        {"error": "CUDA out of memory", "video": None},
        {"error": {"message": "x"}},
        {"errors": ["x"], "images": []},
        {"error_message": "x"},
        {"error_code": "BAD_INPUT"},
        {"status": "error", "message": "no such file"},
        {"status": "FAILED"},
        {"success": False, "message": "x"},
        [{"error": "x"}],
        {"output": {"error": "x"}},
        {"result": {"status": "failure"}},
    ],
)
def test_an_error_inside_completed_is_a_failure(output: Any) -> None:
    reading = _read(status="COMPLETED", output=output)
    assert reading.state is ProviderState.failed
    assert reading.failure_class is not None
    assert (reading.has_output, reading.output) == (False, None)


def test_an_error_beside_completed_is_a_failure() -> None:
    reading = _read(status="COMPLETED", error="Runner disconnected: connection reset")
    assert reading.state is ProviderState.failed
    assert reading.failure_class is FailureClass.worker_infra


@pytest.mark.parametrize(
    "output",
    [
        {"error": "one frame was dropped", "video_url": "https://cdn.example.net/a.mp4"},
        {"errors": ["one node failed"], "images": [{"data": "iVBORw0KGgoAAAANSUhEUg"}]},
        {"error": None, "status": "success"},
        {"error": "", "errors": []},
        {"status": "done", "success": True},
        {"caption": "an error in the matrix"},
        {"choices": [{"error": "deep inside a text"}]},
        ["error"],
        "error",
        0,
        False,
    ],
)
def test_no_error_is_seen_where_there_is_none_or_a_result_stands_beside_it(output: Any) -> None:
    reading = _read(status="COMPLETED", output=output)
    assert reading.state is ProviderState.completed
    assert (reading.has_output, reading.output) == (True, output)


def test_completed_without_output_has_none() -> None:
    assert not _read(status="COMPLETED").has_output
    assert not _read(status="COMPLETED", output=None).has_output


def test_output_is_a_result_only_when_completed() -> None:
    for word in ("IN_QUEUE", "IN_PROGRESS", "FAILED", "CANCELLED", "TIMED_OUT", "ODD"):
        reading = _read(status=word, output={"video_url": "https://cdn.example.net/a.mp4"})
        assert (reading.has_output, reading.output) == (False, None)


@pytest.mark.parametrize(
    ("output", "progress"),
    [
        ("4/10", 40),
        ("4 / 10", 40),
        ("37%", 37),
        ("37.9 %", 37),
        ({"progress": "4/10"}, 40),
        ({"progress": 40}, 40),
        ({"progress": 40.7}, 40),
        ({"percent": 99}, 99),
        ({"progress": 0}, 0),
        ({"progress": 0.4}, None),
        ({"progress": 1}, None),
        ({"progress": True}, None),
        ({"progress": 400}, None),
        ({"progress": -4}, None),
        ({"progress": "4/0"}, None),
        ({"progress": "11/10"}, None),
        ({"progress": {"step": 4}}, None),
        ({"step": 4}, None),
        ("step 4/10", None),
        ("half done", None),
        (45, None),
        (["4/10"], None),
        (None, None),
    ],
)
def test_progress_is_shown_only_where_it_is_plain(output: Any, progress: int | None) -> None:
    assert _read(status="IN_PROGRESS", output=output).progress == progress
    assert _read(status="IN_QUEUE", output=output).progress is None


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [(1500, 1.5), (0, 0.0), (2.5, 0.0025), (-1, None), (10**13, None), ("5", None), (True, None)],
)
def test_the_times_in_seconds(milliseconds: Any, seconds: float | None) -> None:
    reading = _read(status="COMPLETED", executionTime=milliseconds, delayTime=milliseconds)
    assert reading.execution_seconds == seconds
    assert reading.queue_seconds == seconds


def test_why_a_job_ended_badly() -> None:
    assert _read(status="CANCELLED").failure_class is FailureClass.cancelled
    assert _read(status="TIMED_OUT").failure_class is FailureClass.unknown
    assert _read(status="TIMED_OUT", executionTime=0).failure_class is FailureClass.unknown
    assert _read(status="TIMED_OUT", executionTime=9).failure_class is FailureClass.exec_timeout
    assert _read(status="FAILED").failure_class is FailureClass.unknown
    failed = _read(status="FAILED", output={"error": "CUDA out of memory"})
    assert failed.failure_class is FailureClass.oom
    assert _read(status="COMPLETED").failure_class is None


def test_an_id_that_cannot_be_one_is_not_shown() -> None:
    assert _read(status="IN_QUEUE").provider_job_id == "job-1"
    assert _read(status="IN_QUEUE", id="a/b").provider_job_id is None
