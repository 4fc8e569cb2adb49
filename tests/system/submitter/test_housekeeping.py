"""What the sweeps end: old claims, old jobs, cancels that had to wait."""

from shared.domain.stages import Stage
from shared.store.pool import Database
from shared.store.queries import claims_of
from shared.store.transitions.admission import cancel_requested
from shared.store.transitions.evidence import evidence_noted
from tests.store import rows
from tests.system.submitter.bench import Bench, Provider, aged, bench, endpoint, pulse


async def test_a_claim_whose_holder_died_goes_to_unknown_and_stays_unbought(
    submitter: Bench, provider: Provider
) -> None:
    claim, young = [await rows.claimed(submitter.database) for _ in range(2)]
    await aged(submitter.database, claim.job)
    assert not await submitter.housekeeping.expire_claims(pulse())
    assert (await rows.now(submitter.database, claim.job)).stage is Stage.unknown
    assert (await rows.now(submitter.database, young.job)).stage is Stage.submitting
    (ended,) = await claims_of(submitter.database, claim.job.id)
    assert ended["outcome"] == "expired"
    assert (await submitter.bought(claim.job)).stage is Stage.unknown
    assert await provider.creates() == []


async def test_an_expired_claim_with_evidence_is_due_for_the_reconciler(submitter: Bench) -> None:
    claim = await rows.claimed(submitter.database)
    await evidence_noted(
        submitter.database, claim.job.id, claim.token, "runpod", "some-id", "webhook"
    )
    await aged(submitter.database, claim.job)
    await submitter.housekeeping.expire_claims(pulse())
    job = await rows.now(submitter.database, claim.job)
    assert job.stage is Stage.unknown
    assert job.next_check_at is not None


async def test_a_job_that_waited_too_long_fails_unpaid(
    submitter: Bench, provider: Provider
) -> None:
    old, young = [await rows.requested(submitter.database) for _ in range(2)]
    await aged(submitter.database, old)
    assert not await submitter.housekeeping.end_waiting(pulse())
    job = await rows.now(submitter.database, old)
    assert (job.stage, job.error_code) == (Stage.failed, "never_submitted")
    assert (await rows.now(submitter.database, young)).stage is Stage.unsubmitted
    assert await provider.creates() == []


async def test_a_waiting_job_of_a_vanished_endpoint_ends_too(
    database: Database, provider: Provider
) -> None:
    parts = bench(database, f"{provider.url}/v2", specs=(endpoint(name="another"),))
    job = await rows.requested(database)
    await aged(database, job)
    await parts.housekeeping.end_waiting(pulse())
    assert (await rows.now(database, job)).stage is Stage.failed


async def test_a_cancel_that_came_while_claims_were_stopped_is_honoured_later(
    submitter: Bench, provider: Provider
) -> None:
    database = submitter.database
    job = await rows.requested(database)
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO submission_witness (latched_at) VALUES (clock_timestamp())"
        )
    await cancel_requested(database, job.id, rows.OWNER)
    await submitter.housekeeping.end_waiting(pulse())
    assert (await rows.now(database, job)).stage is Stage.unsubmitted
    assert (await submitter.bought(await rows.requested(database))).stage is Stage.unsubmitted
    async with database.connection() as connection:
        await connection.execute("DELETE FROM submission_witness")
    await submitter.housekeeping.end_waiting(pulse())
    assert (await rows.now(database, job)).stage is Stage.cancelled
    assert await provider.creates() == []
