"""Reconciler and archiver as processes: killed, paused, stopped, and what they leave."""

import signal

from shared.domain.stages import Stage
from shared.media.objects import ObjectStore
from tests.system.archiver.findings import capturing, keys, published
from tests.system.room_process import started
from tests.system.watchers import Scene, until

MIB = 1024 * 1024
GATED = {"result": {"gate": "body", "bytes": 20 * MIB}}
UNGATED = {"result": {"gate": None, "bytes": 20 * MIB}}


async def test_an_archiver_killed_in_a_fetch_leaves_the_job_to_the_next(
    scene: Scene, object_store: ObjectStore
) -> None:
    job = await capturing(scene, await scene.bought(GATED))
    log = scene.folder / "archiver.log"
    async with started("archiver", log, **scene.environment()) as room:
        await until(lambda: scene.fake.is_held("body"))
        assert await room.ended(signal.SIGKILL) == -signal.SIGKILL
    await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", UNGATED)
    async with started("archiver", log, **scene.environment()):
        seen = await scene.settled(job, Stage.succeeded, Stage.failed, Stage.review)
    assert seen.stage is Stage.succeeded
    (master,) = await published(scene, object_store, job)
    assert master.bytes == 20 * MIB
    assert await keys(object_store, f"results/{job.id}/") == {master.key, seen.manifest_key}


async def test_an_archiver_paused_past_its_lease_changes_nothing_when_it_wakes(
    scene: Scene, object_store: ObjectStore
) -> None:
    job = await capturing(scene, await scene.bought(GATED))
    first_log = scene.folder / "first.log"
    async with started("archiver", first_log, **scene.environment()) as paused:
        await until(lambda: scene.fake.is_held("body"))
        paused.process.send_signal(signal.SIGSTOP)
        await scene.lose_lease(job)
        await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", UNGATED)
        async with started("archiver", scene.folder / "second.log", **scene.environment()):
            seen = await scene.settled(job, Stage.succeeded)
        await scene.fake.control("POST", "gates/body/open")
        paused.process.send_signal(signal.SIGCONT)

        async def was_counted() -> bool:
            return (await paused.metrics())[
                'coatcheck_capture_attempts_total{result="lease_lost"}'
            ] == 1

        await until(was_counted)
    (master,) = await published(scene, object_store, job)
    assert await keys(object_store, f"results/{job.id}/") == {master.key, seen.manifest_key}


async def test_a_stop_lets_the_copy_finish(scene: Scene, object_store: ObjectStore) -> None:
    job = await capturing(scene, await scene.bought(GATED))
    waiting = await capturing(scene, await scene.bought(GATED))
    settings = {**scene.environment(), "ARCHIVER_PARALLEL_TRANSFERS": "1"}
    async with started("archiver", scene.folder / "archiver.log", **settings) as room:
        await until(lambda: scene.fake.is_held("body"))
        room.process.send_signal(signal.SIGTERM)
        await room.is_ready(ready=False)
        await scene.fake.control("POST", "gates/body/open")
        assert await room.ended() == 0
    stages = {(await scene.job(item)).stage for item in (job, waiting)}
    assert stages == {Stage.succeeded, Stage.capturing}


async def test_a_stop_that_takes_too_long_drops_the_copy_and_its_upload(
    scene: Scene, object_store: ObjectStore
) -> None:
    dripping = {"result": {"bytes": 20 * MIB, "drip_bytes_per_s": 10 * MIB}}
    job = await capturing(scene, await scene.bought(dripping))
    prefix = f"results/{job.id}/"

    async def has_upload() -> bool:
        return [item async for item in object_store.list_multipart_uploads(prefix)] != []

    settings = {**scene.environment(), "DRAIN_SECONDS": "0"}
    async with started("archiver", scene.folder / "archiver.log", **settings) as room:
        await until(has_upload)
        assert await room.ended(signal.SIGTERM) == 0
    assert not await has_upload()
    assert (await scene.job(job)).stage is Stage.capturing


async def test_a_reconciler_killed_in_a_check_leaves_the_job_to_the_next(scene: Scene) -> None:
    job = await scene.bought({"status": {"sequence": [{"gate": "status"}]}})
    log = scene.folder / "reconciler.log"
    async with started("reconciler", log, **scene.environment()) as room:
        await until(lambda: scene.fake.is_held("status"))
        assert await room.ended(signal.SIGKILL) == -signal.SIGKILL
    async with started("reconciler", log, **scene.environment()) as room:
        assert (await scene.settled(job, Stage.capturing, Stage.failed)).stage is Stage.capturing
        await room.is_ready()
        assert await room.ended(signal.SIGTERM) == 0


async def test_no_secret_and_no_reference_is_logged(scene: Scene) -> None:
    script = {"result": {"query": "X-Amz-Signature=canary-signature"}}
    job = await scene.bought(script)
    settings = scene.environment()
    logs = [scene.folder / "reconciler.log", scene.folder / "archiver.log"]
    async with (
        started("reconciler", logs[0], **settings) as reconciler,
        started("archiver", logs[1], **settings) as archiver,
    ):
        await scene.settled(job, Stage.succeeded)
        assert await reconciler.ended(signal.SIGTERM) == 0
        assert await archiver.ended(signal.SIGTERM) == 0
    text = "".join(log.read_text() for log in logs)
    assert "completion_observed" in text
    assert "result_stored" in text
    secrets = (
        "canary-signature",
        f"/results/{job.provider_job_id}",
        settings["RUNPOD_API_KEY"],
        settings["S3_SECRET_ACCESS_KEY"],
    )
    assert [secret for secret in secrets if secret in text] == []
