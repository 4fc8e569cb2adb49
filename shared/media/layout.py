"""What a stored object must look like: sizes and digests, comparable without reading it back.

Owns the record of an upload's parts (the row keeps it as `part_layout`) and the comparison of
a store's HEAD with what was sent. A store tells the digest of a multipart object only as a
digest over the parts' digests, so the parts' own digests are kept. Pure; promises "equal" only
on proof, and "unproven" where the store says nothing comparable.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

PART_BYTES = 8 * 1024 * 1024
PARTS_MAX = 10_000

_MD5_OF_PARTS = re.compile(r"([0-9a-f]{32})-([0-9]+)")


@dataclass(frozen=True)
class Part:
    """One uploaded part: the store's ETag without quotes, our SHA-256 as hex."""

    etag: str
    sha256: str


@dataclass(frozen=True)
class PartLayout:
    """The parts of a multipart upload in order; all but the last hold `part_bytes` bytes.

    `has_checksums`: the store was given each part's SHA-256 and wants them again at the end.
    """

    part_bytes: int
    has_checksums: bool
    parts: tuple[Part, ...]

    @property
    def sha256_of_parts(self) -> str:
        """Hex SHA-256 over the parts' SHA-256s, as stores report it for the whole."""
        digests = b"".join(bytes.fromhex(part.sha256) for part in self.parts)
        return hashlib.sha256(digests).hexdigest()

    @property
    def etag(self) -> str | None:
        """The whole object's ETag where parts' ETags are MD5s; None where they are not."""
        try:
            digests = b"".join(bytes.fromhex(part.etag) for part in self.parts)
        except ValueError:
            return None
        digest = hashlib.md5(digests, usedforsecurity=False).hexdigest()
        return f"{digest}-{len(self.parts)}"

    def as_json(self) -> dict[str, Any]:
        """The layout as the row stores it."""
        return {
            "part_bytes": self.part_bytes,
            "has_checksums": self.has_checksums,
            "parts": [[part.etag, part.sha256] for part in self.parts],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "PartLayout":
        """The inverse of `as_json`. Raises KeyError or ValueError on another shape."""
        parts = tuple(Part(str(etag), str(sha256)) for etag, sha256 in value["parts"])
        return cls(int(value["part_bytes"]), bool(value["has_checksums"]), parts)


@dataclass(frozen=True)
class ObjectHead:
    """What the store says about an object.

    `sha256`: hex, of the whole content, only for objects put in one piece. `sha256_of_parts`:
    hex, of multipart objects. Both are None where the store keeps no such checksum.
    """

    bytes: int
    etag: str
    sha256: str | None = None
    sha256_of_parts: str | None = None
    media_type: str | None = None


@dataclass(frozen=True)
class ExpectedObject:
    """What was sent: size, hex SHA-256 of the whole, and the parts if there were any."""

    bytes: int
    sha256: str
    part_layout: PartLayout | None


@dataclass(frozen=True)
class ListedObject:
    """One object of a listing."""

    key: str
    bytes: int
    modified_at: datetime


@dataclass(frozen=True)
class OpenUpload:
    """One multipart upload that is neither completed nor aborted."""

    key: str
    upload_id: str
    started_at: datetime


class ObjectState(StrEnum):
    """How an object stands against what was sent."""

    equal = "equal"
    unequal = "unequal"
    absent = "absent"


def compare(head: ObjectHead, expected: ExpectedObject) -> ObjectState | None:
    """Equal or unequal, or None when only reading the object could tell."""
    if head.bytes != expected.bytes:
        return ObjectState.unequal
    layout = expected.part_layout
    pairs: list[tuple[str | None, str | None]]
    if layout is None:
        pairs = [(head.sha256, expected.sha256)]
    else:
        md5_etag = head.etag if _MD5_OF_PARTS.fullmatch(head.etag) else None
        pairs = [(head.sha256_of_parts, layout.sha256_of_parts), (md5_etag, layout.etag)]
    for told, sent in pairs:
        if told is not None and sent is not None:
            return ObjectState.equal if told == sent else ObjectState.unequal
    return None
