"""When a provider wants to be left alone, in whatever spelling.

Owns reading `Retry-After`: seconds, an HTTP date, or garbage. Promises a number between 0 and
the cap, or None. A date is measured against the answer's own `Date`, so that a wrong clock on
either side does not matter. Must never raise.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

CAP_SECONDS = 900.0

_SECONDS = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")


def retry_after_seconds(
    headers: Mapping[str, str], cap_seconds: float = CAP_SECONDS
) -> float | None:
    """The wish in seconds, at most `cap_seconds`; None without one. Header names in lower case."""
    text = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), cap_seconds)
    until = _moment(text)
    if until is None:
        return None
    now = _moment(headers.get("date", "")) or datetime.now(UTC)
    return min(max((until - now).total_seconds(), 0.0), cap_seconds)


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
