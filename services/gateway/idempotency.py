"""Idempotency keys, and the digest that tells whether two requests are the same.

A key is taken bare or as a quoted structured-field string; both spellings are one key. The
digest is SHA-256 over the canonical JSON (RFC 8785) of endpoint, input, metadata and retention.
Promises that equal requests have equal digests however they are spelled, and that requests
which differ in anything sent on have different ones. Must never look at anything else.
"""

import hashlib
import re

import rfc8785

from services.gateway.problems import Problem
from shared.domain.provider import Json

_VISIBLE = re.compile(r"[\x21-\x7e]{1,255}")
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_EXACT_MAX = 2**53 - 1


def read_key(given: list[str]) -> str:
    """The key out of all Idempotency-Key headers of a request. Raises Problem."""
    if len(given) != 1:
        raise Problem("idempotency_key_required")
    text = given[0].strip(" \t")
    if text.startswith('"'):
        quoted = _QUOTED.fullmatch(text)
        text = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else ""
    if not _VISIBLE.fullmatch(text):
        raise Problem("idempotency_key_required")
    return text


def request_digest(endpoint: str, job_input: Json, metadata: Json, retention: str) -> bytes:
    """32 bytes that name the request. The values must have passed the body's checks."""
    request = {
        "endpoint": endpoint,
        "input": job_input,
        "metadata": metadata,
        "retention": retention,
    }
    try:
        canonical = rfc8785.dumps(request)
    except rfc8785.IntegerDomainError:
        # Canonical JSON knows doubles only, but a 64-bit seed is sent on exactly; so its digits
        # are digested as well, after a byte that no JSON text holds.
        exact: list[Json] = []
        canonical = rfc8785.dumps(_as_doubles(request, "", exact))
        canonical += b"\x00" + rfc8785.dumps(sorted(exact))
    return hashlib.sha256(canonical).digest()


def _as_doubles(value: Json, pointer: str, exact: list[Json]) -> Json:
    if isinstance(value, dict):
        return {
            name: _as_doubles(item, f"{pointer}/{_step(name)}", exact)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_as_doubles(item, f"{pointer}/{at}", exact) for at, item in enumerate(value)]
    if isinstance(value, int) and abs(value) > _EXACT_MAX:
        exact.append([pointer, str(value)])
        return float(value)
    return value


def _step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
