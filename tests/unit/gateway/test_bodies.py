"""Bodies: what is read, and that no text at all makes anything but a value or a problem."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.bodies import is_json_type, read_json
from services.gateway.idempotency import request_digest
from services.gateway.problems import Problem

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64) + 1, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON)
def test_sound_json_is_read_as_it_was_written(value: Any) -> None:
    for ascii_only in (True, False):
        assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ud8EeN0-9.aI').map(str.encode))
def test_any_bytes_are_a_value_or_a_problem(body: bytes) -> None:
    try:
        value = read_json(body)
    except Problem as problem:
        value = problem.code
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")


@settings(deadline=None)
@given(JSON, JSON)
def test_requests_are_equal_exactly_when_their_values_are(one: Any, other: Any) -> None:
    def digest(value: Any) -> bytes:
        return request_digest("e", {"value": value}, {}, "preview")

    assert digest(one) == digest(read_json(json.dumps(one, indent=3).encode()))
    assert (digest(one) == digest(other)) is (_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    """Equal for what JSON calls equal: 1 and 1.0, but neither 1 and true nor two large seeds."""
    match value:
        case bool() | None | str():
            return (type(value).__name__, value)
        case int() if abs(value) > 2**53 - 1:
            return ("large", value)
        case int() | float():
            return ("number", float(value) if math.isfinite(value) else None)
        case list():
            return [_plain(item) for item in value]
        case _:
            return {name: _plain(item) for name, item in value.items()}


def test_large_seeds_next_to_each_other_are_different_requests() -> None:
    digests = {
        request_digest("e", {"seed": seed, "at": at}, {}, "preview")
        for seed in (2**53 - 1, 2**53, 2**53 + 1, 2**63, 2**63 + 1, str(2**63), float(2**63))
        for at in ([], [2**60], [2**60 + 1], {"/seed": 1})
    }
    assert len(digests) == 28


def test_each_member_counts_and_none_can_be_mistaken_for_another() -> None:
    requests = [
        ("e", {"a": 1}, {}, "preview"),
        ("f", {"a": 1}, {}, "preview"),
        ("e", {"a": 2}, {}, "preview"),
        ("e", {"a": 1}, {"a": 1}, "preview"),
        ("e", {"a": 1}, {}, "keep"),
        ("e", {}, {"a": 1}, "preview"),
    ]
    assert len({request_digest(*request) for request in requests}) == len(requests)


def test_media_types() -> None:
    right = [
        "application/json",
        "APPLICATION/JSON ; Charset=UTF-8",
        'application/json;charset="utf-8"',
    ]
    wrong = ["", "json", "application/json;", "application/json,application/json", "text/json"]
    wrong += ["application/json; charset=utf-16", "application/jsonp", "application/json; q=1"]
    assert [is_json_type(text) for text in right] == [True] * 3
    assert [is_json_type(text) for text in wrong] == [False] * len(wrong)


def test_the_deepest_and_the_largest_that_are_taken() -> None:
    def nested(depth: int) -> bytes:
        return b"[" * depth + b"]" * depth

    assert read_json(nested(64))
    with pytest.raises(Problem):
        read_json(nested(65))
    assert read_json(b"18446744073709551615") == 2**64 - 1
    assert len(read_json(b"[" + b"1," * 499_998 + b"1]")) == 499_999
    with pytest.raises(Problem):
        read_json(b"[" + b"1," * 499_999 + b"1]")
