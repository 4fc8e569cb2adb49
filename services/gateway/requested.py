"""What a caller asks for, read out of a body that is sound JSON.

Owns the order of the checks: the body's own shape, the endpoint, its schema, URLs. Promises
that the digest covers all that is sent on or kept, and that findings never echo a value.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from services.gateway.idempotency import request_digest
from services.gateway.problems import FieldError, Problem
from services.gateway.validation import FINDINGS_MAX, InputRules, pointer_to
from shared.domain.provider import Json

METADATA_BYTES_MAX = 65_536
RETENTIONS = ("preview", "keep")
UPLOAD = "$upload"
_MEMBERS = ("endpoint", "input", "metadata", "retention")


@dataclass(frozen=True)
class JobOrder:
    """A request whose own shape is right; its endpoint may not exist."""

    endpoint: str
    input: Json
    retention: str
    input_json: str
    metadata_json: str
    digest: bytes

    def checked(self, endpoints: Mapping[str, InputRules]) -> InputRules:
        """The rules of its endpoint, all of them kept. Raises Problem."""
        rules = endpoints.get(self.endpoint)
        if rules is None:
            raise Problem("unknown_endpoint")
        findings = rules.findings(self.input)
        if findings:
            raise Problem("invalid_input", errors=findings)
        uploads = list(islice(_upload_places(self.input, ()), FINDINGS_MAX))
        if uploads:
            sentence = "names an upload, and there is none"
            errors = [FieldError(pointer_to("input", *place), sentence) for place in uploads]
            raise Problem("invalid_input", errors=errors)
        places = list(islice(rules.urls.refused(self.input), FINDINGS_MAX))
        if places:
            sentence = "must not be a URL, or not one of this host"
            errors = [FieldError(pointer_to("input", *place), sentence) for place in places]
            raise Problem("input_url_refused", errors=errors)
        if len(self.input_json.encode()) > rules.input_bytes_max:
            detail = f"The endpoint takes an input of at most {rules.input_bytes_max} bytes."
            raise Problem("payload_too_large", detail)
        return rules


def read_order(body: Json) -> JobOrder:
    """The order that a body spells. Raises Problem `invalid_input`."""
    if not isinstance(body, dict):
        raise Problem("invalid_input", errors=[FieldError("#", "must be an object")])
    findings = list(islice(_findings(body), FINDINGS_MAX))
    if findings:
        raise Problem("invalid_input", errors=findings)
    endpoint, job_input = body["endpoint"], body["input"]
    metadata, retention = body.get("metadata", {}), body.get("retention", RETENTIONS[0])
    metadata_json = _spelled(metadata)
    if len(metadata_json.encode()) > METADATA_BYTES_MAX:
        detail = f"must have at most {METADATA_BYTES_MAX} bytes as JSON"
        raise Problem("invalid_input", errors=[FieldError("#/metadata", detail)])
    return JobOrder(
        endpoint=endpoint,
        input=job_input,
        retention=retention,
        input_json=_spelled(job_input),
        metadata_json=metadata_json,
        digest=request_digest(endpoint, job_input, metadata, retention),
    )


def _findings(body: dict[str, Any]) -> Iterator[FieldError]:
    for name in ("endpoint", "input"):
        if name not in body:
            yield FieldError(pointer_to(name), "is required")
    if not isinstance(body.get("endpoint", ""), str):
        yield FieldError("#/endpoint", "must be of type string")
    job_input = body.get("input", {"absent": True})
    if not isinstance(job_input, dict):
        yield FieldError("#/input", "must be of type object")
    elif not job_input:
        # Providers take an empty input, charge for it and then fail the job.
        yield FieldError("#/input", "must have at least one member")
    if not isinstance(body.get("metadata", {}), dict):
        yield FieldError("#/metadata", "must be of type object")
    if body.get("retention", RETENTIONS[0]) not in RETENTIONS:
        yield FieldError("#/retention", f"must be one of {', '.join(RETENTIONS)}")
    for name in body:
        if name not in _MEMBERS:
            yield FieldError(pointer_to(name), "is not allowed here")


def _upload_places(value: Json, place: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where the input refers to an upload: a provider would be paid to find nothing there."""
    if isinstance(value, dict):
        if UPLOAD in value:
            yield (*place, UPLOAD)
        for name, item in value.items():
            yield from _upload_places(item, (*place, name))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _upload_places(item, (*place, at))


def _spelled(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
