"""The archiver's events: order, heartbeat, prepared artifacts, all or nothing."""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from shared.domain.durations import TimeScale
from shared.domain.stages import ErrorCode, Stage
from shared.store.pool import Database
from shared.store.queries import least_slack, own_artifact, stored_artifacts
from shared.store.transitions import capture, checks
from shared.store.transitions.record import FenceLost
from tests.store import rows
from tests.store.rows import HOUR, NOW


async def test_the_earliest_deadline_is_copied_first(database: Database) -> None:
    late = await rows.capturing(database)
    leased = await rows.check_lease(database, await rows.accepted(database))
    early = rows.landed(
        await checks.completion_observed(
            database, leased, retention=timedelta(minutes=5), link_life=HOUR
        )
    )
    (first,) = await capture.capture_leased(database, holder="t", life=HOUR, batch=1)
    (second,) = await capture.capture_leased(database, holder="t", life=HOUR, batch=1)
    assert (first.id, second.id) == (early.id, late.id)


async def test_the_deadline_is_the_least_of_its_three_clocks(database: Database) -> None:
    leased = await rows.check_lease(database, await rows.accepted(database))
    assert leased.claimed_at is not None
    signed = leased.claimed_at + timedelta(seconds=90)
    job = rows.landed(
        await checks.completion_observed(
            database, leased, retention=HOUR, link_life=HOUR, link_expires_at=signed
        )
    )
    assert job.capture_deadline == signed
    slack = await least_slack(database, TimeScale())
    assert slack is not None
    assert slack[0] < timedelta(seconds=90)


async def test_a_result_is_published_whole(database: Database) -> None:
    leased = await rows.prepared(database)
    done = rows.landed(await rows.publish(database, leased))
    assert done.stage is Stage.succeeded
    assert done.settled_cost_usd == done.estimated_cost_usd
    (stored,) = await stored_artifacts(database, done.id)
    assert stored.key == rows.artifact(leased).key
    found = await own_artifact(database, done.id, "master", rows.OWNER)
    assert found == (stored, False)
    assert await own_artifact(database, done.id, "master", "owner-2") is None


async def test_a_missing_part_publishes_nothing(database: Database) -> None:
    leased = await rows.prepared(database)
    landing = await capture.result_stored(
        database,
        leased,
        manifest_key="m",
        artifacts=[("master", rows.lease_of(leased)), ("poster", rows.lease_of(leased))],
        lifetime=None,
    )
    assert landing == FenceLost(Stage.capturing)
    assert await stored_artifacts(database, leased.id) == []


async def test_an_artifact_of_an_earlier_lease_can_be_published(database: Database) -> None:
    first = await rows.prepared(database)
    await capture.capture_rescheduled(database, first, delay=NOW)
    second = await rows.capture_lease(database, first)
    (kept,) = await capture.prepared_artifacts(database, first.id)
    assert kept.lease_token == first.lease_token
    done = await capture.result_stored(
        database,
        second,
        manifest_key="m",
        artifacts=[("master", kept.lease_token)],
        lifetime=None,
    )
    assert rows.landed(done).expires_at is None


async def test_a_heartbeat_holds_a_live_lease_only(database: Database) -> None:
    leased = await rows.capture_lease(database, await rows.capturing(database))
    longer = rows.landed(await capture.capture_extended(database, leased, life=2 * HOUR))
    assert longer.lease_expires_at is not None
    assert leased.lease_expires_at is not None
    assert longer.lease_expires_at > leased.lease_expires_at
    rows.landed(await capture.capture_extended(database, leased, life=NOW))
    rows.assert_lost(await capture.capture_extended(database, leased, life=HOUR), Stage.capturing)


async def test_a_stranger_prepares_and_publishes_nothing(database: Database) -> None:
    leased = await rows.capture_lease(database, await rows.capturing(database))
    stranger = replace(leased, lease_token=uuid4())
    rows.assert_lost(
        await capture.capture_prepared(database, stranger, rows.artifact(stranger)),
        Stage.capturing,
    )
    assert await capture.prepared_artifacts(database, leased.id) == []


async def test_a_refused_result_ends_the_job(database: Database) -> None:
    leased = await rows.capture_lease(database, await rows.capturing(database))
    ended = rows.landed(await capture.result_refused(database, leased, code=ErrorCode.result_lost))
    assert (ended.stage, ended.error_code) == (Stage.failed, "result_lost")
