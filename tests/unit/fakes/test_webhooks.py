"""Webhooks: what the body holds, the retry rule, and every delivery a receiver must survive."""

import asyncio
import socket

import pytest

from tests.fakes.runpod.courier import post_json
from tests.fakes.runpod.deliveries import rounds_done
from tests.fakes.runpod.wire import Answer, Call, Cut, CutStyle, HttpServer
from tests.unit.fakes.conftest import NOW, Receiver, Running, Start, until


async def answers(fake: Running, job_id: str, count: int) -> list[int | None]:
    """The statuses of the job's own deliveries, once there are `count` of them."""
    while True:
        shown = await fake.control("GET", f"jobs/{job_id}")
        found: list[int | None] = shown["webhook_answers"]
        if len(found) >= count:
            return found
        await asyncio.sleep(0)


async def test_the_body_is_the_record_with_input_and_webhook(
    fake: Running, receiver: Receiver
) -> None:
    url = f"{receiver.url}/token-1?x=%2F"
    job_id = await fake.scripted(webhook=url, job=NOW)
    call = await receiver.taken.get()
    assert (call.method, call.path, call.query) == ("POST", "/webhooks/runpod/token-1", "x=%2F")
    assert call.headers["content-type"] == "application/json"
    receiver.taken.put_nowait(call)
    body = await receiver.body()
    shown = await fake.control("GET", f"jobs/{job_id}")
    assert body == await fake.record(job_id) | {"input": shown["input"], "webhook": url}
    assert await answers(fake, job_id, 1) == [200]
    [entry] = await fake.entries("webhook-delivery")
    assert (entry["job_id"], entry["status"], entry["extra"]) == (job_id, 200, False)


async def test_a_miss_is_tried_twice_more_and_then_given_up(
    start: Start, receiver: Receiver
) -> None:
    fake = await start(time_scale=1e4)
    receiver.statuses = [500, 301, 204, 200]
    job_id = await fake.scripted(webhook=receiver.url, job=NOW)
    assert await answers(fake, job_id, 3) == [500, 301, 204]
    other = await fake.scripted(webhook=receiver.url, job=NOW)
    assert await answers(fake, other, 1) == [200]
    assert await answers(fake, job_id, 3) == [500, 301, 204]


async def test_a_retry_that_is_taken_ends_the_tries(start: Start, receiver: Receiver) -> None:
    fake = await start(time_scale=1e4)
    receiver.statuses = [503]
    job_id = await fake.scripted(webhook=receiver.url, job=NOW)
    assert await answers(fake, job_id, 2) == [503, 200]


def test_rounds_end_with_a_200_or_the_third_miss() -> None:
    assert rounds_done([]) == (0, 0)
    assert rounds_done([500, None]) == (0, 2)
    assert rounds_done([500, None, 404, 200, 500]) == (2, 1)


async def test_a_failed_job_tells_too(fake: Running, receiver: Receiver) -> None:
    await fake.scripted(webhook=receiver.url, job=NOW | {"outcome": "FAILED"})
    assert (await receiver.body())["status"] == "FAILED"


async def test_a_cancelled_job_tells_only_if_scripted(fake: Running, receiver: Receiver) -> None:
    queued = {"queue_s": "forever"}
    silent = await fake.create(input={"fake": {"job": queued}}, webhook=f"{receiver.url}/silent")
    telling = await fake.create(
        input={"fake": {"job": queued, "webhook": {"on_cancel": True}}},
        webhook=f"{receiver.url}/telling",
    )
    for job_id in (silent, telling):
        await fake.http.post(f"/v2/demo/cancel/{job_id}")
    assert (await receiver.body())["id"] == telling
    assert receiver.taken.empty()
    assert await answers(fake, silent, 0) == []


async def test_a_webhook_can_come_before_the_create_is_answered(
    fake: Running, receiver: Receiver
) -> None:
    plan = {"before_answer": True, "times": 2, "fields": {"status": "COMPLETED"}}
    script = {"create": {"gate": "answer"}, "job": {"queue_s": "forever"}, "webhook": plan}
    create = asyncio.create_task(fake.create(input={"fake": script}, webhook=receiver.url))
    early = await receiver.body()
    assert (early["status"], create.done()) == ("COMPLETED", False)
    await fake.control("POST", "gates/answer/open")
    job_id = await create
    assert early["id"] == job_id
    await fake.control("POST", f"jobs/{job_id}/end")
    assert (await receiver.body())["id"] == job_id
    assert await answers(fake, job_id, 2) == [200, 200]


async def test_a_job_can_stay_silent(fake: Running, receiver: Receiver) -> None:
    silent = await fake.create(
        input={"fake": {"job": NOW, "webhook": {"send": False}}}, webhook=receiver.url
    )
    heard = await fake.create(
        input={"fake": {"job": NOW, "webhook": {"times": 3}}}, webhook=receiver.url
    )
    assert await answers(fake, heard, 3) == [200, 200, 200]
    assert {(await receiver.body())["id"] for _ in range(3)} == {heard}
    assert await answers(fake, silent, 0) == []


async def test_what_is_deleted_by_its_ttl_tells_nobody(fake: Running, receiver: Receiver) -> None:
    body = {
        "input": {"fake": {"job": {"queue_s": 0, "run_s": "forever"}}},
        "webhook": receiver.url,
        "policy": {"ttl": 1},
    }
    deleted = (await fake.http.post("/v2/demo/run", json=body)).json()["id"]

    async def gone() -> bool:
        return bool((await fake.control("GET", f"jobs/{deleted}"))["gone"])

    await until(gone)
    heard = await fake.scripted(webhook=receiver.url, job=NOW)
    await answers(fake, heard, 1)
    assert (await receiver.body())["id"] == heard
    assert await answers(fake, deleted, 0) == []


async def test_forged_wrong_and_huge_bodies(fake: Running, receiver: Receiver) -> None:
    job_id = await fake.scripted(job=NOW)
    await fake.create(input={"fake": {"job": {"queue_s": "forever"}}}, webhook=f"{receiver.url}/b")
    listed = (await fake.control("GET", "jobs"))["jobs"]

    async def sent(**plan: object) -> Call:
        target = {"url": f"{receiver.url}/a"} if "as_job" not in plan else {}
        done = await fake.control("POST", f"jobs/{job_id}/webhook", target | plan)
        assert done == {"answers": [200]}
        return await receiver.taken.get()

    assert (await sent(body="not json")).body == b"not json"
    assert (await sent(body={"id": "{job_id}"})).body == f'{{"id": "{job_id}"}}'.encode()
    assert b'"id"' not in (await sent(drop=["id", "input"])).body
    assert b'"status":"FAILED"' in (await sent(fields={"status": "FAILED"})).body
    assert len((await sent(pad_bytes=20_000_000)).body) > 20_000_000
    foreign = await sent(as_job=listed[1]["id"])
    assert foreign.path.endswith("/b")
    assert job_id.encode() in foreign.body
    # None of these count as the job's own deliveries.
    assert await answers(fake, job_id, 0) == []
    assert {entry["extra"] for entry in await fake.entries("webhook-delivery")} == {True}


async def test_a_delivery_to_nobody_is_a_miss(fake: Running) -> None:
    job_id = await fake.scripted(job=NOW)
    for plan in ({}, {"as_job": "nobody"}, {"url": "ftp://x"}, {"url": "http://[oops"}):
        done = await fake.control("POST", f"jobs/{job_id}/webhook", plan)
        assert done == {"answers": [None]}


async def test_every_way_to_get_no_answer_is_the_same() -> None:
    async def handler(call: Call) -> Answer:
        if call.path == "/hang":
            await asyncio.Event().wait()
        return Answer(200, cut=Cut(CutStyle(call.path[1:])))

    server = HttpServer(handler)
    port = server.bind("127.0.0.1", 0)
    await server.start()
    for path in ("close", "reset"):
        assert await post_json(f"http://127.0.0.1:{port}/{path}", b"{}", 30) is None
    assert await post_json(f"http://127.0.0.1:{port}/hang", b"{}", 0.05) is None
    await server.stop()
    assert await post_json(f"http://127.0.0.1:{port}/", b"{}", 30) is None
    assert await post_json("http:///x", b"{}", 30) is None


async def test_a_receiver_that_does_not_speak_http_is_a_miss() -> None:
    ended = asyncio.Event()

    async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-nothing\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(garble, "127.0.0.1", 0, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]
    assert await post_json(f"http://127.0.0.1:{port}/", b"{}", 30) is None
    await ended.wait()
    server.close()


@pytest.mark.parametrize("unanswered", [[], [500]])
async def test_rounds_go_on_after_a_restart(
    start: Start, receiver: Receiver, unanswered: list[int]
) -> None:
    first = await start()
    receiver.statuses = list(unanswered)
    job_id = await first.scripted(webhook=receiver.url, job={"queue_s": "forever"})
    if unanswered:
        await first.control("POST", f"jobs/{job_id}/end")
        assert await answers(first, job_id, 1) == [500]
    copy = first.settings.journal.with_name("copy")
    copy.write_bytes(first.settings.journal.read_bytes())
    second = await start(journal=copy, time_scale=1e3)
    if not unanswered:
        await second.control("POST", f"jobs/{job_id}/end")
    found = await answers(second, job_id, len(unanswered) + 1)
    assert found == [*unanswered, 200]
