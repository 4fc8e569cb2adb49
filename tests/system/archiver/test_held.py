"""What a killed lease left behind is adopted, completed or set aside, never fetched twice."""

import hashlib
from dataclasses import dataclass
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from shared.domain.job import Job
from shared.domain.stages import Stage
from shared.media.layout import PartLayout
from shared.media.objects import MultipartUpload, ObjectStore
from shared.store.transitions.capture import NewArtifact, capture_leased, capture_prepared
from tests.store import rows
from tests.store.objects.relay import Answer, Request, Verdict, relay
from tests.system.archiver.findings import capturing, keys, prepared, published
from tests.system.watchers import Scene, counted, until

MIB = 1024 * 1024
MP4 = b"\x00\x00\x00\x20ftypisom" + bytes(range(256)) * 100
BODY = MP4 + bytes(6 * MIB)
HOUR = timedelta(hours=1)
FORGOTTEN = {"status": {"sequence": [{"http": 404}], "repeat_last": True}}


@dataclass(frozen=True)
class Left:
    """A lease's leavings: the job, the key, the upload and its parts if there was one."""

    job: Job
    key: str
    upload: MultipartUpload | None = None
    layout: PartLayout | None = None


async def leased(scene: Scene, job: Job) -> Job:
    (taken,) = await capture_leased(
        scene.database, holder="killed", life=HOUR, batch=1, job_ids=[job.id]
    )
    return taken


async def left_behind(scene: Scene, store: ObjectStore, job: Job, body: bytes = BODY) -> Left:
    """Prepares an artifact as a lease does, and dies before the upload is completed."""
    holder = await leased(scene, job)
    key = f"results/{job.id}/master.{holder.lease_token}.mp4"
    upload = await store.start_multipart(key, "video/mp4")
    pieces = [body[at : at + 5 * MIB] for at in range(0, len(body), 5 * MIB)]
    parts = [
        await store.upload_part(upload, number, piece) for number, piece in enumerate(pieces, 1)
    ]
    layout = PartLayout(5 * MIB, upload.has_checksums, tuple(parts))
    await prepare(scene, holder, key, body, upload.upload_id, layout)
    await scene.lose_lease(job)
    return Left(holder, key, upload, layout)


async def prepare(
    scene: Scene,
    holder: Job,
    key: str,
    body: bytes,
    upload_id: str | None = None,
    layout: PartLayout | None = None,
) -> None:
    digest = hashlib.sha256(body).hexdigest()
    shown = None if layout is None else layout.as_json()
    artifact = NewArtifact("master", "video/mp4", len(body), digest, key, upload_id, shown)
    rows.landed(await capture_prepared(scene.database, holder, artifact))


async def left_small(scene: Scene, store: ObjectStore, job: Job, *, was_put: bool) -> Left:
    """The same with a small object, put or not."""
    holder = await leased(scene, job)
    key = f"results/{job.id}/master.{holder.lease_token}.mp4"
    await prepare(scene, holder, key, MP4)
    if was_put:
        await store.put_small(key, MP4, "video/mp4")
    await scene.lose_lease(job)
    return Left(holder, key)


async def adopted(scene: Scene, store: ObjectStore, left: Left, body: bytes) -> None:
    """The job succeeds with exactly what was left behind, and nothing was fetched for it."""
    before = counted("coatcheck_capture_attempts_total", result="adopted")
    async with scene.archiver():
        seen = await scene.settled(left.job, Stage.succeeded, Stage.failed, Stage.review)
    assert seen.stage is Stage.succeeded
    (master,) = await published(scene, store, left.job)
    assert (master.key, master.sha256) == (left.key, hashlib.sha256(body).hexdigest())
    assert await scene.fake.calls("result", left.job.provider_job_id) == []
    assert counted("coatcheck_capture_attempts_total", result="adopted") == before + 1


async def copied_anew(scene: Scene, store: ObjectStore, left: Left) -> None:
    """The job succeeds with a copy of its own."""
    async with scene.archiver():
        seen = await scene.settled(left.job, Stage.succeeded, Stage.failed, Stage.review)
    assert seen.stage is Stage.succeeded
    (master,) = await published(scene, store, left.job)
    assert master.key != left.key
    assert len(await scene.fake.calls("result", left.job.provider_job_id)) == 1


@pytest.fixture
async def job(scene: Scene) -> Job:
    """A job whose provider finished."""
    return await capturing(scene, await scene.bought())


async def test_an_open_upload_is_completed(
    scene: Scene, object_store: ObjectStore, job: Job
) -> None:
    await adopted(scene, object_store, await left_behind(scene, object_store, job), BODY)


async def test_a_completed_upload_is_adopted(
    scene: Scene, object_store: ObjectStore, job: Job
) -> None:
    left = await left_behind(scene, object_store, job)
    assert left.upload is not None
    assert left.layout is not None
    await object_store.complete_multipart(left.key, left.upload.upload_id, left.layout)
    await adopted(scene, object_store, left, BODY)


async def test_a_small_object_is_adopted(scene: Scene, object_store: ObjectStore, job: Job) -> None:
    left = await left_small(scene, object_store, job, was_put=True)
    await adopted(scene, object_store, left, MP4)


async def test_a_small_object_that_was_not_put_is_copied_anew(
    scene: Scene, object_store: ObjectStore, job: Job
) -> None:
    left = await left_small(scene, object_store, job, was_put=False)
    await copied_anew(scene, object_store, left)


async def test_an_aborted_upload_is_copied_anew(
    scene: Scene, object_store: ObjectStore, job: Job
) -> None:
    left = await left_behind(scene, object_store, job)
    assert left.upload is not None
    await object_store.abort_multipart(left.key, left.upload.upload_id)
    await copied_anew(scene, object_store, left)


async def test_an_object_unlike_its_row_is_set_aside_with_an_alarm(
    scene: Scene, object_store: ObjectStore, job: Job
) -> None:
    left = await left_small(scene, object_store, job, was_put=False)
    await object_store.put_small(left.key, MP4[:-1] + b"!", "video/mp4")
    with capture_logs() as logs:
        await copied_anew(scene, object_store, left)
    assert [entry["event"] for entry in logs].count("stored_object_differs") == 1
    kept = left.key.replace("results/", "quarantine/")
    assert await keys(object_store, f"quarantine/{job.id}/") == {kept}


async def test_the_newest_of_two_leases_is_adopted_and_the_older_upload_dropped(
    scene: Scene, object_store: ObjectStore, job: Job
) -> None:
    older = await left_behind(scene, object_store, job, MP4 * 2)
    newer = await left_behind(scene, object_store, job)
    await adopted(scene, object_store, newer, BODY)
    prefix = f"results/{job.id}/"
    assert [item async for item in object_store.list_multipart_uploads(prefix)] == []
    assert older.key not in await keys(object_store, prefix)
    assert len(await prepared(scene, job)) == 2


async def test_what_is_held_is_published_though_the_provider_forgot(
    scene: Scene, object_store: ObjectStore, job: Job
) -> None:
    await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", FORGOTTEN)
    await adopted(scene, object_store, await left_behind(scene, object_store, job), BODY)


async def test_parts_that_the_store_will_not_join_are_not_given_up(
    scene: Scene, object_store: ObjectStore, job: Job
) -> None:
    left = await left_behind(scene, object_store, job)
    await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", FORGOTTEN)
    is_refusing = True

    def rule(request: Request) -> Verdict:
        is_join = request.method == "POST" and "uploadId" in request.target
        return Answer(400, "InvalidPart") if is_join and is_refusing else None

    async def was_kept() -> bool:
        return "refused_but_something_is_held" in [entry["event"] for entry in logs]

    assert scene.storage is not None
    assert scene.storage.s3_endpoint_url is not None
    async with relay(scene.storage.s3_endpoint_url, rule) as url:
        with capture_logs() as logs:
            async with scene.archiver(s3_endpoint_url=url):
                await until(was_kept)
                assert (await scene.job(job)).stage is Stage.capturing
                is_refusing = False
                assert (await scene.settled(job, Stage.succeeded)).stage is Stage.succeeded
    (master,) = await published(scene, object_store, job)
    assert master.key == left.key


async def test_nothing_is_lost_while_an_unknown_object_lies_there(
    scene: Scene, object_store: ObjectStore, job: Job
) -> None:
    await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", FORGOTTEN)
    await object_store.put_small(f"results/{job.id}/master.unknown.mp4", MP4, "video/mp4")

    async def was_kept() -> bool:
        return "refused_but_something_is_held" in [entry["event"] for entry in logs]

    with capture_logs() as logs:
        async with scene.archiver():
            await until(was_kept)
    assert (await scene.job(job)).stage is Stage.capturing
