"""Deliveries to the webhook room, on a real database."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prometheus_client import Counter
from structlog.typing import EventDict

from services.webhook.app import WebhookApp
from shared.domain.stages import Stage
from shared.domain.webhook_token import WebhookKeys, mint
from shared.kit import telemetry
from shared.store.pool import Database, open_database
from shared.store.transitions import submission
from tests.store.rows import accepted, claimed, landed, now, placed, requested, unknown
from tests.system.postgres_gate import PostgresGate

KEYS = WebhookKeys.parse("k1:0123456789abcdef0123456789abcdef")
FLOOR = timedelta(seconds=2)
TABLES = ("callback_evidence", "orphan_callbacks", "submission_claims", "job_transitions", "outbox")


def provider_calls(database: Database, floor: timedelta = FLOOR) -> httpx.AsyncClient:
    """A provider with a line to the room."""
    transport = httpx.ASGITransport(WebhookApp(database, KEYS, floor=floor))
    return httpx.AsyncClient(transport=transport, base_url="http://webhook")


def path_of(job_id: UUID, claim: UUID, provider: str = "runpod") -> str:
    """The path that a provider was given."""
    return f"/webhooks/{provider}/{mint(KEYS, provider, job_id, claim)}"


def naming(provider_job_id: str) -> bytes:
    """A callback's body with an id in it, and much that must not be believed."""
    body = {"id": provider_job_id, "status": "COMPLETED", "owner": "x", "output": {"id": "other"}}
    return json.dumps(body).encode()


async def contents(database: Database) -> dict[str, list[Any]]:
    """All that a delivery could write to, whole."""
    async with database.connection() as connection:
        tables = {name: await connection.fetch(f"SELECT * FROM {name}") for name in TABLES}
        tables["jobs"] = await connection.fetch("SELECT * FROM jobs ORDER BY id")
    return {name: [dict(row) for row in rows] for name, rows in tables.items()}


def counted(counter: Counter, **labels: str) -> float:
    """The value of a counter now."""
    (metric,) = counter.collect()
    found = [
        sample.value
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels == labels
    ]
    return sum(found)


def errors_in(log_lines: list[EventDict]) -> list[str]:
    """What was logged as an error, in order."""
    return [line["event"] for line in log_lines if line["log_level"] == "error"]


def assert_answered(answer: httpx.Response) -> None:
    """An authentic delivery's answer."""
    assert (answer.status_code, answer.json()) == (200, {})


async def test_an_authentic_delivery_is_kept_and_makes_the_check_due(database: Database) -> None:
    job, claim = await unknown(database)
    named = naming("abc-u1")
    answer = await provider_calls(database).post(path_of(job.id, claim.token), content=named)
    assert_answered(answer)
    (evidence,) = (await contents(database))["callback_evidence"]
    assert evidence["job_id"] == job.id
    assert evidence["claim_token"] == claim.token
    assert evidence["provider_job_id"] == "abc-u1"
    assert evidence["examined_at"] is None
    row = await now(database, job)
    assert row.stage is Stage.unknown
    assert row.next_check_at is not None


async def test_the_same_again_changes_nothing_but_at_most_the_time_of_a_check(
    database: Database,
) -> None:
    job, claim = await unknown(database)
    http, path = provider_calls(database, timedelta(hours=1)), path_of(job.id, claim.token)
    await http.post(path, content=naming("abc-u1"))
    before = await contents(database)
    recorded = counted(telemetry.webhooks, provider="runpod", result="recorded")
    answers = await asyncio.gather(*(http.post(path, content=naming("abc-u1")) for _ in range(100)))
    for answer in answers:
        assert_answered(answer)
    after = await contents(database)
    for job_row in (*before["jobs"], *after["jobs"]):
        job_row.pop("hastened_at")
    assert after == before
    assert recorded == counted(telemetry.webhooks, provider="runpod", result="recorded")


async def test_a_body_may_be_anything(database: Database) -> None:
    bodies = [
        *(b"", b"{}", b"[]", b"null", b"7", b'"id"', b"not json", b"\xff\xfe", b"[" * 100_000),
        *(b'{"id":7}', b'{"id":null}', b'{"id":""}', b'{"id":"a/b"}', b'{"id":"' + b"x" * 9000),
        *(b'{"id":"a","id":"b"}', b'{"output":{"id":"inner"}}', b'{"id":"\\u0000"}'),
        b'{"id":NaN}',
    ]
    http = provider_calls(database)
    for body in bodies:
        job, claim = await unknown(database)
        assert_answered(await http.post(path_of(job.id, claim.token), content=body))
    evidence = (await contents(database))["callback_evidence"]
    assert [row["provider_job_id"] for row in evidence] == [None] * len(bodies)


async def test_a_job_that_has_ended_is_answered_and_left_alone(database: Database) -> None:
    for stage in (Stage.succeeded, Stage.failed):
        job = (await placed(database, stage)).job
        assert job.claim_token is not None
        assert job.provider_job_id is not None
        answer = await provider_calls(database).post(
            path_of(job.id, job.claim_token), content=naming(job.provider_job_id)
        )
        assert_answered(answer)
        assert (await now(database, job)).public_version == job.public_version


async def test_a_job_that_is_not_there_leaves_an_orphan_and_an_alarm(
    database: Database, log_lines: list[EventDict]
) -> None:
    job_id, claim = uuid4(), uuid4()
    before = counted(telemetry.orphan_callbacks)
    answer = await provider_calls(database).post(path_of(job_id, claim), content=naming("abc-u1"))
    assert_answered(answer)
    (orphan,) = (await contents(database))["orphan_callbacks"]
    assert (orphan["job_id"], orphan["claim_token"]) == (job_id, claim)
    assert orphan["provider_job_id"] == "abc-u1"
    assert counted(telemetry.orphan_callbacks) == before + 1
    assert errors_in(log_lines) == ["orphan_callback"]


async def test_a_second_id_for_a_job_raises_the_alarm_once(
    database: Database, log_lines: list[EventDict]
) -> None:
    job = await accepted(database, "first-u1")
    assert job.claim_token is not None
    before = counted(telemetry.paid_twice_suspected)
    path = path_of(job.id, job.claim_token)
    for _ in range(3):
        assert_answered(await provider_calls(database).post(path, content=naming("second-u1")))
    assert counted(telemetry.paid_twice_suspected) == before + 1
    assert errors_in(log_lines) == ["paid_twice_suspected"]
    assert (await now(database, job)).provider_job_id == "first-u1"


async def test_a_refusal_that_made_a_job_raises_the_alarm_and_holds_the_row(
    database: Database, log_lines: list[EventDict]
) -> None:
    claim = await claimed(database)
    job = landed(
        await submission.submission_released(
            database, claim, reason="throttled", again_after=timedelta(0)
        )
    )
    assert job.stage is Stage.unsubmitted
    before = counted(telemetry.refusal_contradicted)
    path = path_of(job.id, claim.token)
    assert_answered(await provider_calls(database).post(path, content=naming("abc-u1")))
    assert counted(telemetry.refusal_contradicted) == before + 1
    assert errors_in(log_lines) == ["refusal_contradicted"]
    row = await now(database, job)
    assert (row.stage, row.attention_reason) == (Stage.unknown, "release_contradicted")


async def test_a_token_that_is_wrong_gets_an_empty_404_before_the_body_is_read(
    database: Database,
) -> None:
    job, claim = await unknown(database)
    path = path_of(job.id, claim.token)
    token = path.rpartition("/")[2]
    before = await contents(database)
    wrong = [
        *(path[:-1], path + "A", path + "/", path + "%00", path.replace("runpod", "videorouter")),
        *("/webhooks/runpod/", "/webhooks/runpod", "/webhooks", "/", "/webhooks/runpod/%ff%fe"),
        *(f"/webhooks/%72unpod/{token}x", f"/v1/webhooks/runpod/{token}", f"/webhooks//{token}"),
        f"/webhooks/runpod/{token.replace('k1.', 'k2.')}",
        f"/webhooks/runpod/é{token}",
    ]

    async def never_read() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    answers = [await provider_calls(database).post(at, content=never_read()) for at in wrong]
    answers.append(await provider_calls(database).get(path))
    for answer in answers:
        assert (answer.status_code, answer.content) == (404, b"")
    assert len({str(sorted(answer.headers.items())) for answer in answers}) == 1
    assert await contents(database) == before


async def test_another_jobs_token_is_evidence_for_that_job_alone(database: Database) -> None:
    mine, _ = await unknown(database)
    other, claim = await unknown(database)
    await provider_calls(database).post(
        path_of(other.id, claim.token), content=naming(str(mine.id))
    )
    (evidence,) = (await contents(database))["callback_evidence"]
    assert evidence["job_id"] == other.id
    assert (await now(database, mine)).next_check_at is None


async def test_a_body_beyond_the_cap_is_answered_and_the_connection_closed(
    database: Database,
) -> None:
    job, claim = await unknown(database)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'{"id":"abc-u1","output":"'
        for _ in range(1000):
            sent += 1
            yield b"x" * 1_000_000

    answer = await provider_calls(database).post(path_of(job.id, claim.token), content=endless())
    assert_answered(answer)
    assert answer.headers["connection"] == "close"
    assert sent == 17  # 16 MiB and the piece that goes over them
    (evidence,) = (await contents(database))["callback_evidence"]
    assert evidence["provider_job_id"] == "abc-u1"


async def test_a_body_that_breaks_off_or_stalls_is_still_evidence(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.webhook.app.BODY_SECONDS_MAX", 0.0)
    for last in ({"type": "http.disconnect"}, None):
        job, claim = await unknown(database)
        begun = {"type": "http.request", "body": naming("abc-u1")[:30], "more_body": True}
        messages = iter([begun, last])

        async def receive(messages: Any = messages) -> Any:
            message = next(messages)
            if message is None:
                await asyncio.Event().wait()
            return message

        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        raw_path = path_of(job.id, claim.token).encode()
        scope = {"type": "http", "method": "POST", "raw_path": raw_path, "headers": []}
        await WebhookApp(database, KEYS, floor=FLOOR)(scope, receive, send)
        assert sent[0]["status"] == 200
        assert (await contents(database))["callback_evidence"][-1]["job_id"] == job.id


async def test_with_the_database_away_the_provider_is_asked_to_come_again(
    database: Database, database_url: str
) -> None:
    job = await requested(database)
    path = path_of(job.id, uuid4())
    before = counted(telemetry.webhooks, provider="runpod", result="unavailable")
    async with (
        PostgresGate(database_url).listening() as gate,
        open_database(gate.url, room="webhook", wait_seconds=5) as gated,
    ):
        gate.shut()
        answer = await provider_calls(gated).post(path, content=naming("abc-u1"))
        assert (answer.status_code, answer.content) == (503, b"")
        assert int(answer.headers["retry-after"]) > 0
        bad = await provider_calls(gated).post(path[:-1])
        assert bad.status_code == 404  # judged without the database
        gate.reopen()
        assert_answered(await provider_calls(gated).post(path, content=naming("abc-u1")))
    assert counted(telemetry.webhooks, provider="runpod", result="unavailable") == before + 1


async def test_an_error_that_nobody_expected_tells_nothing_and_logs_no_path(
    database: Database, monkeypatch: pytest.MonkeyPatch, log_lines: list[EventDict]
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("marzipan")

    monkeypatch.setattr("services.webhook.app.record_delivery", broken)
    path = path_of(uuid4(), uuid4())
    answer = await provider_calls(database).post(path)
    assert (answer.status_code, answer.content) == (500, b"")
    assert errors_in(log_lines) == ["request_failed"]
    assert path not in str(log_lines)
