"""Trace context: well-formed values are passed on, others replaced."""

import pytest
from structlog.contextvars import get_contextvars

from shared.kit.tracing import continued_trace, current_traceparent, trace_id_of

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BAD = [
    None,
    "",
    GOOD.upper(),
    GOOD + "\n",
    GOOD + "-more",
    "01" + GOOD[2:],
    GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
    GOOD.replace("00f067aa0ba902b7", "0" * 16),
]


def test_a_good_value_is_current_inside_and_gone_outside() -> None:
    assert current_traceparent() is None
    with continued_trace(GOOD) as given:
        assert given == current_traceparent() == GOOD
        assert get_contextvars()["trace_id"] == trace_id_of(GOOD)
    assert current_traceparent() is None
    assert "trace_id" not in get_contextvars()


@pytest.mark.parametrize("value", BAD)
def test_a_bad_value_is_replaced_by_a_new_trace(value: str | None) -> None:
    assert trace_id_of(value) is None
    with continued_trace(value) as first, continued_trace(value) as second:
        assert trace_id_of(first)
        assert trace_id_of(second)
        assert first != second
