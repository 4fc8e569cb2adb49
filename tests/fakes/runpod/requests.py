"""Reads the body of POST /run as the provider would, and as strictly.

Owns: the shape of a create request, its limits, the script a test may put into the input.
Promises: a body is either a whole CreateBody or a refusal with a reason; nothing in between.
Never: looks at anything but the bytes.
"""

import json
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue, ValidationError

from tests.fakes.runpod.jobs import (
    DEFAULT_EXECUTION_TIMEOUT_SECONDS,
    DEFAULT_TTL_SECONDS,
)
from tests.fakes.runpod.scripts import Script

MAX_REQUEST_BYTES: Final = 10_000_000
SCRIPT_KEY: Final = "fake"


@dataclass(frozen=True)
class CreateBody:
    """A create request that makes sense; times in seconds."""

    input: JsonValue
    webhook: str | None
    execution_timeout_seconds: float
    ttl_seconds: float
    script: Script | None


class BadCreateBody(Exception):
    """The provider would answer 400; the text says why."""


def read_create_body(body: bytes, scripts_in_input: bool) -> CreateBody:
    """Parses the body of POST /run. Raises BadCreateBody."""
    if len(body) > MAX_REQUEST_BYTES:
        raise BadCreateBody(f"json is invalid; max size is {MAX_REQUEST_BYTES} bytes")
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadCreateBody("json is invalid") from error
    if not isinstance(request, dict):
        raise BadCreateBody("json is not an object")
    webhook = request.get("webhook")
    if webhook is not None and not isinstance(webhook, str):
        raise BadCreateBody("webhook is not a string")
    policy = request.get("policy") or {}
    if not isinstance(policy, dict):
        raise BadCreateBody("policy is not an object")
    given = request.get("input")
    return CreateBody(
        input=given,
        webhook=webhook,
        execution_timeout_seconds=_seconds(
            policy, "executionTimeout", DEFAULT_EXECUTION_TIMEOUT_SECONDS
        ),
        ttl_seconds=_seconds(policy, "ttl", DEFAULT_TTL_SECONDS),
        script=_script_in(given) if scripts_in_input else None,
    )


def _seconds(policy: dict[str, JsonValue], name: str, ordinary: float) -> float:
    value = policy.get(name)
    if value is None:
        return ordinary
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise BadCreateBody(f"policy.{name} is not a positive number of milliseconds")
    return value / 1000


def _script_in(given: JsonValue) -> Script | None:
    if not isinstance(given, dict) or SCRIPT_KEY not in given:
        return None
    try:
        return Script.model_validate(given[SCRIPT_KEY])
    except ValidationError as error:
        raise BadCreateBody(f"input.{SCRIPT_KEY}: {error}") from error
