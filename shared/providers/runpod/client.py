"""The calls to Runpod.

Owns the addresses, the bodies and the key. Promises: a create is sent at most once and one that
can never be sent is an Exchange without a byte sent; an answer about another job is never
believed. A job is asked for where it was made, never where today's settings point. Must never
use `/runsync` (a timeout loses the id), `/stream` (reading empties it) or a `ttl` in a status
call (it shortens the job's life).
"""

import json
import math
from urllib.parse import quote

from shared.domain.errors import TooLarge, Unavailable
from shared.domain.provider import (
    CreateRequest,
    Exchange,
    Handle,
    Json,
    Phase,
    ProviderState,
    StatusReading,
)
from shared.kit.http import HttpTransport, PhaseRecorder, SendDeadline
from shared.providers.runpod.create_answers import InputUnusable, RequestTooLarge, Unsendable
from shared.providers.runpod.settings import RunpodSettings
from shared.providers.runpod.status_answers import read_status

MAX_REQUEST_BYTES = 10_000_000
MAX_STATUS_BYTES = 32 * 1024 * 1024
MAX_SMALL_ANSWER_BYTES = 1024 * 1024


class RunpodClient:
    """See `shared.providers.adapter.ProviderClient`."""

    def __init__(self, settings: RunpodSettings, transport: HttpTransport) -> None:
        self._transport = transport
        self._headers = {
            "Authorization": f"Bearer {settings.runpod_api_key.get_secret_value()}",
            "Accept": "application/json",
        }
        self.base_url = settings.runpod_base_url
        self.switched_on = settings.runpod_non_acceptance

    async def create(
        self,
        request: CreateRequest,
        deadline: SendDeadline,
        recorder: PhaseRecorder | None = None,
    ) -> Exchange:
        """The paid call. Raises only CancelledError."""
        try:
            body = encode_create(request)
        except Unsendable as refusal:
            return Exchange(Phase.dns, error=type(refusal).__name__)
        return await self._transport.paid(
            "POST",
            _address(request.base_url, request.endpoint_id, "run"),
            {**self._headers, "Content-Type": "application/json"},
            body,
            deadline,
            recorder,
        )

    async def status(self, handle: Handle) -> StatusReading:
        """What Runpod says of the job; no answer is `retry_later`. Raises only CancelledError."""
        url = _address(handle.base_url, handle.endpoint_id, "status", handle.provider_job_id)
        try:
            answer = await self._transport.read(
                "GET", url, self._headers, max_bytes=MAX_STATUS_BYTES
            )
        except Unavailable:
            return StatusReading(ProviderState.retry_later)
        except TooLarge:
            return StatusReading(ProviderState.unrecognised)
        reading = read_status(answer.status, answer.headers, answer.body)
        if reading.provider_job_id not in (None, handle.provider_job_id):
            return StatusReading(ProviderState.unrecognised)
        return reading

    async def cancel(self, handle: Handle) -> bool:
        """Whether Runpod took the wish. Raises only CancelledError."""
        url = _address(handle.base_url, handle.endpoint_id, "cancel", handle.provider_job_id)
        return await self._is_ok("POST", url, b"")

    async def is_well(self, base_url: str, endpoint_id: str) -> bool:
        """Whether `/health`, which costs nothing, answers 200. Raises only CancelledError."""
        return await self._is_ok("GET", _address(base_url, endpoint_id, "health"), None)

    async def _is_ok(self, method: str, url: str, body: bytes | None) -> bool:
        try:
            answer = await self._transport.read(
                method, url, self._headers, max_bytes=MAX_SMALL_ANSWER_BYTES, body=body
            )
        except (Unavailable, TooLarge):
            return False
        return answer.status == 200


def encode_create(request: CreateRequest) -> bytes:
    """The body of `/run`. Raises InputUnusable or RequestTooLarge."""
    if not isinstance(request.input, dict) or not request.input:
        raise InputUnusable  # Runpod takes an empty input and bills half a minute of silence
    document: dict[str, Json] = {
        "input": request.input,
        "policy": {
            "executionTimeout": _milliseconds(request.execution_timeout_seconds),
            "ttl": _milliseconds(request.ttl_seconds),
        },
    }
    if request.webhook_url is not None:
        document["webhook"] = request.webhook_url
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        body = text.encode()
    except (ValueError, TypeError, RecursionError):
        raise InputUnusable from None
    if len(body) > MAX_REQUEST_BYTES:
        raise RequestTooLarge
    return body


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)


def _address(base_url: str, *segments: str) -> str:
    return "/".join((base_url, *(quote(segment, safe="") for segment in segments)))
