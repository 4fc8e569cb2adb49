"""From a posted job to served bytes, and what becomes of doubles, cuts and bad requests."""

import hashlib
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.system.path.stack import Stack, is_alive, wait_for

CUT = {"create": {"cut": "after_create"}, "webhook": {"send": False}}


async def rows(stack: Stack, statement: str, *values: Any) -> list[Any]:
    """What an audit reads in the database."""
    connection = await asyncpg.connect(stack.facts["database_url"])
    try:
        return list(await connection.fetch(statement, *values))
    finally:
        await connection.close()


def served_digest(stack: Stack, provider_job_id: str) -> str:
    """The digest of what the provider's link serves, by the provider's own word."""
    one = stack.client.get(f"{stack.fake_url}/control/jobs/{provider_job_id}").json()
    return str(one["result"]["sha256"])


async def test_a_job_ends_as_bytes_at_the_public_url(stack: Stack) -> None:
    answer = stack.post(f"path-{uuid4()}", metadata={"shot": 7})
    assert answer.status_code == 202
    job = stack.settled(answer.json()["id"])
    assert (job["status"], job["metadata"]) == ("succeeded", {"shot": 7})
    (artifact,) = job["result"]["artifacts"]
    assert artifact["media_type"] == "video/mp4"
    whole = stack.get(artifact["href"])
    digest = hashlib.sha256(whole.content).hexdigest()
    (row,) = await rows(stack, "SELECT provider_job_id FROM jobs WHERE id = $1", job["id"])
    assert digest == artifact["sha256"] == served_digest(stack, row["provider_job_id"])
    part = stack.get(artifact["href"], Range="bytes=100-199")
    assert part.status_code == 206
    assert part.content == whole.content[100:200]
    bare = stack.client.get(f"{stack.facts['gateway_url']}{artifact['href']}")
    assert bare.status_code == 401


async def test_the_same_jobs_posted_twice_are_paid_once(stack: Stack) -> None:
    keys = [f"twice-{uuid4()}" for _ in range(200)]
    first = stack.post_many(keys)
    second = stack.post_many(keys)
    assert first == second
    assert len(set(first)) == 200
    for job_id in first:
        assert stack.settled(job_id)["status"] == "succeeded"
    (count,) = await rows(stack, "SELECT count(*) FROM jobs WHERE idempotency_key LIKE 'twice-%'")
    assert count["count"] == 200
    creates = {p: n for p, n in stack.creates_by_prompt().items() if "twice-" in p}
    assert len(creates) == 200
    assert set(creates.values()) == {1}


async def test_fifty_equal_posts_at_once_make_one_row(stack: Stack) -> None:
    key = f"equal-{uuid4()}"
    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(lambda _: stack.post(key), range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    replayed = [a for a in answers if a.headers.get("Idempotent-Replayed") == "true"]
    assert len(replayed) == 49
    (count,) = await rows(stack, "SELECT count(*) FROM jobs WHERE idempotency_key = $1", key)
    assert count["count"] == 1


async def test_a_create_cut_after_the_request_is_unknown_and_stays_so(stack: Stack) -> None:
    answer = stack.post(f"cut-{uuid4()}", CUT)
    job = stack.settled(answer.json()["id"])
    assert job["status"] == "unknown"
    assert job["attention"]["reason"] == "submission_outcome_unknown"
    # A later job runs through meanwhile: sweeps have passed the unknown row over.
    other = stack.post(f"after-{uuid4()}").json()["id"]
    assert stack.settled(other)["status"] == "succeeded"
    assert stack.job(job["id"])["status"] == "unknown"
    prompts = [p for p in stack.creates_by_prompt() if p.startswith("a lake, cut-")]
    assert all(stack.creates_by_prompt()[p] == 1 for p in prompts)
    transitions = await rows(
        stack, "SELECT event FROM job_transitions WHERE job_id = $1 ORDER BY seq", job["id"]
    )
    assert [t["event"] for t in transitions].count("submission_claimed") == 1


async def test_a_cut_create_heals_by_its_webhook(stack: Stack) -> None:
    script = {"create": {"cut": "after_create"}, "webhook": {"send": True}}
    key = f"heals-{uuid4()}"
    answer = stack.post(key, script)
    job = stack.status_until(answer.json()["id"], "succeeded")
    assert stack.creates_by_prompt()[f"a lake, {key}"] == 1
    events = [
        row["event"]
        for row in await rows(
            stack, "SELECT event FROM job_transitions WHERE job_id = $1 ORDER BY seq", job["id"]
        )
    ]
    assert "submission_adopted" in events
    assert events.count("submission_claimed") == 1
    (row,) = await rows(stack, "SELECT provider_job_id FROM jobs WHERE id = $1", job["id"])
    asked = [e for e in stack.journal("status") if e["job_id"] == row["provider_job_id"]]
    assert asked, "the provider must be asked before an adoption"


async def test_an_unsubmitted_job_is_cancelled_without_a_call(stack: Stack) -> None:
    assert stack.command("stop", "submitter").returncode == 0
    try:
        key = f"cancel-{uuid4()}"
        job_id = stack.post(key).json()["id"]
        url = f"{stack.facts['gateway_url']}/v1/jobs/{job_id}/cancel"
        answer = stack.client.post(url, headers=stack.authorization)
        assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")
        again = stack.client.post(url, headers=stack.authorization)
        assert (again.status_code, again.json()["code"]) == (409, "already_terminal")
    finally:
        assert stack.command("start", "submitter").returncode == 0
    other = stack.post(f"after-{uuid4()}").json()["id"]
    assert stack.settled(other)["status"] == "succeeded"
    assert f"a lake, {key}" not in stack.creates_by_prompt()


GOOD = {"endpoint": "demo-video", "input": {"prompt": "a lake"}}
BAD_REQUESTS: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "malformed": (b'{"endpoint": ', {}, 400, "invalid_json"),
    "unknown endpoint": (
        json.dumps({**GOOD, "endpoint": "none"}).encode(),
        {},
        422,
        "unknown_endpoint",
    ),
    "against the schema": (
        json.dumps({**GOOD, "input": {"prompt": 5}}).encode(),
        {},
        422,
        "invalid_input",
    ),
    "no key": (
        json.dumps(GOOD).encode(),
        {"Idempotency-Key": ""},
        400,
        "idempotency_key_required",
    ),
    "wrong bearer": (
        json.dumps(GOOD).encode(),
        {"Authorization": "Bearer cck_wrong"},
        401,
        "unauthorized",
    ),
    "too large": (
        json.dumps({**GOOD, "input": {"prompt": "x" * 10_000_001}}).encode(),
        {},
        413,
        "payload_too_large",
    ),
    "no media type": (json.dumps(GOOD).encode(), {"Content-Type": "text/plain"}, 415, ""),
}


@pytest.mark.parametrize("name", list(BAD_REQUESTS))
async def test_a_bad_request_is_a_problem_document_and_no_row(stack: Stack, name: str) -> None:
    body, headers, status, code = BAD_REQUESTS[name]
    (before,) = await rows(stack, "SELECT count(*) FROM jobs")
    sent = {
        "Content-Type": "application/json",
        "Idempotency-Key": f"bad-{uuid4()}",
        **stack.authorization,
        **headers,
    }
    sent = {key: value for key, value in sent.items() if value}
    answer = stack.client.post(f"{stack.facts['gateway_url']}/v1/jobs", content=body, headers=sent)
    assert answer.status_code == status
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    problem = answer.json()
    assert problem["status"] == status
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    if code and status != 401:
        assert problem["code"] == code
    if name == "against the schema":
        assert problem["errors"][0]["pointer"]
    if status == 401:
        assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="coatcheck"')
    (after,) = await rows(stack, "SELECT count(*) FROM jobs")
    assert before["count"] == after["count"]


async def test_without_kafka_sweeps_carry_the_job_and_hints_resume(stack: Stack) -> None:
    pid = stack.facts["pids"]["kafka"]
    host, port = stack.facts["kafka_bootstrap_servers"].split(":")
    assert stack.command("stop", "kafka").returncode == 0
    try:
        assert not is_alive(pid)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)
        job_id = stack.post(f"no-kafka-{uuid4()}").json()["id"]
        assert stack.settled(job_id)["status"] == "succeeded"
    finally:
        assert stack.command("start", "kafka").returncode == 0
    published = stack.metric("relay", "coatcheck_relay_published_total")

    def hints_flow() -> bool | None:
        stack.post(f"hint-{uuid4()}")
        return stack.metric("relay", "coatcheck_relay_published_total") > published or None

    wait_for(hints_flow, "hints to flow again")
    wait_for(
        lambda: stack.metric("relay", "coatcheck_outbox_pending") < 5 or None,
        "the outbox to drain",
    )
