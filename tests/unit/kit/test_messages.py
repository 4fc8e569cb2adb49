"""What comes in over the bus is judged: hints, garbage, headers."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kit.bus import ParkedMessage, ParkReason, Undecodable, decode_hint
from shared.kit.bus.messages import MAX_HINT_BYTES, header_of, with_safe_headers

JOB_ID = "01981c5e-0000-7000-8000-000000000001"
GOOD = {"job_id": JOB_ID, "reason": "requested", "version": 1}


def test_a_good_hint_is_read_and_more_fields_are_ignored() -> None:
    hint = decode_hint(json.dumps({**GOOD, "later": True}).encode())
    assert (hint.job_id, hint.reason, hint.version) == (UUID(JOB_ID), "requested", 1)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, ParkReason.empty),
        (b"", ParkReason.empty),
        (b" " * (MAX_HINT_BYTES + 1), ParkReason.too_large),
        (json.dumps(GOOD).encode().ljust(MAX_HINT_BYTES + 1), ParkReason.too_large),
        (b"garbage", ParkReason.not_json),
        (b"\xff\xfe\x00", ParkReason.not_json),
        (b"[" * MAX_HINT_BYTES, ParkReason.not_json),
        (b'{"job_id": NaN}', ParkReason.wrong_fields),
        (b"null", ParkReason.wrong_fields),
        (b"[]", ParkReason.wrong_fields),
        (b"{}", ParkReason.wrong_fields),
        (json.dumps({**GOOD, "job_id": "nobody"}).encode(), ParkReason.wrong_fields),
        (json.dumps({**GOOD, "job_id": 7}).encode(), ParkReason.wrong_fields),
        (json.dumps({**GOOD, "reason": ""}).encode(), ParkReason.wrong_fields),
        (json.dumps({**GOOD, "reason": "x" * 65}).encode(), ParkReason.wrong_fields),
        (json.dumps({**GOOD, "version": -1}).encode(), ParkReason.wrong_fields),
        (json.dumps({**GOOD, "version": None}).encode(), ParkReason.wrong_fields),
    ],
)
def test_a_bad_hint_has_its_reason(value: bytes | None, reason: ParkReason) -> None:
    with pytest.raises(Undecodable) as caught:
        decode_hint(value)
    assert caught.value.reason is reason


@given(st.binary(max_size=200))
def test_any_bytes_are_a_hint_or_undecodable(value: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_hint(value)


def test_the_notice_of_a_parked_message_has_no_payload() -> None:
    parked = ParkedMessage("coatcheck.submit.v1", 3, 41, "not_json", b"s3cr3t-key", b"s3cr3t")
    key, value, headers = parked.record()
    assert json.loads(value) == {
        "topic": "coatcheck.submit.v1",
        "partition": 3,
        "offset": 41,
        "error": "not_json",
    }
    assert key == b"coatcheck.submit.v1:3:41"
    assert b"s3cr3t" not in key + value + repr(headers).encode()
    assert {name for name, _ in headers} >= {"ce_id", "ce_type", "ce_source", "ce_time"}


@dataclass
class Received:
    """A record's headers, as the client library hands them over."""

    headers: Any


def test_only_safe_headers_that_we_pass_on_are_kept() -> None:
    given = Received(
        [
            ("traceparent", b"00-aa"),
            ("traceparent", None),
            ("traceparent", b"\xff"),
            ("reply_to", b"coatcheck.submit.v1"),
            ("content-type", b"application/json"),
            ("correlation_id", None),
        ]
    )
    assert with_safe_headers(given).headers == [("traceparent", b"00-aa")]


def test_a_header_is_found_in_either_shape() -> None:
    assert header_of([("a", b"1")], "a") == "1"
    assert header_of({"a": "1"}, "a") == "1"
    assert header_of({}, "a") is None
