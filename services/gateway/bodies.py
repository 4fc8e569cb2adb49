"""Request bodies: read up to a cap, then read as strict JSON (the interoperable subset).

Promises that no body is held beyond the cap, that a body which is too large is refused by its
declared length before a byte is read where possible, and that whatever text comes, the outcome
is a value or a problem. What is let through can be stored, sent on and canonicalised: unique
names, no NaN, no lone surrogates, bounded depth and count. Must never echo a value.
"""

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from starlette.requests import Request

from services.gateway.problems import Problem
from shared.domain.errors import CoatcheckError
from shared.domain.provider import Json

BODY_BYTES_MAX = 10_000_000
DRAINED_BYTES_MAX = 32 * 1024 * 1024
BODY_SECONDS_MAX = 120.0
DEPTH_MAX = 64
VALUES_MAX = 500_000
INTEGER_MAX = 2**64 - 1
LIGHT_BODY_BYTES = 65_536

T = TypeVar("T")


class ClientGone(CoatcheckError):
    """The caller went away before its request was complete; nobody waits for an answer."""


def require_json_type(headers: Mapping[str, str], given: list[str]) -> None:
    """Refuses what does not declare itself as plain JSON; `given`: all Content-Type headers."""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem("unsupported_media_type", "The body must not be encoded.")
    if len(given) != 1 or not is_json_type(given[0]):
        raise Problem("unsupported_media_type")


def is_json_type(content_type: str) -> bool:
    """Whether this is `application/json`, with `charset=utf-8` as its only parameter."""
    media_type, *parameters = [part.strip().lower() for part in content_type.split(";")]
    return media_type == "application/json" and all(
        parameter.replace('"', "") == "charset=utf-8" for parameter in parameters
    )


async def read_body(request: Request) -> bytes:
    """The whole body. Raises Problem above the cap, ClientGone when the caller left.

    A body over the cap is read on and dropped for a while: a caller who is still sending when
    the server gives up on the connection never sees the answer.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > DRAINED_BYTES_MAX:
        raise _too_large()
    body, received = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk = message.get("body", b"")
                received += len(chunk)
                if received <= BODY_BYTES_MAX:
                    body += chunk
                else:
                    body.clear()
                if received > DRAINED_BYTES_MAX or not message.get("more_body"):
                    break
    except TimeoutError:
        raise Problem("request_timeout", headers={"Connection": "close"}) from None
    if received > BODY_BYTES_MAX:
        raise _too_large()
    return bytes(body)


def _too_large() -> Problem:
    return Problem("payload_too_large")


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Runs work on a body of that size; a large one must not stop everybody else's requests."""
    if size <= LIGHT_BODY_BYTES:
        return work()
    return await asyncio.to_thread(work)


def read_json(body: bytes) -> Json:
    """The value that the body spells. Raises Problem `invalid_json`."""
    if body.count(b"[") + body.count(b"{") > VALUES_MAX:
        # Counted before reading: ten megabytes of empty lists would be held as hundreds.
        raise _invalid(f"The body holds more than {VALUES_MAX} values.")
    try:
        text = body.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise _invalid("The body is not UTF-8.") from None
    except RecursionError:
        raise _invalid(f"The body is nested deeper than {DEPTH_MAX}.") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _invalid(f"The body is not JSON: {where}.") from None
    except ValueError:
        # An integer of thousands of digits, which the reader refuses by itself.
        raise _invalid("A number is out of range.") from None
    _check(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _invalid("An object names one member twice.")
    return found


def _no_constant(_: str) -> Any:
    raise _invalid("NaN and Infinity are not JSON.")


def _check(value: Json) -> None:
    left: list[tuple[Json, int]] = [(value, 1)]
    count = 0
    while left:
        item, depth = left.pop()
        count += 1
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, int):
            if abs(item) > INTEGER_MAX:
                raise _invalid("An integer is out of range.")
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise _invalid("A number is out of range.")
        elif isinstance(item, dict | list):
            if depth > DEPTH_MAX:
                raise _invalid(f"The body is nested deeper than {DEPTH_MAX}.")
            if count + len(left) + len(item) > VALUES_MAX:
                raise _invalid(f"The body holds more than {VALUES_MAX} values.")
            if isinstance(item, dict):
                for name in item:
                    _check_text(name)
            children = item.values() if isinstance(item, dict) else item
            left.extend((child, depth + 1) for child in children)


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise _invalid("A text holds a lone surrogate.") from None


def _invalid(detail: str) -> Problem:
    return Problem("invalid_json", detail)
