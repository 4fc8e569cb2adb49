"""The settled cost: what the endpoint's `cost` says, or nothing."""

from decimal import Decimal
from typing import Any

import pytest

from services.archiver.costs import settled_cost_usd
from shared.domain.provider import ProviderState, StatusReading
from tests.unit.some_rows import a_pinned


def settled(cost: dict[str, Any] | None, output: Any = None, **reading: Any) -> Decimal | None:
    said = StatusReading(ProviderState.completed, output=output, has_output=True, **reading)
    return settled_cost_usd(a_pinned(cost=cost), said)


def test_without_a_price_the_estimate_stands() -> None:
    assert settled(None, {"cost": 1}) is None


def test_a_price_per_call_needs_no_answer() -> None:
    assert settled({"per_call_usd": "0.25"}) == Decimal("0.2500")
    assert settled_cost_usd(a_pinned(cost={"per_call_usd": "0.25"}), None) == Decimal("0.2500")


def test_a_price_per_second_needs_the_seconds() -> None:
    assert settled({"per_second_usd": "0.01"}, execution_seconds=12.345) == Decimal("0.1235")
    assert settled({"per_second_usd": "0.01"}) is None
    assert settled_cost_usd(a_pinned(cost={"per_second_usd": "0.01"}), None) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.02097152, Decimal("0.0210")),
        ("0.4", Decimal("0.4000")),
        (3, Decimal("3.0000")),
        (0, Decimal("0.0000")),
        (-1, None),
        (True, None),
        ("a lot", None),
        ("NaN", None),
        ("Infinity", None),
        (1e30, None),
        (None, None),
        ({"usd": 1}, None),
    ],
)
def test_the_providers_figure_is_read_strictly(value: Any, expected: Decimal | None) -> None:
    assert settled({"path": "$.cost"}, {"cost": value}) == expected


def test_a_path_must_lead_to_one_figure() -> None:
    assert settled({"path": "$..cost"}, {"a": {"cost": 1}, "b": {"cost": 2}}) is None
    assert settled({"path": "$.cost"}, {}) is None
