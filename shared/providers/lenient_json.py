"""Reading JSON that strangers wrote, without ever raising.

Owns the limits of depth and size, and what happens to text that is almost JSON: undecodable
bytes become replacement characters, NaN, infinities and endless digits become null, a key given
twice with different values is reported. A job id can also be picked out of a body that is cut
off or too deep to read. Must never trust what it reads beyond its shape.
"""

import itertools
import json
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shared.domain.provider import Json

MAX_VALUES = 1_000_000
MAX_DIGITS = 400
SCANNED_TOKENS = 20_000

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
# The closing quote is optional so that a cut-off string is met once, not once per quote in it.
_TOKEN = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)("?)|[{}\[\]:]', re.DOTALL)


class Unreadable(StrEnum):
    """Why a body could not be read."""

    not_json = "not_json"
    beyond_limits = "beyond_limits"


@dataclass(frozen=True)
class Document:
    """A body that could be read. `disputed`: top-level keys given twice, with two values."""

    value: Json
    disputed: frozenset[str] = frozenset()

    def named(self, key: str) -> Json:
        """A member of the top-level object; None where there is none or it is disputed."""
        if not isinstance(self.value, dict) or key in self.disputed:
            return None
        return self.value.get(key)


def read_json(body: bytes) -> Document | Unreadable:
    """The body as JSON, or why not."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") > MAX_VALUES:
        return Unreadable.beyond_limits
    last_pairs: list[tuple[str, Any]] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal last_pairs
        last_pairs = pairs  # objects are built from the inside out: the last one is the outermost
        return dict(pairs)

    try:
        value = json.loads(
            _text(body),
            strict=False,
            object_pairs_hook=build,
            parse_float=_finite,
            parse_int=_bounded,
            parse_constant=lambda _: None,
        )
    except RecursionError:
        return Unreadable.beyond_limits
    except ValueError:
        return Unreadable.not_json
    if not isinstance(value, dict):
        return Document(value)
    disputed = frozenset(key for key, item in last_pairs if item != value[key])
    return Document(value, disputed)


def usable_id(value: Json) -> str | None:
    """The value, if it can be a job id: a short string that is one safe path segment."""
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def top_level_id(body: bytes, document: Document | Unreadable) -> str | None:
    """The usable id under the top-level key `id`, also from a body that could not be read."""
    if isinstance(document, Document):
        return usable_id(document.named("id"))
    return usable_id(_scan(_text(body), "id"))


def _scan(text: str, wanted: str) -> str | None:
    """The string under a top-level key, found token by token without any nesting of calls."""
    depth, last_string, key, colon_end = 0, "", None, 0
    for token in itertools.islice(_TOKEN.finditer(text), SCANNED_TOKENS):
        match token[0]:
            case "{" | "[":
                if depth == 0 and (token[0] == "[" or text[: token.start()].strip()):
                    return None
                depth += 1
            case "}" | "]":
                depth -= 1
            case ":":
                key, colon_end = last_string, token.end()
            case _ if not token[2]:
                return None
            case _ if depth == 1:
                is_value = key == wanted and not text[colon_end : token.start()].strip()
                if is_value:
                    return token[1]
                last_string = token[1]
    return None


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").removeprefix("\ufeff")


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _bounded(digits: str) -> int | None:
    return int(digits) if len(digits) <= MAX_DIGITS else None
