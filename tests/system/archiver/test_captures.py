"""From a finished job to a stored result, by every way a result may come."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.stages import Stage
from shared.media.objects import ObjectStore
from tests.store import rows
from tests.system.archiver.findings import capturing, keys, manifest_of, published
from tests.system.watchers import AT_ONCE, SCALE, VIDEO, Scene, counted

MIB = 1024 * 1024


async def test_a_result_is_stored_as_it_was_served(scene: Scene, object_store: ObjectStore) -> None:
    stored = counted("coatcheck_capture_attempts_total", result="stored")
    downloaded = counted("coatcheck_capture_downloaded_bytes_total")
    metadata = json.dumps({"scene": "lake \ud800"})
    job = await scene.bought(metadata_json=metadata)
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, Stage.succeeded, Stage.failed, Stage.review)
    assert seen.stage is Stage.succeeded
    assert seen.provider_job_id is not None
    served = await scene.fake.result(seen.provider_job_id)
    (master,) = await published(scene, object_store, job)
    assert (master.name, master.media_type) == ("master", "video/mp4")
    assert (master.sha256, master.bytes) == (served["sha256"], served["bytes"])
    assert master.bytes >= MIB
    assert await keys(object_store, f"results/{job.id}/") == {master.key, seen.manifest_key}
    assert counted("coatcheck_capture_attempts_total", result="stored") == stored + 1
    assert counted("coatcheck_capture_downloaded_bytes_total") == downloaded + master.bytes
    assert len(await scene.fake.calls("result", seen.provider_job_id)) == 1


async def test_the_manifest_tells_what_was_asked_and_stored(
    scene: Scene, object_store: ObjectStore
) -> None:
    job = await scene.bought(metadata_json=json.dumps({"shot": 7}))
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, Stage.succeeded)
    manifest = await manifest_of(object_store, seen)
    (master,) = await published(scene, object_store, job)
    assert manifest["job_id"] == str(job.id)
    assert manifest["metadata"] == {"shot": 7}
    assert manifest["provider_job_id"] == seen.provider_job_id
    assert manifest["artifacts"] == [
        {
            "name": "master",
            "key": master.key,
            "media_type": "video/mp4",
            "bytes": master.bytes,
            "sha256": master.sha256,
        }
    ]
    assert set(manifest["seconds"]) == {"queue", "render", "transfer"}
    assert "http" not in json.dumps(manifest)


async def test_previews_expire_after_a_scaled_week_and_kept_results_never(scene: Scene) -> None:
    preview = await scene.bought()
    kept = await scene.bought(retention="keep")
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(preview, Stage.succeeded)
        assert (await scene.settled(kept, Stage.succeeded)).expires_at is None
    assert seen.expires_at is not None
    assert seen.finished_at is not None
    lifetime = seen.expires_at - seen.finished_at
    assert abs(lifetime - timedelta(days=7) / SCALE) < timedelta(seconds=1)


async def test_a_large_result_goes_up_in_parts(scene: Scene, object_store: ObjectStore) -> None:
    job = await scene.bought({"result": {"bytes": 20 * MIB}})
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, Stage.succeeded)
    assert seen.provider_job_id is not None
    (master,) = await published(scene, object_store, job)
    served = await scene.fake.result(seen.provider_job_id)
    assert (master.sha256, master.bytes) == (served["sha256"], 20 * MIB)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
INLINE = base64.b64encode(PNG).decode()
IMAGE = {**VIDEO, "name": "image", "path": "$.image", "media_types": ["image/png"]}
CAPTION = {"name": "caption", "path": "$.caption", "kind": "json", "media_types": []}


@pytest.mark.parametrize(
    ("artifact", "output", "media_type", "body"),
    [
        (IMAGE, {"image": INLINE}, "image/png", PNG),
        (IMAGE, {"image": f"data:image/png;base64,{INLINE}"}, "image/png", PNG),
        (CAPTION, {"caption": {"text": "a lake"}}, "application/json", b'{"text":"a lake"}'),
    ],
    ids=["base64", "data_uri", "json"],
)
async def test_bytes_inside_the_answer_are_stored_as_well(
    scene: Scene,
    object_store: ObjectStore,
    artifact: dict[str, Any],
    output: dict[str, Any],
    media_type: str,
    body: bytes,
) -> None:
    scene.write_registry(artifact)
    scene.terms = {"artifacts": [{"required": True, "kind": "auto", **artifact}]}
    job = await scene.bought({"job": {**AT_ONCE, "output": output}})
    async with scene.reconciler(), scene.archiver():
        await scene.settled(job, Stage.succeeded)
    (found,) = await published(scene, object_store, job)
    assert (found.name, found.media_type, found.bytes) == (artifact["name"], media_type, len(body))


async def test_several_artifacts_are_published_together(
    scene: Scene, object_store: ObjectStore
) -> None:
    video = {**VIDEO, "required": True, "kind": "auto"}
    scene.write_registry(VIDEO, IMAGE)
    scene.terms = {"artifacts": [video, {**IMAGE, "required": True, "kind": "auto"}]}
    output = {"video_url": "{result_url}", "image": [INLINE, INLINE]}
    job = await scene.bought({"job": {**AT_ONCE, "output": output}})
    async with scene.reconciler(), scene.archiver():
        await scene.settled(job, Stage.succeeded)
    names = [item.name for item in await published(scene, object_store, job)]
    assert names == ["image", "image-2", "master"]


async def test_an_endpoint_that_requires_nothing_succeeds_with_nothing(
    scene: Scene, object_store: ObjectStore
) -> None:
    scene.terms = {"artifacts": [{**VIDEO, "required": False, "kind": "auto"}]}
    job = await scene.bought({"job": {**AT_ONCE, "output": {"text": "done"}}})
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, Stage.succeeded)
    assert await published(scene, object_store, job) == []
    assert (await manifest_of(object_store, seen))["artifacts"] == []


async def test_the_cost_is_settled_by_the_endpoints_price(scene: Scene) -> None:
    scene.terms = {"cost": {"path": "$.cost"}}
    output = {"video_url": "{result_url}", "cost": 0.4}
    job = await scene.bought({"job": {**AT_ONCE, "output": output}})
    before = counted("coatcheck_cost_usd_total", endpoint=rows.ENDPOINT)
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, Stage.succeeded)
    assert str(seen.settled_cost_usd) == "0.4000"
    after = counted("coatcheck_cost_usd_total", endpoint=rows.ENDPOINT)
    assert after == pytest.approx(before + 0.4)


async def test_a_capture_that_waits_for_nobody_is_due_at_once(scene: Scene) -> None:
    job = await capturing(scene, await scene.bought())
    async with scene.archiver():
        assert (await scene.settled(job, Stage.succeeded)).capture_attempts == 1
