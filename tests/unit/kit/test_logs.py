"""Logs: one JSON object a line, and nothing in it that may not leave the process."""

import errno
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from shared.domain.errors import Unavailable
from shared.kit import logs

CANARY = "s3cr3t-canary"


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> "Lines":
    logs.configure_logs("debug")
    return Lines(capsys)


class Lines:
    """What was logged since the last look."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]

    def one(self) -> dict[str, Any]:
        (line,) = self.read()
        return line


def test_a_line_is_one_json_object(lines: Lines) -> None:
    logs.get_logger().info("bound", topic="a\nb", port=9100, ratio=0.5, is_on=True, job_id=None)
    line = lines.one()
    assert line.pop("at").endswith("Z")
    assert line == {
        "event": "bound",
        "level": "info",
        "topic": "a\nb",
        "port": 9100,
        "ratio": 0.5,
        "is_on": True,
        "job_id": None,
    }


def test_text_under_a_foreign_key_is_dropped_and_named(lines: Lines) -> None:
    logs.get_logger().info("x", prompt=CANARY, output={"a": CANARY}, topic="t")
    line = lines.one()
    assert CANARY not in json.dumps(line)
    assert line["dropped"] == ["output", "prompt"]
    assert line["topic"] == "t"


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{CANARY}@host/path",
        f"GET https://bucket/key?X-Amz-Signature={CANARY}&a=b failed",
        f"/webhooks/runpod/{CANARY}",
        f"key cck_{CANARY}",
        f"Bearer {CANARY}",
        f"authorization: basic {CANARY}",
        f"token=eyJhbGciOi.eyJz.{CANARY}",
        f"password={CANARY} host=db",
        f"x-amz-security-token={CANARY}",
    ],
)
def test_what_looks_like_a_credential_is_scrubbed_from_allowed_text(
    lines: Lines, text: str
) -> None:
    logs.get_logger().info(text, reason=text, settings={"a": [text]}, message=text)
    assert CANARY not in json.dumps(lines.one())


def test_long_text_is_cut(lines: Lines) -> None:
    logs.get_logger().info("x", reason="a" * 10_000)
    assert len(lines.one()["reason"]) == 500


def test_values_of_foreign_types_show_their_type_only(lines: Lines) -> None:
    class Holder:
        def __repr__(self) -> str:
            return CANARY

    logs.get_logger().info("x", result=Holder(), error=ValueError(CANARY), outcome={1: {2: (3,)}})
    line = lines.one()
    assert line["result"] == "Holder"
    assert line["error"] == "ValueError"
    assert line["outcome"] == {"1": {"2": [3]}}


def test_nesting_is_bounded(lines: Lines) -> None:
    nested: Any = "leaf"
    for _ in range(50):
        nested = [nested]
    logs.get_logger().info("x", result=nested)
    assert json.dumps(lines.one()["result"]) == '[[[["list"]]]]'


def _raise() -> None:
    raise ValueError(f"https://h/?sig={CANARY}")


def _raise_chain() -> None:
    try:
        _raise()
    except ValueError as error:
        raise Unavailable("the store does not answer") from error


def test_an_error_shows_class_places_and_only_our_own_sentence(lines: Lines) -> None:
    try:
        _raise_chain()
    except Unavailable as error:
        logs.get_logger().error("failed", exc_info=error)
    line = lines.one()
    assert CANARY not in json.dumps(line)
    assert line["error"] == "Unavailable"
    assert line["message"] == "the store does not answer"
    assert line["trace"][-1].endswith("_raise_chain")
    assert line["errors"][0]["error"] == "ValueError"
    assert "message" not in line["errors"][0]


def test_groups_os_errors_and_sql_states_are_shown(lines: Lines) -> None:
    class PostgresLikeError(Exception):
        sqlstate = "23505"

    group = ExceptionGroup("g", [OSError(errno.ENOSPC, "No space left"), PostgresLikeError(CANARY)])
    logs.get_logger().error("failed", exc_info=group)
    first, second = lines.one()["errors"]
    assert (first["error"], first["message"]) == ("OSError", "No space left")
    assert second == {"error": "PostgresLikeError", "sqlstate": "23505", "trace": []}


def test_exception_logs_the_current_error_and_tuples_are_taken(lines: Lines) -> None:
    try:
        _raise()
    except ValueError as error:
        logs.get_logger().exception("a")
        logs.get_logger().error("b", exc_info=(ValueError, error, None))
    assert [line["error"] for line in lines.read()] == ["ValueError", "ValueError"]


def test_levels_below_the_configured_one_are_silent(lines: Lines) -> None:
    logs.configure_logs("warning")
    logs.get_logger().info("quiet")
    logs.get_logger().warning("loud")
    assert lines.one()["event"] == "loud"


def test_a_transition_has_every_field_of_the_contract(lines: Lines) -> None:
    structlog.contextvars.bind_contextvars(request_id="r1", trace_id="t1")
    logs.log_transition(
        event="submission_claimed",
        job_id="j",
        from_stage="unsubmitted",
        to_stage="submitting",
        actor="submitter",
    )
    line = lines.one()
    names = "job_id owner_id endpoint provider model provider_job_id event from to actor"
    assert set(names.split()) <= set(line)
    assert (line["from"], line["to"]) == ("unsubmitted", "submitting")
    assert (line["request_id"], line["trace_id"]) == ("r1", "t1")


def test_libraries_speak_without_their_message_unless_known(lines: Lines) -> None:
    logging.getLogger("somebody").error("GET %s", CANARY)
    logging.getLogger("aiokafka.conn").warning("node %s is gone, password=%s", 1, CANARY)
    foreign, known = lines.read()
    assert CANARY not in json.dumps([foreign, known])
    assert "message" not in foreign
    assert foreign["logger"] == "somebody"
    assert known["message"] == "node 1 is gone, password=…"


def test_a_library_that_repeats_itself_is_heard_once(lines: Lines) -> None:
    for _ in range(100):
        logging.getLogger("aiokafka").error("again")
    assert lines.one()["message"] == "again"


def test_an_error_inside_a_library_is_shown_by_class(lines: Lines) -> None:
    try:
        _raise()
    except ValueError:
        logging.getLogger("aiokafka").exception("boom")
    line = lines.one()
    assert line["error"] == "ValueError"
    assert line["level"] == "error"
    assert CANARY not in json.dumps(line)


def test_url_loggers_stay_quiet_even_at_debug(lines: Lines) -> None:
    for name in ("httpx", "httpcore", "botocore", "uvicorn.access"):
        logging.getLogger(name).warning("GET https://h/?sig=%s", CANARY)
    assert lines.read() == []


def test_a_full_disk_loses_lines_and_stops_nobody(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        with pytest.raises(OSError, match="No space"):
            full.write("what a bare write does\n")
        monkeypatch.setattr("sys.stdout", full)
        logs.get_logger().info("lost", topic="x" * 100_000)
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space"):
            full.close()  # what was held is still held
    logs.get_logger().info("kept")
    assert lines.one()["event"] == "kept"
