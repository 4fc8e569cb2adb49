"""The OpenAPI text is complete and true: it is held against routes, pages and real answers."""

from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from services.gateway.app import ROUTES
from services.gateway.desk import Desk
from services.gateway.openapi import document
from services.gateway.operations import OPERATIONS
from services.gateway.problems import KINDS
from shared.domain.stages import Stage
from shared.store.pool import Database
from tests.store.rows import placed
from tests.system.gateway.bench import BODY, Caller, assert_problem, http_client

DOCUMENT = document()
UNDESCRIBED_HEADERS = {"content-type", "content-length", "x-content-type-options"}
EVERYWHERE = {"referrer-policy", "cache-control"}


def described(method: str, path: str, status: int) -> dict[str, Any]:
    """What the text says of this answer."""
    answers = DOCUMENT["paths"][path][method.lower()]["responses"]
    assert str(status) in answers, f"{method} {path} may not answer {status}"
    answer: dict[str, Any] = answers[str(status)]
    return answer


def assert_as_described(answer: httpx.Response, path: str) -> None:
    """Status, headers and body must be what the text says."""
    method = answer.request.method
    said = described(method, path, answer.status_code)
    known = {name.lower() for name in said["headers"]} | UNDESCRIBED_HEADERS | EVERYWHERE
    assert set(answer.headers) <= known, set(answer.headers) - known
    content = said.get("content", {})
    media_type = answer.headers.get("content-type", "")
    if media_type in content and method != "HEAD":
        schema = {**content[media_type]["schema"], "components": DOCUMENT["components"]}
        Draft202012Validator(schema).validate(answer.json())
    else:
        assert answer.content == b"" or "*/*" in content


def test_every_route_is_described_and_every_description_has_a_route() -> None:
    routes = {(method, path) for method, path, _ in ROUTES}
    assert {pair for pair in OPERATIONS if pair[0] != "HEAD"} == routes
    assert {path for method, path in OPERATIONS if method == "HEAD"} <= {
        path for method, path in routes if method == "GET"
    }
    described_pairs = {
        (method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item
    }
    assert described_pairs == set(OPERATIONS)


def test_every_schema_is_a_schema_and_every_reference_leads_somewhere() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    text = str(DOCUMENT)
    names = {part.split("'")[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(DOCUMENT["components"]["schemas"])


@pytest.mark.parametrize("stage", [Stage.unsubmitted, Stage.unknown, Stage.failed, Stage.succeeded])
async def test_real_answers_are_as_described(
    owner: Caller, database: Database, stage: Stage
) -> None:
    job_id = (await placed(database, stage)).job.id
    path = f"/v1/jobs/{job_id}"
    shown = await owner.http.get(path)
    assert_as_described(shown, "/v1/jobs/{id}")
    same = await owner.http.get(path, headers={"If-None-Match": shown.headers["etag"]})
    assert_as_described(same, "/v1/jobs/{id}")
    assert_as_described(await owner.http.get(f"{path}/result"), "/v1/jobs/{id}/result")
    artifact = "/v1/jobs/{id}/artifacts/{name}"
    for headers in ({}, {"Range": "bytes=5000-"}, {"If-None-Match": f'"{"ab" * 32}"'}):
        answer = await owner.http.get(f"{path}/artifacts/master", headers=headers)
        assert_as_described(answer, artifact)
        assert_as_described(await owner.http.head(f"{path}/artifacts/master"), artifact)
    assert_as_described(await owner.http.post(f"{path}/cancel"), "/v1/jobs/{id}/cancel")


async def test_real_answers_to_requests_are_as_described(owner: Caller, desk: Desk) -> None:
    answers = [
        await owner.post(BODY),
        await owner.post(BODY),
        await owner.post({**BODY, "metadata": {"a": 1}}),
        await owner.post({**BODY, "input": {}}),
        await owner.post(b"{"),
        await owner.post(BODY, None),
        await owner.post(BODY, **{"Content-Type": "text/plain"}),
        await owner.post(b" " * 10_000_001),
        await http_client(desk).post("/v1/jobs", json=BODY),
    ]
    assert [answer.status_code for answer in answers] == [
        *(202, 202, 422, 422, 400, 400, 415, 413, 401),
    ]
    for answer in answers:
        assert_as_described(answer, "/v1/jobs")
    assert_as_described(await owner.http.get("/v1/endpoints"), "/v1/endpoints")
    one = await owner.http.get("/v1/endpoints/demo-video")
    assert_as_described(one, "/v1/endpoints/{name}")
    none = await owner.http.get("/v1/endpoints/nope")
    assert_as_described(none, "/v1/endpoints/{name}")


async def test_the_pages_hold_what_the_text_says(desk: Desk) -> None:
    http = http_client(desk)
    assert (await http.get("/openapi.json")).json() == DOCUMENT
    page = (await http.get("/docs")).text
    assert all(path in page for path in DOCUMENT["paths"])
    assert "<script" not in page
    for code, kind in KINDS.items():
        answer = await http.get(f"/problems/{code}")
        assert answer.headers["content-type"].startswith("text/html")
        assert str(kind.status) in answer.text
    assert_problem(await http.get("/problems/nope"), 404, "not_found")


def test_every_code_is_described_or_holds_for_all_requests() -> None:
    text = str(DOCUMENT)
    assert {code for code in KINDS if f"`{code}`" not in text} == set()
