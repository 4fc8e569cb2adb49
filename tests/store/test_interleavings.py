"""Pairs of events that meet on one row, in two real sessions; and each without its guard.

Every scenario states what must come out. `GUARDS` names the statement that makes it so and what
the statement looks like with the guard taken out: the scenario must then fail.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType

import asyncpg
import pytest

from shared.domain.stages import Stage
from shared.store.pool import Database, open_database
from shared.store.transitions import admission, capture, checks, submission
from shared.store.transitions.record import FenceLost, Landed
from tests.store import rows
from tests.store.rows import HOUR, NOW
from tests.store.sessions import PausingDatabase, Sessions

Scenario = Callable[[Sessions], Awaitable[None]]


@pytest.fixture
async def sessions(database_url: str, database: Database) -> AsyncIterator[Sessions]:
    async with (
        open_database(database_url, room="first", wait_seconds=5) as first,
        open_database(database_url, room="second", wait_seconds=5) as second,
    ):
        yield Sessions(PausingDatabase(first._pool, "first"), second, database)


async def claim_claim(s: Sessions) -> None:
    # The slot row is there already; making it would serialise the two by accident.
    await submission.submission_claimed(s.observer, rows.terms(), batch=1)
    await rows.requested(s.observer)
    await rows.requested(s.observer)
    cap_of_one = rows.terms(max_in_flight=1)
    ours, theirs, waited = await s.interleaved(
        submission.submission_claimed(s.first, cap_of_one, batch=16),
        submission.submission_claimed(s.second, cap_of_one, batch=16),
    )
    assert waited
    assert (len(ours), len(theirs)) == (1, 0)


async def claim_then_cancel(s: Sessions) -> None:
    job = await rows.requested(s.observer)
    claims, landing, waited = await s.interleaved(
        submission.submission_claimed(s.first, rows.terms(), batch=1),
        admission.cancel_requested(s.second, job.id, rows.OWNER),
    )
    assert waited
    assert len(claims) == 1
    assert rows.landed(landing).stage is Stage.submitting
    assert rows.landed(landing).cancel_requested


async def cancel_then_claim(s: Sessions) -> None:
    job = await rows.requested(s.observer)
    landing, claims, waited = await s.interleaved(
        admission.cancel_requested(s.first, job.id, rows.OWNER),
        submission.submission_claimed(s.second, rows.terms(), batch=1, job_ids=[job.id]),
    )
    assert not waited  # the claim steps over a locked row
    assert claims == []
    assert rows.landed(landing).stage is Stage.cancelled


async def expire_then_accept(s: Sessions) -> None:
    claim = await rows.claimed(s.observer)
    handle = rows.handle()
    expired, landing, waited = await s.interleaved(
        submission.submission_claims_expired(s.first, claim_life=NOW, batch=10),
        submission.submission_accepted(s.second, claim, handle, first_check=NOW),
    )
    assert waited
    assert [job.id for job in expired] == [claim.job.id]
    assert landing == FenceLost(Stage.unknown)
    async with s.observer.connection() as connection:
        kept = await connection.fetchval("SELECT provider_job_id FROM callback_evidence")
    assert kept == handle.provider_job_id


async def accept_then_expire(s: Sessions) -> None:
    claim = await rows.claimed(s.observer)
    landing, expired, waited = await s.interleaved(
        submission.submission_accepted(s.first, claim, rows.handle(), first_check=NOW),
        submission.submission_claims_expired(s.second, claim_life=NOW, batch=10),
    )
    assert not waited  # the sweep steps over a locked row
    assert expired == []
    assert rows.landed(landing).stage is Stage.accepted


async def cancel_then_release(s: Sessions) -> None:
    claim = await rows.claimed(s.observer)
    landing, released, waited = await s.interleaved(
        admission.cancel_requested(s.first, claim.job.id, rows.OWNER),
        submission.submission_released(s.second, claim, reason="unsent", again_after=NOW),
    )
    assert waited
    assert rows.landed(landing).stage is Stage.submitting
    assert rows.landed(released).stage is Stage.cancelled


async def release_then_cancel(s: Sessions) -> None:
    claim = await rows.claimed(s.observer)
    released, landing, waited = await s.interleaved(
        submission.submission_released(s.first, claim, reason="unsent", again_after=NOW),
        admission.cancel_requested(s.second, claim.job.id, rows.OWNER),
    )
    assert waited
    assert rows.landed(released).stage is Stage.unsubmitted
    assert rows.landed(landing).stage is Stage.cancelled


async def lease_lease(s: Sessions) -> None:
    job = await rows.accepted(s.observer)
    ours, theirs, waited = await s.interleaved(
        checks.check_leased(s.first, holder="first", life=HOUR, batch=5),
        checks.check_leased(s.second, holder="second", life=HOUR, batch=5),
    )
    assert not waited  # leases step over locked rows
    assert ([j.id for j in ours], theirs) == ([job.id], [])
    again = await checks.check_leased(s.second, holder="second", life=HOUR, batch=5)
    assert again == []


async def lease_after_expiry(s: Sessions) -> None:
    stale = await rows.check_lease(s.observer, await rows.accepted(s.observer), life=NOW)
    fresh = await rows.check_lease(s.observer, stale)
    landing, lost, _waited = await s.interleaved(
        checks.check_rescheduled(s.first, fresh, delay=HOUR),
        checks.check_rescheduled(s.second, stale, delay=NOW),
    )
    assert isinstance(landing, Landed)
    assert lost == FenceLost(Stage.accepted)


async def publish_publish(s: Sessions) -> None:
    job = await rows.prepared(s.observer)
    landing, again, waited = await s.interleaved(
        rows.publish(s.first, job), rows.publish(s.second, job)
    )
    assert waited
    assert rows.landed(landing).stage is Stage.succeeded
    assert again == FenceLost(Stage.succeeded)


async def publish_by_a_stale_holder(s: Sessions) -> None:
    job = await rows.capturing(s.observer)
    stale = await rows.capture_lease(s.observer, job)
    rows.landed(await capture.capture_prepared(s.observer, stale, rows.artifact(stale)))
    # Its lease ends in the very moment in which somebody else takes the next one.
    await capture.capture_extended(s.observer, stale, life=NOW)
    leased, lost, _waited = await s.interleaved(
        capture.capture_leased(s.first, holder="first", life=HOUR, batch=1),
        rows.publish(s.second, stale),
    )
    assert lost == FenceLost(Stage.capturing)
    assert [j.id for j in leased] == [job.id]
    assert await unpublished(s.observer)


async def publish_after_the_lease(s: Sessions) -> None:
    job = await rows.capturing(s.observer)
    stale = await rows.capture_lease(s.observer, job)
    rows.landed(await capture.capture_prepared(s.observer, stale, rows.artifact(stale)))
    await capture.capture_extended(s.observer, stale, life=NOW)
    assert await rows.publish(s.second, stale) == FenceLost(Stage.capturing)
    assert await unpublished(s.observer)


async def unpublished(database: Database) -> bool:
    """Whether no artifact counts yet."""
    async with database.connection() as connection:
        stored = await connection.fetchval(
            "SELECT count(*) FROM job_artifacts WHERE stored_at IS NOT NULL"
        )
    return bool(stored == 0)


SCENARIOS: tuple[Scenario, ...] = (
    claim_claim,
    claim_then_cancel,
    cancel_then_claim,
    expire_then_accept,
    accept_then_expire,
    cancel_then_release,
    release_then_cancel,
    lease_lease,
    lease_after_expiry,
    publish_publish,
    publish_by_a_stale_holder,
    publish_after_the_lease,
)

_UNLOCKED_READ = "WHEN (SELECT stage FROM jobs WHERE id = $1) = 'unsubmitted'"
_SKIP = "FOR UPDATE SKIP LOCKED"
_ALIVE = "lease_token = $2 AND lease_expires_at > clock_timestamp()"
_FREE = "AND (lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp())"
_JOBS_FREE = "AND (jobs.lease_expires_at IS NULL OR jobs.lease_expires_at <= clock_timestamp())"

# scenario, module, constant, the replacements that take its guard out
GUARDS: tuple[tuple[Scenario, ModuleType, str, dict[str, str]], ...] = (
    (claim_claim, submission, "LOCK_SLOT_SQL", {"FOR UPDATE": ""}),
    (
        claim_then_cancel,
        admission,
        "CANCEL_SQL",
        {"WHEN stage = 'unsubmitted' AND": "WHEN"},
    ),
    (
        cancel_then_claim,
        submission,
        "CLAIM_SQL",
        {
            _SKIP: "",
            "AND NOT jobs.cancel_requested": "",
            "AND NOT cancel_requested": "",
            "AND jobs.stage = 'unsubmitted'": "",
        },
    ),
    (expire_then_accept, submission, "ACCEPT_SQL", {"stage = 'submitting' AND": ""}),
    (
        accept_then_expire,
        submission,
        "EXPIRE_SQL",
        {_SKIP: "FOR UPDATE"},
    ),
    (
        cancel_then_release,
        submission,
        "RELEASE_SQL",
        {"CASE WHEN cancel_requested THEN 'cancelled' ELSE 'unsubmitted' END": "'unsubmitted'"},
    ),
    (
        release_then_cancel,
        admission,
        "CANCEL_SQL",
        {"WHEN stage = 'unsubmitted'": _UNLOCKED_READ},
    ),
    (lease_lease, checks, "LEASE_CHECKS_SQL", {_FREE: "", _JOBS_FREE: ""}),
    (lease_after_expiry, checks, "RESCHEDULE_CHECK_SQL", {_ALIVE: "$2::uuid IS NOT NULL"}),
    (
        publish_publish,
        capture,
        "STORE_SQL",
        {"stage = 'capturing' AND": "", _ALIVE: "$2::uuid IS NOT NULL"},
    ),
    (publish_by_a_stale_holder, capture, "STORE_SQL", {_ALIVE: "$2::uuid IS NOT NULL"}),
    (
        publish_after_the_lease,
        capture,
        "STORE_SQL",
        {"AND lease_expires_at > clock_timestamp()": ""},
    ),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
async def test_two_sessions(sessions: Sessions, scenario: Scenario) -> None:
    await scenario(sessions)


@pytest.mark.parametrize(
    ("scenario", "module", "name", "changes"), GUARDS, ids=[g[0].__name__ for g in GUARDS]
)
async def test_a_scenario_fails_without_its_guard(
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
    scenario: Scenario,
    module: ModuleType,
    name: str,
    changes: dict[str, str],
) -> None:
    text: str = getattr(module, name)
    for old, new in changes.items():
        assert old in text, f"{name} does not hold {old!r}"
        text = text.replace(old, new)
    monkeypatch.setattr(module, name, text)
    with pytest.raises((AssertionError, asyncpg.PostgresError)):
        await scenario(sessions)


def test_every_scenario_has_a_guard_to_take_out() -> None:
    assert {guard[0] for guard in GUARDS} == set(SCENARIOS)
