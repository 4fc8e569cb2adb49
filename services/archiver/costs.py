"""What a job cost in the end, as far as it is told. Pure.

Owns the reading of an endpoint's `cost`. Promises None, which means the estimate, for whatever
cannot be read as an amount; a provider's figure is believed only where the endpoint points at it.
"""

from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from shared.domain.provider import Json, StatusReading
from shared.domain.registry import PinnedEndpoint
from shared.kit.jsonpaths import find_nodes

CENTICENTS = Decimal("0.0001")
MOST_USD = Decimal(10) ** 8


def settled_cost_usd(pinned: PinnedEndpoint, reading: StatusReading | None) -> Decimal | None:
    """The cost in USD with four places, or None where only the estimate is known."""
    cost = pinned.cost
    if cost is None:
        return None
    if cost.per_call_usd is not None:
        return _rounded(cost.per_call_usd)
    if reading is None:
        return None
    if cost.per_second_usd is not None:
        seconds = reading.execution_seconds
        return None if seconds is None else _rounded(cost.per_second_usd * Decimal(str(seconds)))
    values = [node.value for node in find_nodes(cost.path or "$", reading.output)]
    return _amount(values[0]) if len(values) == 1 else None


def _amount(value: Json) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return _rounded(Decimal(str(value)))
    except InvalidOperation:
        return None


def _rounded(amount: Decimal) -> Decimal | None:
    is_amount = amount.is_finite() and 0 <= amount < MOST_USD
    return amount.quantize(CENTICENTS, ROUND_HALF_UP) if is_amount else None
