"""Digests in the spellings of the S3 protocol: base64 on the wire, hex with us."""

import hashlib
from base64 import b64decode, b64encode


def sha256_b64(body: bytes) -> str:
    """The SHA-256 of `body` as a checksum header takes it."""
    return b64encode(hashlib.sha256(body).digest()).decode("ascii")


def md5_b64(body: bytes) -> str:
    """The MD5 of `body` as Content-MD5 takes it; guards the way, proves nothing."""
    return b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode("ascii")


def hex_to_b64(digest: str) -> str:
    """A hex digest as base64."""
    return b64encode(bytes.fromhex(digest)).decode("ascii")


def read_checksum(told: str | None) -> tuple[str | None, str | None]:
    """Hex of the whole and hex over the parts, out of a store's `digest` or `digest-N`."""
    if told is None:
        return None, None
    text, dash, _ = told.partition("-")
    digest = b64decode(text).hex()
    return (None, digest) if dash else (digest, None)
