"""Leases of captures: extended while work runs, and the end of the work once they are lost."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from services.archiver.leases import Lease, LeaseLost
from shared.domain.job import Job
from shared.domain.stages import Stage
from shared.media.capture import CaptureOrder, PreparedObject, capture
from shared.media.objects import ObjectStore
from shared.store.pool import open_database
from shared.store.transitions.capture import capture_leased
from tests.system.archiver.findings import capturing, keys, prepared, published
from tests.system.postgres_gate import PostgresGate
from tests.system.watchers import Scene, counted, until

LIFE = timedelta(seconds=0.6)
MIB = 1024 * 1024
MP4 = b"\x00\x00\x00\x20ftypisom" + bytes(20)


async def leased(scene: Scene, life: timedelta = LIFE) -> Job:
    """A capture under a lease of the test's own."""
    job = await capturing(scene, await scene.bought())
    (taken,) = await capture_leased(
        scene.database, holder="test", life=life, batch=1, job_ids=[job.id]
    )
    return taken


def lease_of(scene: Scene, job: Job, life: timedelta = LIFE) -> Lease:
    return Lease(scene.database, job, life, time.monotonic())


async def test_a_lost_lease_stops_the_copy_and_leaves_one_referenced_result(
    scene: Scene, object_store: ObjectStore
) -> None:
    lost = counted("coatcheck_capture_attempts_total", result="lease_lost")
    leases = counted("coatcheck_lease_lost_total", stage="capturing")
    job = await scene.bought({"result": {"gate": "body"}})

    async def is_held() -> bool:
        return await scene.fake.is_held("body")

    async def was_counted() -> bool:
        return counted("coatcheck_capture_attempts_total", result="lease_lost") > lost

    async with scene.reconciler(), scene.archiver():
        await until(is_held)
        path = f"jobs/{job.provider_job_id}/script"
        await scene.fake.control("POST", path, {"result": {"gate": None}})
        await scene.lose_lease(job)
        seen = await scene.settled(job, Stage.succeeded, Stage.failed)
        await until(was_counted)
        await scene.fake.control("POST", "gates/body/open")
    assert seen.stage is Stage.succeeded
    assert counted("coatcheck_lease_lost_total", stage="capturing") == leases + 1
    (master,) = await published(scene, object_store, job)
    assert len(await prepared(scene, job)) == 1
    assert await keys(object_store, f"results/{job.id}/") == {master.key, seen.manifest_key}


async def test_a_copy_that_is_stopped_halfway_leaves_no_upload(
    scene: Scene, object_store: ObjectStore
) -> None:
    job = await leased(scene)
    prefix = f"results/{job.id}/"
    order = CaptureOrder(
        job_id=str(job.id),
        artifact="master",
        lease_token=str(job.lease_token),
        bytes_max=100 * MIB,
        part_bytes=5 * MIB,
    )

    async def source() -> AsyncIterator[bytes]:
        yield MP4
        for _ in range(6):
            yield bytes(MIB)
        uploads = [item async for item in object_store.list_multipart_uploads(prefix)]
        assert len(uploads) == 1
        await scene.lose_lease(job)
        await asyncio.Event().wait()

    async def never(_: PreparedObject) -> None:
        raise AssertionError("nothing of a lost lease is prepared")

    async def copy() -> None:
        await capture(source(), order, object_store, never)

    with pytest.raises(LeaseLost):
        await lease_of(scene, job).hold(copy)
    assert [item async for item in object_store.list_multipart_uploads(prefix)] == []
    assert await keys(object_store, prefix) == set()


async def test_a_lease_is_extended_while_its_work_runs(scene: Scene) -> None:
    job = await leased(scene)
    first_end = job.lease_expires_at
    assert first_end is not None

    async def work() -> str:
        async def was_extended() -> bool:
            ends = (await scene.job(job)).lease_expires_at
            return ends is not None and ends > first_end + LIFE

        await until(was_extended)
        return "done"

    assert await lease_of(scene, job).hold(work) == "done"


async def test_work_that_fails_fails_as_itself(scene: Scene) -> None:
    job = await leased(scene)

    async def work() -> None:
        raise KeyError("surprise")

    with pytest.raises(KeyError):
        await lease_of(scene, job).hold(work)


async def test_a_lease_that_the_database_cannot_confirm_counts_as_lost(scene: Scene) -> None:
    job = await leased(scene)
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with (
        PostgresGate(scene.database_url).listening() as gate,
        open_database(gate.url, room="test", wait_seconds=5) as database,
    ):
        gate.shut()
        with pytest.raises(LeaseLost):
            await Lease(database, job, LIFE, time.monotonic()).hold(work)
    assert stopped.is_set()


async def test_a_short_outage_costs_no_lease(scene: Scene) -> None:
    life = timedelta(seconds=3)
    job = await leased(scene, life)
    first_end = job.lease_expires_at
    assert first_end is not None
    async with (
        PostgresGate(scene.database_url).listening() as gate,
        open_database(gate.url, room="test", wait_seconds=5) as database,
    ):

        async def work() -> str:
            gate.shut()
            await gate.knocked.wait()
            gate.reopen()

            async def was_extended() -> bool:
                ends = (await scene.job(job)).lease_expires_at
                return ends is not None and ends > first_end

            await until(was_extended)
            return "done"

        assert await Lease(database, job, life, time.monotonic()).hold(work) == "done"


async def test_the_heartbeat_stands_aside_for_the_last_write(scene: Scene) -> None:
    job = await leased(scene)
    lease = lease_of(scene, job)
    before = counted("coatcheck_fence_rejected_total", event="capture_extended")

    async def work() -> str:
        lease.end()
        await scene.lose_lease(job)

        async def was_refused() -> bool:
            now = counted("coatcheck_fence_rejected_total", event="capture_extended")
            return now > before

        await until(was_refused)
        await asyncio.sleep(0)
        return "done"

    assert await lease.hold(work) == "done"
