"""Handing in jobs: one request is one row, however often and however it comes."""

import asyncio
import json
from typing import Any

from services.gateway.desk import Desk
from shared.store.pool import Database
from tests.system.gateway.bench import BODY, Caller, assert_problem, caller, jobs_in

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_job_is_recorded_and_shown_whole(owner: Caller, database: Database) -> None:
    body = {**BODY, "metadata": {"scene": 7}, "retention": "keep"}
    answer = await owner.post(body, traceparent=TRACE, **{"X-Request-Id": "shot-7"})
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}" == job["links"]["self"]
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["x-request-id"] == "shot-7"
    assert "idempotent-replayed" not in answer.headers
    assert set(job) == {
        *("id", "status", "endpoint", "progress", "created_at", "updated_at", "started_at"),
        *("finished_at", "result", "error", "attention", "estimated_cost_usd", "retention"),
        *("expires_at", "verdict", "cancel_requested", "resubmits", "resubmitted_as"),
        *("metadata", "purged_at", "links"),
    }
    assert job["status"] == "queued"
    assert job["metadata"] == {"scene": 7}
    assert job["retention"] == "keep"
    assert job["estimated_cost_usd"] == "0.0500"
    assert job["created_at"].endswith("Z")
    assert job["links"]["events"] == f"/v1/jobs/{job['id']}/events"
    async with database.connection() as connection:
        row = await connection.fetchrow(
            "SELECT owner_id, request_id, traceparent, stage, input FROM jobs"
            " JOIN job_inputs ON job_id = id"
        )
        hints = await connection.fetchval("SELECT count(*) FROM outbox")
    assert row is not None
    assert dict(row) | {"input": json.loads(row["input"])} == {
        "owner_id": owner.owner,
        "request_id": "shot-7",
        "traceparent": TRACE,
        "stage": "unsubmitted",
        "input": {"prompt": "a lake"},
    }
    assert hints == 2  # the submit hint and the record for the transitions topic


async def test_fifty_equal_posts_at_once_make_one_row(owner: Caller, database: Database) -> None:
    answers = await asyncio.gather(*(owner.post(BODY, "same") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    replayed = [answer for answer in answers if "idempotent-replayed" in answer.headers]
    assert len(replayed) == 49
    assert {answer.headers["idempotent-replayed"] for answer in replayed} == {"true"}
    assert await jobs_in(database) == 1


async def test_other_spellings_of_one_request_are_the_same_request(
    owner: Caller, database: Database
) -> None:
    first = await owner.post(b'{"endpoint":"demo-video","input":{"prompt":"a","seed":1}}', "k")
    again = await owner.post(
        b'{ "retention":"preview", "metadata":{},'
        b'"input":{"seed":1.0,"prompt":"\\u0061"}, "endpoint":"demo-video" }',
        '"k"',
    )
    assert again.status_code == 202, again.text
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["id"] == first.json()["id"]
    assert await jobs_in(database) == 1


async def test_another_request_under_a_used_key_is_refused(
    owner: Caller, database: Database
) -> None:
    await owner.post({**BODY, "input": {"prompt": "a lake", "seed": 2**63 + 2}})
    changes: list[dict[str, Any]] = [
        {"input": {"prompt": "a lake", "seed": 2**63}},
        {"input": {"prompt": "a lake", "seed": 2**63 + 1}},
        {"input": {"prompt": ""}},
        {"endpoint": "no-such-endpoint"},
        {"metadata": {"a": 1}},
        {"retention": "keep"},
    ]
    for change in changes:
        answer = await owner.post({**BODY, **change})
        assert_problem(answer, 422, "idempotency_key_reused")
    assert await jobs_in(database) == 1


async def test_a_refused_request_does_not_use_up_its_key(owner: Caller, database: Database) -> None:
    assert_problem(await owner.post({**BODY, "input": {}}), 422, "invalid_input")
    answer = await owner.post(BODY)
    assert answer.status_code == 202
    assert "idempotent-replayed" not in answer.headers
    assert await jobs_in(database) == 1


async def test_the_same_key_of_another_owner_is_another_key(
    owner: Caller, desk: Desk, database: Database
) -> None:
    other = await caller(desk, "owner-2")
    first, second = await owner.post(BODY), await other.post(BODY)
    assert first.json()["id"] != second.json()["id"]
    assert await jobs_in(database) == 2


async def test_a_repeat_is_answered_though_the_endpoint_is_gone(
    owner: Caller, desk: Desk, database: Database
) -> None:
    first = await owner.post(BODY)
    endpoints = desk.endpoints
    assert isinstance(endpoints, dict)
    endpoints.clear()
    again = await owner.post(BODY)
    assert again.status_code == 202
    assert again.json()["id"] == first.json()["id"]
    assert_problem(await owner.post(BODY, "fresh"), 422, "unknown_endpoint")


async def test_a_repeat_of_a_purged_job_is_gone_and_makes_no_new_one(
    owner: Caller, database: Database
) -> None:
    fresh = (await owner.post(BODY)).json()["id"]
    await owner.http.post(f"/v1/jobs/{fresh}/cancel")
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE jobs SET purged_at = clock_timestamp() WHERE id = $1::uuid", fresh
        )
    assert_problem(await owner.post(BODY), 410, "gone")
    assert_problem(await owner.http.get(f"/v1/jobs/{fresh}"), 410, "gone")
    assert_problem(await owner.http.post(f"/v1/jobs/{fresh}/cancel"), 410, "gone")
    assert await jobs_in(database) == 1
