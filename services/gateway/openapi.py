"""The OpenAPI text and the page that shows it, made from the table of operations.

Promises a document that needs no second source: schemas are those of the answers' models, each
problem names its codes, and what holds for all requests is said once. Must never describe what
does not exist.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from html import escape
from typing import Any

from pydantic.json_schema import models_json_schema

from services.gateway.auth import COOKIE
from services.gateway.operations import OPERATIONS, Answer, Operation
from services.gateway.problems import KINDS, MEDIA_TYPE
from services.gateway.resources import (
    EndpointResource,
    EndpointsResource,
    JobRequestResource,
    JobResource,
    ProblemResource,
)
from shared.kit.version import VERSION

_MODELS = (
    JobRequestResource,
    JobResource,
    EndpointResource,
    EndpointsResource,
    ProblemResource,
)
_SCHEMAS = "#/components/schemas/"
_ABOUT = """\
Hand in a GPU or video job, keep the ticket, fetch the result.

Every answer carries `X-Request-Id`: the caller's own where it has 1 to 128 letters, digits, dots,
hyphens or underscores, else a new one. Every error is a problem document (RFC 9457). A path that
does not exist is 404 `not_found`, another method on one that does 405 `method_not_allowed` with
`Allow`. Pointers in `errors` are JSON Pointers in URI fragment form. Bodies may have at most
10,000,000 bytes. `HEAD` is answered wherever `GET` is. Missing, foreign and malformed ids get the
same 404. Changing requests with the session cookie need the application's own `Origin`."""
_EVERYWHERE = ("internal_error", "unavailable")
_PROBLEM_HEADERS = {
    401: {"WWW-Authenticate": "the challenge"},
    403: {"WWW-Authenticate": "the scope that is missing, where it is one"},
    409: {"Retry-After": "in seconds, with `not_ready`"},
    416: {"Content-Range": "the artifact's size"},
    503: {"Retry-After": "in seconds"},
}


def describe() -> bytes:
    """The document as JSON."""
    return json.dumps(document(), indent=1).encode()


def document() -> dict[str, Any]:
    """The document as a value."""
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for (method, path), operation in OPERATIONS.items():
        paths[path][method.lower()] = _operation(path, operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Coatcheck", "version": VERSION, "description": _ABOUT},
        "paths": dict(paths),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "an API key (cck_…) or a session token",
                },
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }


def _schemas() -> dict[str, Any]:
    _, definitions = models_json_schema(
        [
            (model, "validation" if model is JobRequestResource else "serialization")
            for model in _MODELS
        ],
        ref_template=_SCHEMAS + "{model}",
    )
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


def _operation(path: str, operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "security": [{"bearer": []}, {"session": []}],
        "parameters": [*_path_parameters(path), *_header_parameters(operation)],
        "responses": {
            **{str(status): _answer(answer) for status, answer in operation.answers.items()},
            **_problems(operation),
        },
    }
    needed = f"Needs the scope `{operation.scope}`." if operation.scope else ""
    described["description"] = f"{operation.description} {needed}".strip()
    if operation.body is not None:
        schema = {"$ref": _SCHEMAS + operation.body.__name__}
        content = {"application/json": {"schema": schema}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [step[1:-1] for step in path.split("/") if step.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]


def _header_parameters(operation: Operation) -> list[dict[str, Any]]:
    takes = {**operation.takes, "X-Request-Id": "taken over where it is sane"}
    return [
        {
            "name": name,
            "in": "header",
            "required": name in operation.required,
            "description": meaning,
            "schema": {"type": "string"},
        }
        for name, meaning in takes.items()
    ]


def _answer(answer: Answer) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": answer.description,
        "headers": _headers(answer.headers),
    }
    if answer.model is not None:
        schema = {"$ref": _SCHEMAS + answer.model.__name__}
        described["content"] = {"application/json": {"schema": schema}}
    elif answer.media_type is not None:
        described["content"] = {
            answer.media_type: {"schema": {"type": "string", "format": "binary"}}
        }
    return described


def _problems(operation: Operation) -> dict[str, Any]:
    scoped = ("insufficient_scope",) if operation.scope else ()
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in ("unauthenticated", *scoped, *operation.problems, *_EVERYWHERE):
        by_status[KINDS[code].status].append(code)
    return {
        str(status): {
            "description": "; ".join(f"`{code}`: {KINDS[code].title}" for code in codes),
            "headers": _headers(_PROBLEM_HEADERS.get(status, {})),
            "content": {MEDIA_TYPE: {"schema": {"$ref": _SCHEMAS + "ProblemResource"}}},
        }
        for status, codes in sorted(by_status.items())
    }


def _headers(headers: Mapping[str, str]) -> dict[str, Any]:
    every = {**headers, "X-Request-Id": "names this request"}
    return {
        name: {"description": meaning, "schema": {"type": "string"}}
        for name, meaning in every.items()
    }


def reference_page() -> bytes:
    """The document for people: one page without scripts, so that it needs nothing from afar."""
    described = document()
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Coatcheck</title>',
        "<style>body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "h2{margin-top:2.5rem}td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}"
        "pre{background:#f4f4f4;padding:1rem;overflow:auto}</style>",
        f"<h1>Coatcheck {escape(VERSION)}</h1>",
        f"<p>{escape(_ABOUT).replace(chr(10) + chr(10), '</p><p>')}</p>",
        '<p>The same for machines: <a href="openapi.json">openapi.json</a></p>',
    ]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(operation['summary'])}. ")
            parts.append(f"{escape(operation['description'])}</p><table>")
            parts.extend(
                f"<tr><th>{status}</th><td>{escape(answer['description'])}</td></tr>"
                for status, answer in operation["responses"].items()
            )
            parts.append("</table>")
    schemas = json.dumps(described["components"]["schemas"], indent=2)
    parts.append(f"<h2>Schemas</h2><pre>{escape(schemas)}</pre></html>")
    return "".join(parts).encode()
