"""What a store's HEAD proves about an object, and what it does not."""

import hashlib

import pytest

from shared.media.layout import (
    ExpectedObject,
    ObjectHead,
    ObjectState,
    Part,
    PartLayout,
    compare,
)

BODIES = (b"first part", b"second part")
WHOLE = b"".join(BODIES)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


LAYOUT = PartLayout(10, True, tuple(Part(md5(body), sha256(body)) for body in BODIES))
OPAQUE = PartLayout(10, False, tuple(Part("opaque-etag", sha256(body)) for body in BODIES))
SINGLE = ExpectedObject(len(WHOLE), sha256(WHOLE), None)
IN_PARTS = ExpectedObject(len(WHOLE), sha256(WHOLE), LAYOUT)
OF_PARTS = sha256(b"".join(hashlib.sha256(body).digest() for body in BODIES))
ETAG = md5(b"".join(hashlib.md5(body, usedforsecurity=False).digest() for body in BODIES)) + "-2"


def head(etag: str = "opaque", **digests: str) -> ObjectHead:
    return ObjectHead(bytes=len(WHOLE), etag=etag, **digests)


@pytest.mark.parametrize(
    ("told", "expected", "state"),
    [
        (head(sha256=sha256(WHOLE)), SINGLE, ObjectState.equal),
        (head(sha256=sha256(b"other")), SINGLE, ObjectState.unequal),
        (head(md5(WHOLE)), SINGLE, None),
        (head(sha256_of_parts=OF_PARTS), SINGLE, None),
        (head(sha256_of_parts=OF_PARTS), IN_PARTS, ObjectState.equal),
        (head(sha256_of_parts=sha256(b"other")), IN_PARTS, ObjectState.unequal),
        (head(ETAG, sha256_of_parts=sha256(b"other")), IN_PARTS, ObjectState.unequal),
        (head(ETAG), IN_PARTS, ObjectState.equal),
        (head(md5(b"other") + "-2"), IN_PARTS, ObjectState.unequal),
        (head(ETAG[:-2] + "-3"), IN_PARTS, ObjectState.unequal),
        (head("opaque"), IN_PARTS, None),
        (head(ETAG), ExpectedObject(len(WHOLE), sha256(WHOLE), OPAQUE), None),
        (ObjectHead(len(WHOLE) + 1, ETAG), IN_PARTS, ObjectState.unequal),
        (ObjectHead(len(WHOLE) + 1, "opaque"), SINGLE, ObjectState.unequal),
    ],
)
def test_only_a_comparable_digest_is_a_proof(
    told: ObjectHead, expected: ExpectedObject, state: ObjectState | None
) -> None:
    assert compare(told, expected) is state


def test_a_layout_survives_the_row() -> None:
    assert PartLayout.from_json(LAYOUT.as_json()) == LAYOUT
    assert LAYOUT.sha256_of_parts == OF_PARTS
    assert LAYOUT.etag == ETAG
    assert OPAQUE.etag is None


@pytest.mark.parametrize("value", [{}, {"part_bytes": "x", "has_checksums": True, "parts": []}])
def test_another_shape_is_no_layout(value: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError)):
        PartLayout.from_json(value)
