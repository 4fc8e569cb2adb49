"""The four calls of the provider, played straight: what a client of the real API relies on."""

import asyncio
import json

import httpx
import pytest

from tests.unit.fakes.conftest import KEY, NOW, Running, Start

FOREVER_QUEUED = {"queue_s": "forever"}
FOREVER_RUNNING = {"queue_s": 0, "run_s": "forever"}


async def test_a_create_is_answered_with_an_id_and_its_job_is_queued(start: Start) -> None:
    fake = await start(queue_seconds=3600)
    answer = await fake.http.post("/v2/demo/run", json={"input": {"prompt": "x"}})
    assert answer.status_code == 200
    assert answer.json()["status"] == "IN_QUEUE"
    job_id = answer.json()["id"]
    assert job_id.endswith("-u1")
    assert await fake.record(job_id) == {"id": job_id, "status": "IN_QUEUE"}


async def test_an_ordinary_job_completes_by_itself(start: Start) -> None:
    fake = await start(queue_seconds=0.05, run_seconds=0.1)
    job_id = await fake.create()
    seen: list[str] = []
    while "COMPLETED" not in seen:
        record = await fake.record(job_id)
        seen.append(record["status"])
        await asyncio.sleep(0.005)
    # A busy machine may miss a state, but none is ever shown after a later one.
    assert seen == sorted(seen, key=["IN_QUEUE", "IN_PROGRESS", "COMPLETED"].index)
    assert record["output"] == {"video_url": f"{fake.url}/results/{job_id}.mp4", "cost": 0.05}


async def test_a_running_job_shows_its_progress_in_output(fake: Running) -> None:
    job_id = await fake.scripted(job=FOREVER_RUNNING)
    record = await fake.record(job_id)
    assert record["status"] == "IN_PROGRESS"
    assert record["output"] == {"progress": 0}
    assert {"delayTime", "executionTime", "workerId"} <= record.keys()


async def test_status_may_be_asked_by_post(fake: Running) -> None:
    job_id = await fake.scripted(job=FOREVER_QUEUED)
    answer = await fake.http.post(f"/v2/demo/status/{job_id}")
    assert answer.json()["status"] == "IN_QUEUE"


@pytest.mark.parametrize("shown", ["", "Bearer wrong", "wrong"])
async def test_a_wrong_key_gets_an_empty_401_and_creates_nothing(fake: Running, shown: str) -> None:
    answer = await fake.http.post(
        "/v2/demo/run", json={"input": {"a": 1}}, headers={"Authorization": shown}
    )
    assert (answer.status_code, answer.content) == (401, b"")
    stats = await fake.control("GET", "stats")
    assert (stats["creates"], stats["jobs_created"]) == (1, 0)


async def test_the_bare_key_counts_as_well(fake: Running) -> None:
    answer = await fake.http.get("/v2/demo/health", headers={"Authorization": KEY})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"input":{"a":1},"webhook":7}',
        b'{"input":{"a":1},"policy":[1]}',
        b'{"input":{"a":1},"policy":{"ttl":"1h"}}',
        b'{"input":{"a":1},"policy":{"ttl":true}}',
        b'{"input":{"a":1},"policy":{"executionTimeout":0}}',
        b'{"input":{"fake":{"jobs":{}}}}',
        b'{"input":"' + b"x" * 10_000_000 + b'"}',
    ],
)
async def test_a_body_that_makes_no_sense_is_a_400_without_a_job(
    fake: Running, body: bytes
) -> None:
    answer = await fake.http.post("/v2/demo/run", content=body)
    assert answer.status_code == 400
    assert "error" in answer.json()
    [entry] = await fake.entries("run")
    assert (entry["status"], entry["created"], entry["job_id"]) == (400, False, None)
    assert entry["request_bytes"] == len(body)


@pytest.mark.parametrize("given", [{}, None])
async def test_an_empty_input_is_accepted_and_fails_later(start: Start, given: object) -> None:
    fake = await start(queue_seconds=0, time_scale=1e5)
    job_id = await fake.create(input=given)
    # 40 s and 30 min at this scale: 0.4 ms until the end, 18 ms until it is forgotten.
    shown = await fake.control("GET", f"jobs/{job_id}")
    while not shown["ended"]:
        shown = await fake.control("GET", f"jobs/{job_id}")
    assert shown["ending"] == "empty_input"


async def test_an_unknown_job_is_a_404_for_every_call(fake: Running) -> None:
    job_id = await fake.scripted(job=FOREVER_QUEUED)
    for path in ("status/nobody-u1", "cancel/nobody-u1"):
        answer = await fake.http.post(f"/v2/demo/{path}")
        assert (answer.status_code, answer.content) == (404, b"")
    # The right id at the wrong endpoint is as unknown.
    for call in ("status", "cancel"):
        answer = await fake.http.post(f"/v2/other/{call}/{job_id}")
        assert answer.status_code == 404
    assert (await fake.record(job_id))["status"] == "IN_QUEUE"


async def test_cancel_answers_at_once_and_the_job_ends_cancelled(fake: Running) -> None:
    job_id = await fake.scripted(job=FOREVER_RUNNING)
    answer = await fake.http.post(f"/v2/demo/cancel/{job_id}")
    assert answer.json() == {"id": job_id, "status": "CANCELLED"}
    assert await fake.record(job_id) == {"id": job_id, "status": "CANCELLED"}


async def test_cancelling_a_finished_job_changes_nothing(fake: Running) -> None:
    job_id = await fake.scripted(job=NOW)
    answer = await fake.http.post(f"/v2/demo/cancel/{job_id}")
    assert answer.json()["status"] == "CANCELLED"
    assert (await fake.record(job_id))["status"] == "COMPLETED"


async def test_a_second_cancel_does_not_move_the_first(fake: Running) -> None:
    job_id = await fake.scripted(job=FOREVER_RUNNING | {"ignore_cancel": True})
    await fake.http.post(f"/v2/demo/cancel/{job_id}")
    first = (await fake.control("GET", f"jobs/{job_id}"))["cancelled_at"]
    await fake.http.post(f"/v2/demo/cancel/{job_id}")
    assert (await fake.control("GET", f"jobs/{job_id}"))["cancelled_at"] == first


async def test_health_counts_the_jobs_of_its_endpoint(fake: Running) -> None:
    await fake.scripted(job=FOREVER_QUEUED)
    await fake.scripted(job=FOREVER_RUNNING)
    await fake.scripted(job=NOW)
    await fake.scripted(job=NOW | {"outcome": "FAILED"})
    await fake.create(endpoint="other")
    answer = await fake.http.get("/v2/demo/health")
    counted = answer.json()["jobs"]
    assert counted == {"completed": 1, "failed": 1, "inProgress": 1, "inQueue": 1, "retried": 0}
    assert answer.json()["workers"]["running"] == 1


async def test_a_job_past_its_retention_is_a_404(start: Start) -> None:
    fake = await start(time_scale=1e12)
    job_id = await fake.scripted(job=NOW)
    answer = await fake.http.get(f"/v2/demo/status/{job_id}")
    assert (answer.status_code, answer.content) == (404, b"")
    assert (await fake.control("GET", f"jobs/{job_id}"))["gone"]


async def test_a_path_the_provider_does_not_have_is_a_404(fake: Running) -> None:
    for path in ("/", "/v2", "/v2/demo", "/v2/demo/runsync", "/v2/demo/run/x", "/results/x"):
        answer = await fake.http.post(path, json={})
        assert answer.status_code == 404
        assert answer.json() == {"message": "Not Found"}
    assert len(await fake.entries("other")) == 6


async def test_the_journal_tells_of_every_call(fake: Running) -> None:
    body = {"input": {"a": 1}, "webhook": "http://127.0.0.1:9/webhooks/runpod/tok-1?x=/2"}
    created = await fake.http.post("/v2/demo/run", json=body)
    job_id = created.json()["id"]
    await fake.record(job_id)
    await fake.http.post(f"/v2/demo/cancel/{job_id}")
    await fake.http.get("/v2/demo/health")
    page = await fake.control("GET", "journal?full=1")
    run, status, cancel, health = page["entries"]
    assert [entry["seq"] for entry in page["entries"]] == [1, 2, 3, 4]
    assert run["webhook_token"] == "tok-1"
    assert (run["created"], run["job_id"], run["price_usd"]) == (True, job_id, "0.05")
    assert run["record"]["input"] == {"a": 1}
    assert [status["kind"], cancel["kind"], health["kind"]] == ["status", "cancel", "health"]
    assert {entry["status"] for entry in page["entries"]} == {200}
    assert status["job_id"] == cancel["job_id"] == job_id
    assert len(run["request_sha256"]) == 64


async def test_hundreds_of_creates_at_once_make_as_many_jobs(fake: Running) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=fake.url, limits=limits, trust_env=False) as http:
        body = json.dumps({"input": {"a": 1}})
        headers = {"Authorization": f"Bearer {KEY}", "Connection": "close"}
        answers = await asyncio.gather(
            *(http.post("/v2/demo/run", content=body, headers=headers) for _ in range(200))
        )
    ids = {answer.json()["id"] for answer in answers}
    assert len(ids) == 200
    entries = await fake.entries("run")
    assert [entry["seq"] for entry in entries] == list(range(1, 201))
    assert {entry["job_id"] for entry in entries} == ids
    assert len({entry["peer"] for entry in entries}) == 200
