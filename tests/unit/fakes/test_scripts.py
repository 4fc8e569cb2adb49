"""Scripted faults of run, status, cancel and health, by control call and by the input itself."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.fakes.runpod.wire import Call
from tests.unit.fakes.conftest import NOW, Running, Start, until


async def script(fake: Running, **fields: Any) -> None:
    await fake.control("POST", "scripts", fields)


async def run(fake: Running, **given: Any) -> httpx.Response:
    return await fake.http.post("/v2/demo/run", json={"input": given or {"a": 1}})


async def only_create(fake: Running) -> dict[str, Any]:
    [entry] = await fake.entries("run")
    return entry


async def test_a_connection_cut_after_the_create_leaves_one_paid_job(fake: Running) -> None:
    await script(fake, create={"cut": "after_create"})
    with pytest.raises(httpx.ReadError):
        await run(fake)
    entry = await only_create(fake)
    assert (entry["created"], entry["status"], entry["cut"]) == (True, None, "after_create")
    assert (await fake.control("GET", f"jobs/{entry['job_id']}"))["price_usd"] == "0.05"


async def test_a_connection_cut_before_the_create_leaves_no_job(fake: Running) -> None:
    await script(fake, create={"cut": "before_create", "how": "close"})
    with pytest.raises(httpx.RemoteProtocolError):
        await run(fake)
    entry = await only_create(fake)
    assert (entry["created"], entry["status"], entry["job_id"]) == (False, None, None)
    assert (await fake.control("GET", "stats"))["jobs_created"] == 0


async def test_an_answer_cut_in_its_body_leaves_a_job(fake: Running) -> None:
    await script(fake, create={"cut": "in_answer", "how": "close"})
    with pytest.raises(httpx.RemoteProtocolError, match="received 34 bytes, expected 68"):
        await run(fake)
    assert (await only_create(fake))["created"] is True


async def test_a_502_after_accepting(fake: Running) -> None:
    html = "<html>502 Bad Gateway</html>"
    await script(fake, create={"status": 502, "created": True, "body": html})
    answer = await run(fake)
    assert (answer.status_code, answer.text) == (502, html)
    assert answer.headers["content-type"] == "text/html"
    assert (await only_create(fake))["created"] is True


async def test_a_429_with_retry_after_makes_no_job(fake: Running) -> None:
    await script(fake, times=1, create={"status": 429, "headers": {"Retry-After": "3"}})
    answer = await run(fake)
    assert (answer.status_code, answer.content) == (429, b"")
    assert answer.headers["retry-after"] == "3"
    assert (await only_create(fake))["created"] is False
    assert (await run(fake)).status_code == 200


async def test_a_400_that_is_a_job_record_with_an_id(fake: Running) -> None:
    body = {"id": "{job_id}", "status": "FAILED"}
    await script(fake, create={"status": 400, "created": True, "body": body})
    answer = await run(fake)
    assert answer.json() == {"id": (await only_create(fake))["job_id"], "status": "FAILED"}


@pytest.mark.parametrize(
    ("body", "text"),
    [({"status": "IN_QUEUE"}, '{"status":"IN_QUEUE"}'), ('{"id":"', '{"id":"'), (None, "null")],
)
async def test_a_200_that_says_nothing_useful(fake: Running, body: object, text: str) -> None:
    await script(fake, create={"body": body})
    answer = await run(fake)
    assert (answer.status_code, answer.text) == (200, text)
    assert (await only_create(fake))["created"] is True


async def test_scripts_play_in_the_order_they_came_and_are_used_up(fake: Running) -> None:
    await script(fake, times=2, create={"status": 409, "body": {"error": "ENDPOINT_PAUSED"}})
    await script(fake, times=1, create={"status": 503})
    listed = await fake.control("GET", "scripts")
    assert [item["times_left"] for item in listed["scripts"]] == [2, 1]
    assert [(await run(fake)).status_code for _ in range(4)] == [409, 409, 503, 200]
    assert await fake.control("GET", "scripts") == {"scripts": []}


async def test_a_script_plays_only_for_what_it_matches(fake: Running) -> None:
    await script(fake, match={"input": {"tag": "x", "in": {"k": 1}}}, create={"status": 500})
    await script(fake, match={"endpoint": "other"}, create={"status": 501})
    assert (await run(fake, tag="y")).status_code == 200
    assert (await run(fake, tag="x")).status_code == 200
    assert (await run(fake, **{"tag": "x", "in": "k"})).status_code == 200
    assert (await run(fake, **{"tag": "x", "in": {"k": 1, "more": 2}})).status_code == 500
    answer = await fake.http.post("/v2/other/run", json={"input": {"a": 1}})
    assert answer.status_code == 501


async def test_a_probability_is_repeatable_by_its_seed(start: Start) -> None:
    fake = await start(seed=7)
    await script(fake, probability=0.5, create={"status": 503})
    seen = {(await run(fake)).status_code for _ in range(40)}
    assert seen == {200, 503}


async def test_cleared_scripts_play_no_more(fake: Running) -> None:
    await script(fake, create={"status": 503})
    await fake.control("DELETE", "scripts")
    assert (await run(fake)).status_code == 200


async def test_an_unknown_field_of_a_script_is_refused(fake: Running) -> None:
    answer = await fake.http.post("/control/scripts", json={"create": {"cutt": "after_create"}})
    assert answer.status_code == 422
    assert answer.json()["error"][0]["loc"] == ["create", "cutt"]


async def test_scripts_in_the_input_can_be_switched_off(start: Start) -> None:
    fake = await start(scripts_in_input=False)
    await fake.scripted(create={"status": 503})
    assert (await only_create(fake))["status"] == 200


async def test_a_gate_holds_a_create_until_it_is_opened(fake: Running) -> None:
    await script(fake, create={"gate": "create"})
    calls = [asyncio.create_task(run(fake)) for _ in range(2)]

    async def both_wait() -> bool:
        gates = await fake.control("GET", "gates")
        return bool(gates.get("create") == {"open": False, "waiting": 2})

    await until(both_wait)
    # Held answers are journaled already, with their jobs.
    assert [entry["created"] for entry in await fake.entries("run")] == [True, True]
    await fake.control("POST", "gates/create/open")
    assert [(await call).status_code for call in calls] == [200, 200]
    assert (await run(fake)).status_code == 200
    shut = await fake.control("POST", "gates/create/shut")
    assert shut["create"] == {"open": False, "waiting": 0}


async def test_a_slow_create_is_answered_in_the_end(fake: Running) -> None:
    await script(fake, create={"delay_s": 0.01})
    assert (await run(fake)).status_code == 200


async def test_status_answers_in_sequence_then_the_truth(fake: Running) -> None:
    steps = [
        {"http": 404},
        {"http": 502, "body": "<html>"},
        {"http": 429, "headers": {"Retry-After": "soon"}},
        {"fields": {"status": "IN_PROGRESS", "output": "9/10"}, "drop": ["executionTime"]},
        {"fields": {"status": "WHAT"}},
        {"body": {"id": "{job_id}"}},
        {"drop": ["output"]},
    ]
    job_id = await fake.scripted(job=NOW, status={"sequence": steps})
    path = f"/v2/demo/status/{job_id}"
    answers = [await fake.http.get(path) for _ in range(8)]
    assert [answer.status_code for answer in answers] == [404, 502, 429, 200, 200, 200, 200, 200]
    assert answers[1].text == "<html>"
    assert answers[2].headers["retry-after"] == "soon"
    late = answers[3].json()
    assert (late["status"], late["output"], "executionTime" in late) == (
        "IN_PROGRESS",
        "9/10",
        False,
    )
    assert answers[4].json()["status"] == "WHAT"
    assert answers[5].json() == {"id": job_id}
    assert "output" not in answers[6].json()
    assert answers[7].json()["output"]["video_url"]
    entries = await fake.entries("status")
    assert [entry.get("step") for entry in entries] == [0, 1, 2, 3, 4, 5, 6, None]


async def test_the_last_step_may_repeat_and_steps_may_wait_for_the_end(fake: Running) -> None:
    plan = {"sequence": [{}, {"http": 404}], "repeat_last": True, "when": "ended"}
    job_id = await fake.scripted(job={"queue_s": "forever"}, status=plan)
    for _ in range(2):
        assert (await fake.record(job_id))["status"] == "IN_QUEUE"
    await fake.control("POST", f"jobs/{job_id}/end")
    assert (await fake.record(job_id))["status"] == "COMPLETED"
    for _ in range(3):
        assert (await fake.http.get(f"/v2/demo/status/{job_id}")).status_code == 404


async def test_a_status_call_can_be_cut(fake: Running) -> None:
    job_id = await fake.scripted(job=NOW, status={"sequence": [{"cut": True}]})
    with pytest.raises(httpx.ReadError):
        await fake.record(job_id)
    [entry] = await fake.entries("status")
    assert entry["status"] is None
    assert (await fake.record(job_id))["status"] == "COMPLETED"


async def test_a_step_for_a_forgotten_job_is_still_played(start: Start) -> None:
    fake = await start(time_scale=1e12)
    job_id = await fake.scripted(job=NOW, status={"sequence": [{"http": 500}]})
    assert (await fake.http.get(f"/v2/demo/status/{job_id}")).status_code == 500
    assert (await fake.http.get(f"/v2/demo/status/{job_id}")).status_code == 404


async def test_a_refused_cancel_cancels_nothing(fake: Running) -> None:
    job_id = await fake.scripted(job={"queue_s": "forever"}, cancel={"status": 500})
    answer = await fake.http.post(f"/v2/demo/cancel/{job_id}")
    assert (answer.status_code, answer.content) == (500, b"")
    assert (await fake.record(job_id))["status"] == "IN_QUEUE"


async def test_an_outage_plays_for_its_kinds_of_calls_only(fake: Running) -> None:
    job_id = await fake.scripted(job={"queue_s": "forever"})
    await script(fake, times=2, calls={"kinds": ["status", "health"], "status": 500})
    await script(fake, times=1, calls={"kinds": ["status"], "cut": True})
    assert (await fake.http.get(f"/v2/demo/status/{job_id}")).status_code == 500
    assert (await run(fake)).status_code == 200
    assert (await fake.http.get("/v2/demo/health")).status_code == 500
    with pytest.raises(httpx.ReadError):
        await fake.record(job_id)
    assert (await fake.record(job_id))["status"] == "IN_QUEUE"


async def test_an_outage_of_creates_makes_no_job(fake: Running) -> None:
    await script(fake, calls={"kinds": ["run"]}, match={"endpoint": "demo"})
    assert (await run(fake)).status_code == 503
    assert (await only_create(fake))["created"] is False


async def test_a_job_can_be_scripted_and_ended_later(fake: Running) -> None:
    job_id = await fake.scripted(job={"queue_s": 0, "run_s": "forever"})
    await fake.control("POST", f"jobs/{job_id}/script", {"status": {"sequence": [{"http": 404}]}})
    assert (await fake.http.get(f"/v2/demo/status/{job_id}")).status_code == 404
    shown = await fake.control("POST", f"jobs/{job_id}/end", {"outcome": "FAILED", "error": "x"})
    assert (shown["state"], shown["ended"], shown["status_steps_used"]) == ("FAILED", True, 1)
    assert (await fake.record(job_id))["error"] == "x"


@pytest.mark.parametrize(
    ("peer", "status"),
    [("127.0.0.9:1", 200), ("::1:1", 200), ("10.0.0.9:1", 403), ("unknown:0", 400)],
)
async def test_control_is_for_this_machine_only(fake: Running, peer: str, status: int) -> None:
    answer = await fake.app.answer(Call("GET", "/control/stats", "", {}, b"", peer))
    assert answer.status == status


async def test_control_calls_that_do_not_exist(fake: Running) -> None:
    job_id = await fake.create()
    for method, path in [
        ("GET", "nothing"),
        ("PUT", "scripts"),
        ("POST", f"jobs/{job_id}/nothing"),
        ("GET", "jobs/nobody"),
    ]:
        assert (await fake.http.request(method, f"/control/{path}")).status_code == 404
    answer = await fake.http.post("/control/scripts", content=b"{")
    assert answer.status_code == 400
    assert (await fake.http.get("/control/journal?after=x")).status_code == 400


async def test_the_list_of_jobs_and_the_pages_of_the_journal(fake: Running) -> None:
    ids = [await fake.create() for _ in range(3)]
    listed = await fake.control("GET", "jobs")
    assert [job["id"] for job in listed["jobs"]] == ids
    page = await fake.control("GET", "journal?after=1&limit=1")
    assert [entry["seq"] for entry in page["entries"]] == [2]
    assert page["last_seq"] == 3
    assert "record" not in page["entries"][0]
    mine = await fake.control("GET", f"journal?job_id={ids[2]}")
    assert [entry["seq"] for entry in mine["entries"]] == [3]
    assert await fake.control("GET", "ready") == {"ready": True}
