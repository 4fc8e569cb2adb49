"""What each operation takes and answers, as a table: the source of the OpenAPI text.

Every status code and header that an operation can answer stands here, and a test holds the
table against the routes and against real answers. It decides nothing; handlers do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from services.gateway.resources import (
    EndpointResource,
    EndpointsResource,
    JobRequestResource,
    JobResource,
)


@dataclass(frozen=True)
class Answer:
    """One success: its headers by name with their meaning, and its body's model or type."""

    description: str
    headers: Mapping[str, str] = field(default_factory=dict)
    model: type[BaseModel] | None = None
    media_type: str | None = None


@dataclass(frozen=True)
class Operation:
    """One method on one path. `takes`: request headers by name with their meaning."""

    id: str
    summary: str
    scope: str | None
    answers: Mapping[int, Answer]
    problems: tuple[str, ...] = ()
    description: str = ""
    takes: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    body: type[BaseModel] | None = None


_JOB_HEADERS = {
    "Location": "the path of the job",
    "Retry-After": "seconds after which looking again makes sense; 0 once the job has ended",
}
_CACHE = {
    "ETag": "names this representation",
    "Cache-Control": "private, no-cache: ask again each time",
}
_JOB_CACHE = {
    **_CACHE,
    "ETag": "the job's public version",
    "Retry-After": "seconds after which looking again makes sense; absent once the job has ended",
    "Vary": "Prefer",
}
_ARTIFACT = {
    **_CACHE,
    "Accept-Ranges": "bytes",
    "Content-Disposition": "attachment, with a file name (RFC 6266)",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-site",
}
_LENGTH = {"Content-Length": "in bytes"}
_IF_NONE_MATCH = {"If-None-Match": "the tags that the caller holds"}
_RANGES = {
    **_IF_NONE_MATCH,
    "Range": "one range of bytes; more than one, or another unit, is ignored",
    "If-Range": "the range counts only while the artifact has this tag",
}
_UNCHANGED = "The caller holds this representation."

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/v1/jobs"): Operation(
        "requestJob",
        "Hand in a job",
        "jobs:write",
        {
            202: Answer(
                "The job is recorded, or was recorded before by the same request.",
                {
                    **_JOB_HEADERS,
                    "Idempotent-Replayed": "true where the same request was recorded before",
                },
                JobResource,
            )
        },
        (
            *("invalid_json", "idempotency_key_required", "request_timeout", "gone"),
            *("payload_too_large", "unsupported_media_type", "invalid_input", "unknown_endpoint"),
            *("input_url_refused", "idempotency_key_reused", "origin_not_allowed"),
        ),
        "The same key with the same request, compared as canonical JSON (RFC 8785) of endpoint,"
        " input, metadata and retention with their defaults, gives the first job again. A refused"
        " request does not use up its key. Integers of up to 64 bits are kept exactly.",
        {
            "Idempotency-Key": "1 to 255 visible ASCII characters, bare or as a quoted"
            " structured-field string (the same key); one per job",
            "traceparent": "W3C trace context; a new trace is begun without one",
        },
        ("Idempotency-Key",),
        JobRequestResource,
    ),
    ("GET", "/v1/jobs/{id}"): Operation(
        "showJob",
        "Look at a job",
        "jobs:read",
        {200: Answer("The job.", _JOB_CACHE, JobResource), 304: Answer(_UNCHANGED, _JOB_CACHE)},
        ("not_found", "gone"),
        takes=_IF_NONE_MATCH,
    ),
    ("POST", "/v1/jobs/{id}/cancel"): Operation(
        "cancelJob",
        "Cancel a job",
        "jobs:write",
        {202: Answer("The job, cancelled or asked to stop.", _JOB_HEADERS, JobResource)},
        ("not_found", "gone", "already_terminal", "origin_not_allowed", "unsupported_media_type"),
        "A job that was not sent yet is cancelled at once and nothing is paid. Otherwise the"
        " request stands and goes to the provider, whose word decides. The body is not read.",
    ),
    ("GET", "/v1/jobs/{id}/result"): Operation(
        "findResult",
        "Go to the first artifact",
        "jobs:read",
        {303: Answer("The first artifact is there.", {"Location": "the path of the artifact"})},
        ("not_found", "gone", "not_ready", "job_failed", "job_cancelled"),
    ),
    ("GET", "/v1/jobs/{id}/artifacts/{name}"): Operation(
        "fetchArtifact",
        "Fetch an artifact",
        "jobs:read",
        {
            200: Answer("The whole artifact.", {**_ARTIFACT, **_LENGTH}, media_type="*/*"),
            206: Answer(
                "The part that was asked for.",
                {**_ARTIFACT, **_LENGTH, "Content-Range": "which part of how much"},
                media_type="*/*",
            ),
            304: Answer(_UNCHANGED, _ARTIFACT),
        },
        ("not_found", "gone", "range_not_satisfiable"),
        takes=_RANGES,
    ),
    ("HEAD", "/v1/jobs/{id}/artifacts/{name}"): Operation(
        "describeArtifact",
        "The headers of an artifact",
        "jobs:read",
        {
            200: Answer("The headers of the whole artifact.", {**_ARTIFACT, **_LENGTH}),
            304: Answer(_UNCHANGED, _ARTIFACT),
        },
        ("not_found", "gone"),
        takes=_IF_NONE_MATCH,
    ),
    ("GET", "/v1/endpoints"): Operation(
        "listEndpoints",
        "List the endpoints",
        None,
        {200: Answer("All endpoints, by name.", {}, EndpointsResource)},
    ),
    ("GET", "/v1/endpoints/{name}"): Operation(
        "showEndpoint",
        "Look at an endpoint",
        None,
        {200: Answer("The endpoint.", {}, EndpointResource)},
        ("not_found",),
    ),
}
"""Every operation that needs a credential; `scope` None: any will do."""
