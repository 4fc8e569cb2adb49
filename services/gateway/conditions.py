"""Conditional and partial requests (RFC 9110): If-None-Match, Range, If-Range. Pure.

Promises one slice or none: a header that is not understood, a second range or another unit is
ignored, as the RFC allows, and a range outside the content is told apart.
"""

import re
from dataclasses import dataclass

_TAGS = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,40})-([0-9]{0,40})[ \t]*", re.IGNORECASE)


@dataclass(frozen=True)
class Slice:
    """Bytes `start` to `end`, both inclusive."""

    start: int
    end: int

    @property
    def bytes(self) -> int:
        """How many bytes it has."""
        return self.end - self.start + 1


@dataclass(frozen=True)
class Whole:
    """All of the content."""


@dataclass(frozen=True)
class Unsatisfiable:
    """A range that lies outside the content."""


def is_known(if_none_match: list[str], etag: str) -> bool:
    """Whether the caller holds the representation of that tag already; weak comparison."""
    text = ", ".join(if_none_match)
    return text.strip() == "*" or etag in _TAGS.findall(text)


def asked_part(
    ranges: list[str], if_range: list[str], *, size: int, etag: str
) -> Slice | Whole | Unsatisfiable:
    """Which part of content of that size is asked for. `size` is at least 1."""
    if len(ranges) != 1 or (if_range and if_range != [etag]):
        return Whole()
    match = _RANGE.fullmatch(ranges[0])
    if match is None or match[1] == match[2] == "":
        return Whole()
    if match[1] == "":
        length = int(match[2])
        return Slice(max(0, size - length), size - 1) if length else Unsatisfiable()
    start = int(match[1])
    if match[2] and int(match[2]) < start:
        return Whole()
    if start >= size:
        return Unsatisfiable()
    return Slice(start, min(int(match[2]), size - 1) if match[2] else size - 1)
