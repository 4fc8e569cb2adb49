"""An outbox row as a Kafka record: topic, key, value, headers. Pure.

The key is the job's id, so all records of a job share a partition; the headers are CloudEvents
in binary mode plus the row's own `traceparent`. Must never add anything to the stored payload:
ids, a reason and a version are all that may travel.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from shared.domain.hints import HintKind
from shared.store.outbox import OutboxRow

SOURCE = "coatcheck/relay"

_TOPICS = {kind.value: kind.topic for kind in HintKind}


@dataclass(frozen=True)
class Outgoing:
    """One record, ready to be sent."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def outgoing(row: OutboxRow) -> Outgoing | None:
    """The record of a row; None where no topic belongs to its `aggregatetype`."""
    topic = _TOPICS.get(row.aggregatetype)
    if topic is None:
        return None
    headers = {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": str(row.id),
        "ce_type": f"coatcheck.{row.aggregatetype}.{row.type}",
        "ce_source": SOURCE,
        "ce_time": _rfc3339(row.created_at),
        "ce_subject": str(row.aggregateid),
    }
    if row.traceparent is not None:
        headers["traceparent"] = row.traceparent
    return Outgoing(
        topic=topic,
        key=str(row.aggregateid).encode(),
        value=json.dumps(row.payload, separators=(",", ":")).encode(),
        headers=tuple((name, text.encode()) for name, text in headers.items()),
    )


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
