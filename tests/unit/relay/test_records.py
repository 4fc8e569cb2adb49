"""An outbox row as a record."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from services.relay.records import outgoing
from shared.domain.hints import Hint, HintKind
from shared.store.outbox import OutboxRow

JOB = UUID(int=7)


def row(**changes: Any) -> OutboxRow:
    """A submit hint."""
    values: dict[str, Any] = {
        "id": UUID(int=1),
        "aggregatetype": "submit",
        "aggregateid": JOB,
        "type": "job_requested",
        "payload": {"job_id": str(JOB), "reason": "job_requested", "version": 1},
        "traceparent": None,
        "created_at": datetime(2026, 1, 2, 3, 4, 5, 600_000, UTC),
    }
    return OutboxRow(**{**values, **changes})


def test_the_value_is_the_stored_payload_and_reads_as_a_hint() -> None:
    record = outgoing(row())
    assert record is not None
    assert json.loads(record.value) == row().payload
    assert Hint.model_validate_json(record.value).job_id == JOB


def test_the_headers_are_a_cloud_event_in_binary_mode() -> None:
    record = outgoing(row())
    assert record is not None
    assert dict(record.headers) == {
        "content-type": b"application/json",
        "ce_specversion": b"1.0",
        "ce_id": str(UUID(int=1)).encode(),
        "ce_type": b"coatcheck.submit.job_requested",
        "ce_source": b"coatcheck/relay",
        "ce_time": b"2026-01-02T03:04:05.600000Z",
        "ce_subject": str(JOB).encode(),
    }
    assert record.key == str(JOB).encode()


def test_the_time_is_utc_wherever_the_row_was_read() -> None:
    at = datetime(2026, 1, 2, 3, 0, tzinfo=timezone(timedelta(hours=2)))
    record = outgoing(row(created_at=at))
    assert record is not None
    assert dict(record.headers)["ce_time"] == b"2026-01-02T01:00:00Z"


def test_the_rows_own_trace_travels_with_it() -> None:
    text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    record = outgoing(row(traceparent=text))
    assert record is not None
    assert dict(record.headers)["traceparent"] == text.encode()


@pytest.mark.parametrize("kind", HintKind)
def test_every_kind_has_its_topic(kind: HintKind) -> None:
    record = outgoing(row(aggregatetype=kind.value))
    assert record is not None
    assert record.topic == f"coatcheck.{kind.value}.v1"


def test_a_kind_that_nobody_knows_has_none() -> None:
    assert outgoing(row(aggregatetype="rumours")) is None
