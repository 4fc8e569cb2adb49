"""Credentials: bearer and cookie, and the pages that a cookie may come from."""

import itertools
import json
import time

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from structlog.typing import EventDict

from services.gateway.desk import Desk
from shared.domain.errors import Unavailable
from shared.store.keys import key_revoked, keys_listed
from shared.store.pool import Database
from tests.system.gateway.bench import (
    BODY,
    ORIGIN,
    SESSION_SECRET,
    Caller,
    assert_problem,
    caller,
    http_client,
    jobs_in,
)

OWN_PAGE = {"Origin": ORIGIN, "Content-Type": "application/json", "Idempotency-Key": "k"}
ORIGINS = [
    *(ORIGIN, None, "null", "", "http://app.example", "https://app.example:8443"),
    *("https://sub.app.example", "https://app.example.evil.example", "HTTPS://APP.EXAMPLE"),
    *(f"{ORIGIN}/", f"{ORIGIN}, {ORIGIN}"),
]
TYPES = [
    *("application/json", "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'),
    *(None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
    *("application/json; charset=latin-1", "text/plain; application/json"),
]
SITES = [None, "same-origin", "same-site", "cross-site", "none", ""]


def session(owner: str = "owner-1") -> str:
    """A session token."""
    claims = {"iss": "coatcheck", "aud": "coatcheck", "sub": owner, "exp": time.time() + 600}
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SESSION_SECRET))


def browser(desk: Desk, owner: str = "owner-1") -> httpx.AsyncClient:
    """A client with the session cookie."""
    return http_client(desk, Cookie=f"theme=dark; coatcheck_session={session(owner)}")


async def test_a_session_reads_and_its_own_page_writes(desk: Desk) -> None:
    page = browser(desk)
    answer = await page.post("/v1/jobs", json=BODY, headers=OWN_PAGE)
    assert answer.status_code == 202, answer.text
    path = answer.headers["location"]
    assert (await page.get(path)).status_code == 200
    assert_problem(await browser(desk, "owner-2").get(path), 404, "not_found")
    bearer = http_client(desk, Authorization=f"bearer {session()}")
    assert (await bearer.get(path)).status_code == 200
    cancelled = await page.post(f"{path}/cancel", headers=OWN_PAGE)
    assert cancelled.status_code == 202


async def test_a_cookie_writes_from_its_own_page_alone(desk: Desk, database: Database) -> None:
    page = browser(desk)
    passed: list[tuple[str | None, ...]] = []
    for origin, content_type, site in itertools.product(ORIGINS, TYPES, SITES):
        pairs = [("Origin", origin), ("Content-Type", content_type), ("Sec-Fetch-Site", site)]
        headers = {name: value for name, value in pairs if value is not None}
        headers["Idempotency-Key"] = f"key-{len(passed)}"
        answer = await page.post("/v1/jobs", content=json.dumps(BODY), headers=headers)
        if answer.status_code == 202:
            passed.append((origin, content_type, site))
        elif origin != ORIGIN or site not in (None, "same-origin"):
            assert_problem(answer, 403, "origin_not_allowed")
        else:
            assert_problem(answer, 415, "unsupported_media_type")
    assert passed == list(itertools.product([ORIGIN], TYPES[:3], SITES[:2]))
    assert await jobs_in(database) == len(passed)


async def test_a_cookie_cancels_from_its_own_page_alone(desk: Desk, owner: Caller) -> None:
    path = (await owner.post(BODY)).headers["location"]
    page = browser(desk)
    for headers in ({}, {"Origin": "https://evil.example", "Content-Type": "application/json"}):
        answer = await page.post(f"{path}/cancel", headers=headers)
        assert_problem(answer, 403, "origin_not_allowed")
    answer = await page.post(f"{path}/cancel", headers={"Origin": ORIGIN})
    assert_problem(answer, 415, "unsupported_media_type")
    override = {"X-HTTP-Method-Override": "POST", "X-Method-Override": "POST"}
    assert_problem(await page.get(f"{path}/cancel", headers=override), 405, "method_not_allowed")
    assert (await owner.http.get(path)).json()["status"] == "queued"


async def test_no_answer_ever_carries_a_cors_header(desk: Desk) -> None:
    page = browser(desk)
    preflight = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    answers = [
        await page.options("/v1/jobs", headers=preflight),
        await page.post("/v1/jobs", json=BODY, headers=OWN_PAGE),
        await page.get("/v1/endpoints", headers={"Origin": ORIGIN}),
    ]
    for answer in answers:
        assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_with_both_the_bearer_decides(desk: Desk, owner: Caller) -> None:
    path = (await owner.post(BODY)).headers["location"]
    stranger = browser(desk, "owner-2")
    key = owner.http.headers["authorization"]
    assert (await stranger.get(path, headers={"Authorization": key})).status_code == 200
    own = browser(desk)
    answer = await own.get(path, headers={"Authorization": "Bearer bad"})
    assert_problem(answer, 401, "unauthenticated")


async def test_two_sessions_at_once_are_none(desk: Desk) -> None:
    both = f"coatcheck_session={session()}; coatcheck_session={session('owner-2')}"
    answer = await http_client(desk, Cookie=both).get("/v1/endpoints")
    assert_problem(answer, 401, "unauthenticated")
    none = await http_client(desk, Cookie="coatcheck_session=").get("/v1/endpoints")
    assert_problem(none, 401, "unauthenticated")


async def test_a_key_counts_until_it_is_revoked(desk: Desk, owner: Caller) -> None:
    (entry,) = await keys_listed(desk.database)
    assert entry.last_used_at is None
    assert (await owner.http.get("/v1/endpoints")).status_code == 200
    (used,) = await keys_listed(desk.database)
    assert used.last_used_at is not None
    await owner.http.get("/v1/endpoints")
    assert (await keys_listed(desk.database))[0].last_used_at == used.last_used_at
    await key_revoked(desk.database, entry.id)
    assert_problem(await owner.http.get("/v1/endpoints"), 401, "unauthenticated")


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/problems/not_found"])
async def test_what_explains_the_house_is_open_to_all(desk: Desk, path: str) -> None:
    answer = await http_client(desk).get(path)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_endpoints_are_shown_without_their_provider(desk: Desk, owner: Caller) -> None:
    reader = await caller(desk, scopes=())
    listed = (await reader.http.get("/v1/endpoints")).json()
    (endpoint,) = listed["endpoints"]
    assert endpoint == (await owner.http.get("/v1/endpoints/demo-video")).json()
    assert endpoint["name"] == "demo-video"
    assert endpoint["estimated_cost_usd"] == "0.0500"
    assert endpoint["input_schema"]["required"] == ["prompt"]
    assert endpoint["limits"]["max_in_flight"] == 50
    assert "runpod" not in json.dumps(listed)
    assert_problem(await owner.http.get("/v1/endpoints/nope"), 404, "not_found")


async def test_an_error_that_nobody_expected_is_told_without_its_text(
    desk: Desk, owner: Caller, monkeypatch: pytest.MonkeyPatch, log_lines: list[EventDict]
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("row 7 holds marzipan")

    path = (await owner.post(BODY)).headers["location"]
    monkeypatch.setattr("services.gateway.jobs.own_job", broken)
    answer = await owner.http.get(path)
    assert_problem(answer, 500, "internal_error")
    assert "marzipan" not in answer.text

    async def away(*_: object) -> None:
        raise Unavailable("row 7 holds marzipan")

    monkeypatch.setattr("services.gateway.jobs.own_job", away)
    answer = await owner.http.get(path)
    assert_problem(answer, 503, "unavailable")
    assert "marzipan" not in answer.text
    told = [line for line in log_lines if line["log_level"] == "error"]
    assert [line["event"] for line in told] == ["request_failed", "part_lost"]
    assert told[0]["route"] == "/v1/jobs/{id}"
