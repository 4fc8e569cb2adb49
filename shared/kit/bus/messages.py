"""What comes in over the bus, judged before anybody acts on it.

Owns the reading of a record as a hint, the words for what is wrong with one, and the record
that tells of a parked message. Must never echo a payload: it may hold anything.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from shared.domain.errors import CoatcheckError
from shared.domain.hints import Hint

MAX_HINT_BYTES = 16_384
PASSED_HEADERS = ("traceparent",)

R = TypeVar("R", bound=Any)


class ParkReason(StrEnum):
    """Why a message was parked."""

    empty = "empty"
    too_large = "too_large"
    not_json = "not_json"
    wrong_fields = "wrong_fields"
    unreadable = "unreadable"


class Undecodable(CoatcheckError):
    """A message that cannot be read as what its topic carries."""

    def __init__(self, reason: ParkReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Record(Protocol):
    """As much of a consumed record as is needed to park it."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any


@dataclass(frozen=True)
class ParkedMessage:
    """A message set aside: where it stood, what is wrong, its bytes for the table alone."""

    topic: str
    partition: int
    offset: int
    error: str
    key: bytes | None
    value: bytes | None

    def record(self) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
        """Key, value and headers of the record on the dead-letters topic; no payload."""
        place = f"{self.topic}:{self.partition}:{self.offset}"
        value = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "error": self.error,
        }
        headers = {
            "ce_specversion": "1.0",
            "ce_id": place,
            "ce_type": "coatcheck.message.parked",
            "ce_source": "coatcheck",
            "ce_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "ce_subject": place,
        }
        raw = [(name, text.encode()) for name, text in headers.items()]
        return place.encode(), json.dumps(value).encode(), raw


def decode_hint(value: bytes | None) -> Hint:
    """The hint in a record's value. Raises Undecodable."""
    if not value:
        raise Undecodable(ParkReason.empty)
    if len(value) > MAX_HINT_BYTES:
        raise Undecodable(ParkReason.too_large)
    try:
        return Hint.model_validate_json(value)
    except ValidationError as error:
        is_json = error.errors(include_url=False)[0]["type"] != "json_invalid"
        raise Undecodable(ParkReason.wrong_fields if is_json else ParkReason.not_json) from None


def with_safe_headers(record: R) -> R:
    """The record with only the headers we pass on, each of them valid text.

    A foreign header may be null, or not UTF-8, and `reply_to` would make us publish elsewhere.
    """
    kept = [(name, value) for name, value in record.headers if is_safe_header(name, value)]
    safe: R = replace(record, headers=kept)
    return safe


def is_safe_header(name: str, value: bytes | None) -> bool:
    """Whether a header is one that we pass on and is plain ASCII."""
    return name in PASSED_HEADERS and value is not None and value.isascii()


def header_of(headers: Mapping[str, str] | Sequence[tuple[str, bytes]], name: str) -> str | None:
    """A header's text, or None."""
    found = dict(headers).get(name)
    return found.decode() if isinstance(found, bytes) else found
