"""Problem documents (RFC 9457): the one place where a refusal becomes an answer.

Owns the list of codes with their status, title and explanation, the rendering, and the pages
that `type` points to. Promises that an answer never shows an exception's text, and that two
answers of one code differ in nothing but the request id. `instance` names the collection that
was addressed, never an id: a foreign job must look like one that does not exist.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from starlette.responses import Response

from shared.domain.errors import CoatcheckError

MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="coatcheck"'


@dataclass(frozen=True)
class Kind:
    """One code: its status, its title, whether trying again may help, and an explanation."""

    status: int
    title: str
    explanation: str
    retryable: bool = False


KINDS: Mapping[str, Kind] = {
    "invalid_json": Kind(
        400,
        "The body is not usable JSON",
        "The body must be one JSON text in UTF-8: no duplicate member names, no NaN or Infinity,"
        " no lone surrogates, integers below 2^64, nested at most 64 deep.",
    ),
    "idempotency_key_required": Kind(
        400,
        "An Idempotency-Key is required",
        "Send one Idempotency-Key header with 1 to 255 visible ASCII characters, bare or as a"
        " quoted string. Use a new key for each job and the same key to repeat a request.",
    ),
    "unauthenticated": Kind(
        401,
        "Authentication is required",
        "Send a valid API key or session token as Authorization: Bearer, or the session cookie.",
    ),
    "insufficient_scope": Kind(
        403,
        "The credential does not allow this",
        "Reading needs the scope jobs:read, everything that changes something jobs:write.",
    ),
    "origin_not_allowed": Kind(
        403,
        "The origin may not do this",
        "A request with the session cookie that changes something must come from a page of the"
        " application itself, and its Origin header must say so.",
    ),
    "not_found": Kind(
        404,
        "There is no such resource",
        "It does not exist, or it belongs to somebody else; the answer is the same.",
    ),
    "method_not_allowed": Kind(
        405, "The method is not allowed here", "The Allow header lists the methods that are."
    ),
    "request_timeout": Kind(
        408, "The body came too slowly", "Send the whole body without long pauses.", True
    ),
    "already_terminal": Kind(
        409, "The job has ended", "A job that has ended cannot be cancelled any more."
    ),
    "not_ready": Kind(
        409, "There is no result yet", "Wait as long as Retry-After says and ask again.", True
    ),
    "job_failed": Kind(
        409, "The job failed", "There will be no result; the member error says why."
    ),
    "job_cancelled": Kind(409, "The job was cancelled", "There will be no result."),
    "gone": Kind(
        410, "The job was purged", "Its input and its artifacts were removed and stay away."
    ),
    "payload_too_large": Kind(
        413, "The body is too large", "A body may have at most 10,000,000 bytes."
    ),
    "unsupported_media_type": Kind(
        415,
        "The body must be JSON",
        "Send Content-Type: application/json, with charset=utf-8 at most, and no Content-Encoding.",
    ),
    "range_not_satisfiable": Kind(
        416, "The range lies outside the artifact", "Content-Range tells its size."
    ),
    "invalid_input": Kind(
        422,
        "The request does not fit its schema",
        "The member errors lists up to 20 places, each with a JSON Pointer into the body in URI"
        " fragment form. GET /v1/endpoints/{name} shows the schema of an endpoint's input.",
    ),
    "unknown_endpoint": Kind(
        422, "There is no such endpoint", "GET /v1/endpoints lists the endpoints."
    ),
    "input_url_refused": Kind(
        422,
        "The input may not hold this URL",
        "An input may hold URLs only in fields that the endpoint's schema marks with"
        " x-allowed-hosts, https only, and only of the hosts listed there.",
    ),
    "idempotency_key_reused": Kind(
        422,
        "The Idempotency-Key belongs to another request",
        "The key was used before with another endpoint, input, metadata or retention. Nothing"
        " was changed; use a new key.",
    ),
    "internal_error": Kind(
        500,
        "Something went wrong here",
        "The request id helps an operator to find out what. Repeating the request with the same"
        " Idempotency-Key is safe.",
        True,
    ),
    "unavailable": Kind(
        503,
        "A part that is needed is away",
        "Nothing was decided. Repeat the request, with the same Idempotency-Key, after the time"
        " that Retry-After says.",
        True,
    ),
}


@dataclass(frozen=True)
class FieldError:
    """One place in the body: a JSON Pointer in URI fragment form, and a safe sentence."""

    pointer: str
    detail: str


@dataclass(eq=False)
class Problem(CoatcheckError):
    """A request ends with this problem. `extra`: further members of the document."""

    code: str
    detail: str | None = None
    errors: Sequence[FieldError] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.code)


def render(problem: Problem, *, request_id: str, path: str) -> Response:
    """The answer to a request on `path` that ended with this problem."""
    kind = KINDS[problem.code]
    document: dict[str, Any] = {
        "type": f"/problems/{problem.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail or kind.explanation,
        "instance": instance_of(path),
        "code": problem.code,
        "retryable": kind.retryable,
        "request_id": request_id,
    }
    if problem.errors:
        document["errors"] = [
            {"pointer": error.pointer, "detail": error.detail} for error in problem.errors
        ]
    document.update(problem.extra)
    headers = {"Cache-Control": "no-store", **problem.headers}
    if kind.status == 401:
        headers["WWW-Authenticate"] = CHALLENGE
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, kind.status, headers, media_type=MEDIA_TYPE)


def instance_of(path: str) -> str:
    """The collection below which `path` lies; `/` for what is none of ours."""
    parts = path.split("/")
    if parts[1:2] == ["v1"] and parts[2:3] in (["jobs"], ["endpoints"]):
        return f"/v1/{parts[2]}"
    return "/problems" if parts[1:2] == ["problems"] else "/"


def explanation_page(code: str) -> Response | None:
    """The page that `type` points to, or None for a code that we never answer with."""
    kind = KINDS.get(code)
    if kind is None:
        return None
    again = "Trying again later may help." if kind.retryable else "Repeating it cannot help."
    html = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{escape(kind.title)}</title><h1>{escape(kind.title)}</h1>"
        f"<p><code>{escape(code)}</code>, HTTP status {kind.status}. {again}</p>"
        f"<p>{escape(kind.explanation)}</p></html>"
    )
    headers = {"Content-Security-Policy": "default-src 'none'", "Cache-Control": "max-age=3600"}
    return Response(html.encode(), 200, headers, media_type="text/html")
