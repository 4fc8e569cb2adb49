"""What becomes of a claim, for everything that can happen to its one call."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from services.submitter.webhooks import WebhookAddresses
from shared.domain.provider import Accepted, Ambiguous, CreateOutcome, Exchange
from shared.domain.stages import Stage
from shared.domain.webhook_token import NamedClaim, WebhookKeys, verify
from shared.kit.telemetry import paid_calls_per_claim_max, submit_attempts
from shared.providers.runpod import RunpodAdapter
from shared.store.pool import Database
from shared.store.queries import claims_of
from shared.store.transitions.admission import cancel_requested
from tests.store import rows
from tests.system.submitter.bench import Bench, Provider, aged, bench, endpoint, made_due, pulse

KEYS = WebhookKeys.parse("k1:0123456789abcdef")


async def outcome_of(database: Database, job: Any) -> str | None:
    """The outcome of the job's last claim."""
    outcome: str | None = (await claims_of(database, job.id))[-1]["outcome"]
    return outcome


async def test_an_accepted_job_holds_the_handle_and_its_first_check(
    submitter: Bench, provider: Provider
) -> None:
    job = await submitter.bought(await rows.requested(submitter.database))
    (create,) = await provider.creates()
    assert (job.stage, job.provider_job_id) == (Stage.accepted, create["job_id"])
    assert job.provider_handle == {
        "base_url": f"{provider.url}/v2",
        "endpoint_id": "demo",
        "provider_job_id": create["job_id"],
    }
    assert job.accepted_at is not None
    assert job.next_check_at is not None
    distance = job.next_check_at - job.accepted_at
    assert timedelta(seconds=1.5) < distance < timedelta(seconds=2.5)
    assert await outcome_of(submitter.database, job) == "accepted"
    assert submitter.watch.told == ["armed", "disarmed"]


async def test_the_call_carries_input_limits_and_a_webhook_of_the_claim(
    database: Database, provider: Provider
) -> None:
    webhooks = WebhookAddresses("http://127.0.0.1:9", KEYS)
    parts = bench(database, f"{provider.url}/v2", webhooks=webhooks)
    await provider.script(webhook={"send": False})
    text = '{"prompt": "zwei Füchse", "n": 1.50, "deep": {"a": [null, true]}}'
    job = await parts.bought(await rows.requested(database, input_json=text))
    shown = await provider.control("GET", f"jobs/{job.provider_job_id}")
    assert shown["input"] == json.loads(text)
    start = "http://127.0.0.1:9/webhooks/runpod/"
    assert shown["webhook"].startswith(start)
    (claim,) = await claims_of(database, job.id)
    named = verify(KEYS, "runpod", shown["webhook"].removeprefix(start).encode())
    assert named == NamedClaim(job.id, claim["token"])
    (create,) = await provider.creates()
    record = create["record"]
    assert (record["execution_timeout_seconds"], record["ttl_seconds"]) == (600, 3600)


@pytest.mark.parametrize(
    ("create", "reason"),
    [
        ({"cut": "after_create"}, "no_answer"),
        ({"cut": "in_answer", "how": "close"}, "answer_cut"),
        ({"status": 502, "created": True, "body": "<html>"}, "http_502"),
        ({"body": {"status": "IN_QUEUE"}}, "no_usable_id"),
        ({"status": 429, "headers": {"Retry-After": "3"}}, "http_429"),
        ({"status": 401}, "http_401"),
    ],
)
async def test_a_doubtful_answer_makes_the_job_unknown_and_nobody_buys_it_again(
    submitter: Bench, provider: Provider, create: dict[str, Any], reason: str
) -> None:
    await provider.script(create=create, webhook={"send": False})
    before = submit_attempts.labels(provider="runpod", outcome="ambiguous")._value.get()
    job = await submitter.bought(await rows.requested(submitter.database))
    assert (job.stage, job.attention_reason) == (Stage.unknown, "submission_outcome_unknown")
    (claim,) = await claims_of(submitter.database, job.id)
    assert (claim["outcome"], claim["reason"]) == ("uncertain", reason)
    assert (await submitter.bought(job)).stage is Stage.unknown
    assert len(await provider.creates()) == 1
    after = submit_attempts.labels(provider="runpod", outcome="ambiguous")._value.get()
    assert after == before + 1
    assert paid_calls_per_claim_max._value.get() == 1


async def test_an_error_that_names_a_job_leaves_its_id_as_evidence(
    submitter: Bench, provider: Provider
) -> None:
    body = {"id": "{job_id}", "status": "FAILED"}
    await provider.script(create={"status": 400, "created": True, "body": body})
    job = await submitter.bought(await rows.requested(submitter.database))
    (create,) = await provider.creates()
    assert job.stage is Stage.unknown
    assert job.next_check_at is not None
    async with submitter.database.connection() as connection:
        kept = await connection.fetchval("SELECT provider_job_id FROM callback_evidence")
    assert kept == create["job_id"]


async def test_a_switched_on_refusal_is_released_for_as_long_as_it_asks(
    database: Database, provider: Provider
) -> None:
    parts = bench(database, f"{provider.url}/v2", switched_on=frozenset({"429"}))
    await provider.script(create={"status": 429, "headers": {"Retry-After": "100"}})
    job = await parts.bought(await rows.requested(database))
    assert job.stage is Stage.unsubmitted
    assert await outcome_of(database, job) == "released"
    assert job.next_check_at is not None
    rest = job.next_check_at - job.updated_at
    assert timedelta(seconds=99) < rest < timedelta(seconds=101)


async def test_a_refused_connection_releases_and_lets_the_endpoint_rest(
    database: Database,
) -> None:
    parts = bench(database, "http://127.0.0.1:9/v2")
    first = await rows.requested(database)
    job = await parts.bought(first)
    (claim,) = await claims_of(database, job.id)
    assert (job.stage, claim["reason"]) == (Stage.unsubmitted, "unsent_connect")
    assert parts.watch.told == ["armed", "disarmed"]
    second = await parts.bought(await rows.requested(database))
    assert (second.stage, await claims_of(database, second.id)) == (Stage.unsubmitted, [])


async def test_a_job_released_again_waits_longer(database: Database) -> None:
    waits = []
    job = await rows.requested(database)
    for _ in range(3):
        await made_due(database, job)
        job = await bench(database, "http://127.0.0.1:9/v2").bought(job)
        assert job.next_check_at is not None
        waits.append(round((job.next_check_at - job.updated_at).total_seconds()))
    assert waits == [2, 4, 8]


async def test_an_input_that_can_never_be_sent_is_refused(
    submitter: Bench, provider: Provider
) -> None:
    job = await submitter.bought(await rows.requested(submitter.database, input_json="{}"))
    assert (job.stage, job.error_code) == (Stage.failed, "provider_rejected")
    assert await provider.creates() == []


async def test_a_release_honours_a_cancel(submitter: Bench, provider: Provider) -> None:
    """The cancel comes while the claim is out; the release then ends the job."""
    await provider.script(create={"gate": "answer", "status": 429})
    submitter = bench(submitter.database, f"{provider.url}/v2", switched_on=frozenset({"429"}))
    job = await rows.requested(submitter.database)
    await submitter.sweep()
    await provider.held("answer")
    await cancel_requested(submitter.database, job.id, rows.OWNER)
    await provider.control("POST", "gates/answer/open")
    await submitter.landed()
    assert (await rows.now(submitter.database, job)).stage is Stage.cancelled


class BrokenAdapter(RunpodAdapter):
    """Fails where it promised not to."""

    def classify(self, exchange: Exchange, switched_on: frozenset[str]) -> Any:
        """Breaks after the call."""
        raise ZeroDivisionError


async def test_a_bug_after_the_call_began_makes_the_job_unknown(
    database: Database, provider: Provider
) -> None:
    parts = bench(database, f"{provider.url}/v2", adapter=BrokenAdapter())
    job = await parts.bought(await rows.requested(database))
    assert job.stage is Stage.unknown
    assert len(await provider.creates()) == 1


async def test_a_bug_before_the_call_gives_the_claim_back(
    database: Database, provider: Provider
) -> None:
    parts = bench(database, f"{provider.url}/v2", adapter=RunpodAdapter(name="other"))
    job = await parts.bought(await rows.requested(database))
    (claim,) = await claims_of(database, job.id)
    assert (job.stage, claim["reason"]) == (Stage.unsubmitted, "request_not_made")
    assert await provider.creates() == []


@dataclass(frozen=True)
class ClaimingAdapter(RunpodAdapter):
    """Reads one and the same outcome out of every answer."""

    outcome: CreateOutcome = field(default=Ambiguous("odd"))

    def classify(self, exchange: Exchange, switched_on: frozenset[str]) -> CreateOutcome:
        """The outcome."""
        return self.outcome


@pytest.mark.parametrize(
    "outcome",
    [Accepted("x" * 256), Accepted("\0"), Ambiguous("odd", "x" * 256), Ambiguous("odd", "\0")],
)
async def test_an_id_that_the_table_cannot_hold_ends_in_unknown(
    database: Database, provider: Provider, outcome: CreateOutcome
) -> None:
    parts = bench(database, f"{provider.url}/v2", adapter=ClaimingAdapter(outcome=outcome))
    job = await parts.bought(await rows.requested(database))
    assert job.stage is Stage.unknown
    (claim,) = await claims_of(database, job.id)
    assert claim["reason"] == "outcome_not_written"


async def test_an_outcome_that_cannot_be_written_at_all_is_left_to_the_expiry(
    submitter: Bench, provider: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    job = await rows.requested(submitter.database)
    async with submitter.database.connection() as connection:
        await connection.execute(
            """
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no'; END $$;
            CREATE TRIGGER refuse BEFORE UPDATE ON jobs
            FOR EACH ROW WHEN (new.stage <> 'submitting') EXECUTE FUNCTION refuse()
            """
        )
        assert (await submitter.bought(job)).stage is Stage.submitting
        assert "claim_left_to_expiry" in capsys.readouterr().out
        assert submitter.slots.free == 16
        await connection.execute("DROP TRIGGER refuse ON jobs")
    await aged(submitter.database, job)
    await submitter.housekeeping.expire_claims(pulse())
    assert (await rows.now(submitter.database, job)).stage is Stage.unknown
    assert len(await provider.creates()) == 1


async def test_an_id_of_another_row_makes_the_job_unknown_with_evidence(
    submitter: Bench, provider: Provider
) -> None:
    await provider.script(create={"body": {"id": "same-id"}}, webhook={"send": False})
    first = await submitter.bought(await rows.requested(submitter.database))
    second = await submitter.bought(await rows.requested(submitter.database))
    assert {first.stage, second.stage} == {Stage.accepted, Stage.unknown}


async def test_a_job_of_an_endpoint_that_left_the_registry_waits(
    database: Database, provider: Provider
) -> None:
    parts = bench(database, f"{provider.url}/v2", specs=(endpoint(name="another"),))
    job = await parts.bought(await rows.requested(database))
    assert job.stage is Stage.unsubmitted
