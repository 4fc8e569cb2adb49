"""Who is claimed, when and how many: both mouths, slots, caps, commits that are not clear."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from shared.domain.errors import Unavailable
from shared.domain.hints import Hint
from shared.domain.job import Job
from shared.domain.stages import Stage
from shared.kit.http import boottime_seconds
from shared.store.pool import Database, open_database
from shared.store.queries import claims_of
from shared.store.transitions.admission import cancel_requested
from tests.store import rows
from tests.system.postgres_gate import PostgresGate
from tests.system.submitter.bench import Bench, Provider, aged, bench, endpoint, pulse


def hint(job: Job) -> Hint:
    """A hint about this job."""
    return Hint(job_id=job.id, reason="job_requested", version=1)


async def in_stage(database: Database, stage: Stage) -> int:
    """How many jobs stand there."""
    async with database.connection() as connection:
        count: int = await connection.fetchval(
            "SELECT count(*) FROM jobs WHERE stage = $1", stage.value
        )
    return count


async def test_a_hint_returns_after_the_claim_and_not_after_the_call(
    submitter: Bench, provider: Provider
) -> None:
    await provider.script(create={"gate": "answer"})
    other, named = [await rows.requested(submitter.database) for _ in range(2)]
    await submitter.claimer.take_hint(hint(named))
    assert (await rows.now(submitter.database, named)).stage is Stage.submitting
    assert (await rows.now(submitter.database, other)).stage is Stage.unsubmitted
    await provider.control("POST", "gates/answer/open")
    await submitter.landed()
    assert (await rows.now(submitter.database, named)).stage is Stage.accepted


async def test_hints_about_nothing_to_buy_do_nothing(submitter: Bench, provider: Provider) -> None:
    database = submitter.database
    cancelled = await rows.requested(database)
    await cancel_requested(database, cancelled.id, rows.OWNER)
    bought = await submitter.bought(await rows.requested(database))
    await submitter.claimer.take_hint(Hint(job_id=uuid4(), reason="x", version=0))
    for job in (cancelled, bought):
        await submitter.claimer.take_hint(hint(job))
    await submitter.landed()
    assert len(await provider.creates()) == 1


async def test_a_job_hinted_and_swept_by_two_submitters_is_bought_once(
    database: Database, provider: Provider
) -> None:
    jobs = [await rows.requested(database) for _ in range(8)]
    both = [bench(database, f"{provider.url}/v2") for _ in range(2)]
    await asyncio.gather(
        *(parts.claimer.take_hint(hint(job)) for job in jobs for parts in both),
        *(parts.sweep() for parts in both),
    )
    for parts in both:
        await parts.landed()
    tokens = {claim["token"] for job in jobs for claim in await claims_of(database, job.id)}
    assert len(tokens) == len(await provider.creates()) == 8


async def test_no_more_rows_are_claimed_than_calls_can_start(
    database: Database, provider: Provider
) -> None:
    parts = bench(database, f"{provider.url}/v2", most_calls=3)
    await provider.script(create={"gate": "answer"})
    jobs = [await rows.requested(database) for _ in range(5)]
    assert not await parts.sweep()
    await provider.held("answer", 3)
    assert await in_stage(database, Stage.submitting) == 3
    left = [job for job in jobs if (await rows.now(database, job)).stage is Stage.unsubmitted]
    await parts.claimer.take_hint(hint(left[0]))
    assert not await parts.sweep()
    assert await in_stage(database, Stage.submitting) == 3
    assert not parts.slots.freed.is_set()
    await provider.control("POST", "gates/answer/open")
    await parts.slots.freed.wait()
    await parts.landed()
    await parts.sweep()
    await parts.landed()
    assert await in_stage(database, Stage.accepted) == 5


async def test_a_sweep_that_filled_every_slot_is_woken_by_the_first_one_back(
    database: Database, provider: Provider
) -> None:
    parts = bench(database, f"{provider.url}/v2", most_calls=2)
    for _ in range(3):
        await rows.requested(database)
    await parts.sweep()
    await parts.slots.freed.wait()
    await parts.landed()
    assert await in_stage(database, Stage.unsubmitted) == 1


async def test_a_hint_that_found_no_slot_wakes_the_sweep_once_there_is_one(
    submitter: Bench,
) -> None:
    """The slots are held by a claim under way, which then finds nothing to claim."""
    job = await rows.requested(submitter.database)
    assert submitter.slots.take(16) == 16
    await submitter.claimer.take_hint(hint(job))
    submitter.slots.give_back(16)
    assert submitter.slots.freed.is_set()
    assert (await submitter.bought(job)).stage is Stage.accepted


async def test_a_sweep_that_could_start_more_says_so(submitter: Bench) -> None:
    await rows.requested(submitter.database)
    assert await submitter.sweep()
    await submitter.landed()
    assert not await submitter.sweep()


async def test_the_endpoints_cap_holds(database: Database, provider: Provider) -> None:
    parts = bench(database, f"{provider.url}/v2", specs=(endpoint(max_in_flight=2),))
    for _ in range(4):
        await rows.requested(database)
    for _ in range(2):
        await parts.sweep()
        await parts.landed()
    assert len(await provider.creates()) == 2


async def test_nothing_is_claimed_once_a_stop_was_asked_for(
    submitter: Bench, provider: Provider
) -> None:
    job = await rows.requested(submitter.database)
    submitter.stopping.set()
    await submitter.sweep()
    await submitter.claimer.take_hint(hint(job))
    assert (await rows.now(submitter.database, job)).stage is Stage.unsubmitted


async def test_a_claim_whose_commit_is_not_clear_never_leads_to_a_call(
    database: Database, database_url: str, provider: Provider
) -> None:
    job = await rows.requested(database)
    async with (
        PostgresGate(database_url).listening() as gate,
        open_database(gate.url, room="submitter", wait_seconds=0) as through,
    ):
        parts = bench(through, f"{provider.url}/v2")
        gate.lose_next_commit()
        await parts.claimer.take_hint(hint(job))
        assert parts.slots.all_back.is_set()
    now = await rows.now(database, job)
    assert now.stage is Stage.submitting, "the server did commit it"
    assert await provider.creates() == []
    await aged(database, now)
    await bench(database, f"{provider.url}/v2").housekeeping.expire_claims(pulse())
    assert (await rows.now(database, job)).stage is Stage.unknown
    assert await provider.creates() == []


async def test_a_server_that_is_away_is_told_to_the_mouths(
    database_url: str, provider: Provider
) -> None:
    async with (
        PostgresGate(database_url).listening() as gate,
        open_database(gate.url, room="submitter", wait_seconds=0) as through,
    ):
        parts = bench(through, f"{provider.url}/v2")
        job = await rows.requested(through)
        gate.shut()
        with pytest.raises(Unavailable):
            await parts.sweep()
        with pytest.raises(Unavailable):
            await parts.claimer.take_hint(hint(job))
        assert parts.slots.free == 16
        gate.reopen()
        assert (await parts.bought(job)).stage is Stage.accepted


async def test_a_claim_that_took_too_long_is_given_back_uncalled(
    submitter: Bench, provider: Provider
) -> None:
    """The last moment counts from BEGIN of the claim, whatever came in between."""
    claim = await rows.claimed(submitter.database)
    late = replace(claim, begun_at_boottime=boottime_seconds() - 9.6)
    (route,) = submitter.claimer._routes
    assert submitter.slots.take(1) == 1
    submitter.flight.start(late, route)
    await submitter.landed()
    (ended,) = await claims_of(submitter.database, claim.job.id)
    assert (ended["outcome"], ended["reason"]) == ("released", "claim_too_old")
    assert await provider.creates() == []
    assert submitter.watch.told == []


async def test_the_timer_is_off_once_the_first_byte_left(
    submitter: Bench, provider: Provider
) -> None:
    await provider.script(create={"gate": "answer"})
    await rows.requested(submitter.database)
    await submitter.sweep()
    (deadline,) = submitter.watch.armed.values()
    assert 9 < deadline - boottime_seconds() <= 10
    await provider.held("answer")
    assert submitter.watch.told == ["armed", "disarmed"]
    await provider.control("POST", "gates/answer/open")
    await submitter.landed()
