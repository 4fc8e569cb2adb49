"""When a signed link stops working, as far as its own text says so. Pure.

Owns the spellings of the common signers. Promises None for everything it does not know: a wrong
deadline is worse than none. Must never keep or log a link.
"""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

_LONGEST = timedelta(days=3660)
_DIGITS = re.compile(r"[0-9]{1,12}")
_BASIC_TIME = "%Y%m%dT%H%M%SZ"


def link_expires_at(url: str) -> datetime | None:
    """The moment signed into the link, or None where none can be read."""
    try:
        query = parse_qs(urlsplit(url).query, max_num_fields=100)
    except ValueError:
        return None
    asked = {name.lower(): values[-1] for name, values in query.items()}
    try:
        for signer in ("amz", "goog"):
            if f"x-{signer}-expires" in asked:
                return _dated(asked.get(f"x-{signer}-date"), asked[f"x-{signer}-expires"])
        if "signature" in asked or "sig" in asked:
            return _epoch(asked.get("expires")) or _iso(asked.get("se"))
    except (ValueError, OverflowError):
        return None
    return None


def _dated(signed_at: str | None, life_seconds: str) -> datetime | None:
    if signed_at is None or not _DIGITS.fullmatch(life_seconds):
        return None
    life = timedelta(seconds=int(life_seconds))
    if life > _LONGEST:
        return None
    return datetime.strptime(signed_at, _BASIC_TIME).replace(tzinfo=UTC) + life


def _epoch(text: str | None) -> datetime | None:
    if text is None or not _DIGITS.fullmatch(text):
        return None
    return datetime.fromtimestamp(int(text), UTC)


def _iso(text: str | None) -> datetime | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
