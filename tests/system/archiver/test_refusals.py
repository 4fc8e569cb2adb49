"""Results that cannot be had: who says so decides what becomes of the job."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.domain.stages import Stage
from shared.media.objects import ObjectStore
from tests.store.objects.relay import Answer, Request, Verdict, relay
from tests.system.archiver.findings import capturing, keys, published
from tests.system.watchers import AT_ONCE, VIDEO, Scene, counted, until

OVER = (Stage.succeeded, Stage.failed, Stage.review)
SHORT_S = 120.0
FOREIGN = {"job": {**AT_ONCE, "output": {"video_url": "https://other.example.org/a.mp4"}}}


@pytest.mark.parametrize("status", [403, 404, 410])
async def test_a_link_that_the_host_denies_is_lost_after_three_looks(
    scene: Scene, object_store: ObjectStore, status: int
) -> None:
    lost = counted("coatcheck_capture_attempts_total", result="lost")
    job = await scene.bought({"result": {"status": status}})
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, *OVER)
    assert (seen.stage, seen.error_code) == (Stage.failed, "result_lost")
    assert len(await scene.fake.calls("result", seen.provider_job_id)) >= 3
    assert counted("coatcheck_capture_attempts_total", result="lost") == lost + 1
    assert await keys(object_store, f"results/{job.id}/") == set()


async def test_a_job_that_the_provider_forgot_is_lost_after_three_looks(scene: Scene) -> None:
    job = await capturing(scene, await scene.bought())
    script = {"status": {"sequence": [{"http": 404}], "repeat_last": True}}
    await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", script)
    async with scene.archiver():
        seen = await scene.settled(job, *OVER)
    assert (seen.stage, seen.error_code) == (Stage.failed, "result_lost")
    assert len(await scene.fake.calls("status", seen.provider_job_id)) >= 3


async def test_a_refusal_that_passes_is_forgotten(scene: Scene) -> None:
    job = await capturing(scene, await scene.bought())
    script = {"status": {"sequence": [{"http": 404}, {"http": 404}, {"http": 500}]}}
    await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", script)
    async with scene.archiver():
        assert (await scene.settled(job, *OVER)).stage is Stage.succeeded


async def test_an_output_that_vanished_is_missing_after_re_checks(scene: Scene) -> None:
    job = await capturing(scene, await scene.bought())
    script = {"status": {"sequence": [{"drop": ["output"]}], "repeat_last": True}}
    await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", script)
    async with scene.archiver():
        seen = await scene.settled(job, *OVER)
    assert (seen.stage, seen.error_code) == (Stage.failed, "result_missing")
    assert len(await scene.fake.calls("status", seen.provider_job_id)) >= 4


async def test_a_finished_job_that_seems_to_run_again_is_waited_for(scene: Scene) -> None:
    job = await capturing(scene, await scene.bought())
    late = [{"fields": {"status": "IN_PROGRESS"}}, {"fields": {"status": "PONDERING"}}]
    script = {"status": {"sequence": late}}
    await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", script)
    async with scene.archiver():
        assert (await scene.settled(job, *OVER)).stage is Stage.succeeded


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ({"video_url": "https://192.0.2.7/a.mp4"}, "result_invalid"),
        ({"video_url": "http://files.example.com/a.mp4"}, "result_invalid"),
        ({"video_url": "data:video/mp4;base64,AAAAIGZ0eXBpc29tAAAC*"}, "result_invalid"),
    ],
    ids=["address", "plain_http", "broken_base64"],
)
async def test_what_no_setting_may_ever_take_fails_after_re_checks(
    scene: Scene, output: dict[str, Any], code: str
) -> None:
    job = await scene.bought({"job": {**AT_ONCE, "output": output}})
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, *OVER)
    assert (seen.stage, seen.error_code) == (Stage.failed, code)
    assert len(await scene.fake.calls("status", seen.provider_job_id)) >= 5


async def test_a_host_that_is_not_listed_waits_for_a_person_then_for_the_registry(
    scene: Scene,
) -> None:
    scene.terms = {"retention_s": SHORT_S}
    blocked = counted("coatcheck_fetch_blocked_total", reason="host_not_listed")
    job = await scene.bought(FOREIGN)
    with capture_logs() as logs:
        async with scene.reconciler(), scene.archiver():
            seen = await scene.settled(job, *OVER)
    assert seen.attention_reason == "result_refused_by_config"
    assert counted("coatcheck_fetch_blocked_total", reason="host_not_listed") > blocked
    events = [entry["event"] for entry in logs]
    assert "result_refused_by_config" in events
    assert "job_needs_attention" in events

    async def was_looked_at(times: int) -> bool:
        return (await scene.job(job)).check_attempts >= times

    # The same answer under the same registry moves nothing …
    async with scene.reconciler(), scene.archiver():
        await until(lambda: was_looked_at(seen.check_attempts + 2))
        assert (await scene.job(job)).stage is Stage.review
    # … another registry does.
    script = {"job": {"output": {"video_url": "{result_url}"}}}
    await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", script)
    scene.write_registry({**VIDEO, "hosts": ["*.example.org"]})
    async with scene.reconciler(), scene.archiver():
        assert (await scene.settled(job, Stage.succeeded, Stage.failed)).stage is Stage.succeeded


async def test_an_unexpected_media_type_is_quarantined_once_and_waits(
    scene: Scene, object_store: ObjectStore
) -> None:
    scene.terms = {"retention_s": SHORT_S}
    job = await scene.bought({"result": {"content": "html"}})
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, *OVER)
    assert seen.attention_reason == "result_refused_by_config"
    assert await keys(object_store, f"results/{job.id}/") == set()
    (kept,) = await keys(object_store, f"quarantine/{job.id}/")
    assert kept.endswith(".bin")
    # Looked at more than once, fetched a second time for the quarantine only once.
    attempts = (await scene.job(job)).capture_attempts
    assert len(await scene.fake.calls("result", job.provider_job_id)) == attempts + 1


async def test_quarantine_that_fails_is_no_reason_to_stop(scene: Scene) -> None:
    def rule(request: Request) -> Verdict:
        is_wanted = request.method == "PUT" and "/quarantine/" in request.target
        return Answer(507, "InsufficientStorage") if is_wanted else None

    scene.terms = {"retention_s": SHORT_S}
    job = await capturing(scene, await scene.bought({"result": {"content": "html"}}), SHORT_S)
    assert scene.storage is not None
    assert scene.storage.s3_endpoint_url is not None
    with capture_logs() as logs:
        async with (
            relay(scene.storage.s3_endpoint_url, rule) as url,
            scene.archiver(s3_endpoint_url=url),
        ):
            seen = await scene.settled(job, *OVER)
    assert seen.attention_reason == "result_refused_by_config"
    assert "not_quarantined" in [entry["event"] for entry in logs]


async def test_a_result_over_its_cap_waits_for_a_person(
    scene: Scene, object_store: ObjectStore
) -> None:
    scene.terms = {"retention_s": SHORT_S}
    scene.write_registry({**VIDEO, "max_bytes": 1000})
    job = await scene.bought()
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, *OVER)
    assert seen.attention_reason == "result_refused_by_config"
    assert await keys(object_store, f"results/{job.id}/") == set()


async def test_bytes_over_their_cap_inside_the_answer_wait_for_a_person(scene: Scene) -> None:
    scene.write_registry({**VIDEO, "max_bytes": 1000})
    scene.terms = {"retention_s": SHORT_S}
    output = {"video_url": "data:video/mp4;base64,{result_base64}"}
    job = await scene.bought({"job": {**AT_ONCE, "output": output}})
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, *OVER)
    assert seen.attention_reason == "result_refused_by_config"


async def test_trouble_on_the_way_is_tried_again(scene: Scene, object_store: ObjectStore) -> None:
    job = await capturing(scene, await scene.bought())
    troubles: tuple[dict[str, Any], ...] = (
        {"status": 503},
        {"cut_after_bytes": 1000},
        {"content": "empty"},
        {"length_lie": 5},
    )
    path = f"jobs/{job.provider_job_id}/script"
    async with scene.archiver():
        for trouble in troubles:
            calls = len(await scene.fake.calls("result", job.provider_job_id))
            await scene.fake.control("POST", path, {"result": trouble})

            async def was_tried(calls: int = calls) -> bool:
                return len(await scene.fake.calls("result", job.provider_job_id)) > calls + 1

            await until(was_tried)
            assert (await scene.job(job)).stage is Stage.capturing
            usual = {"status": None, "cut_after_bytes": None, "content": "video", "length_lie": 0}
            await scene.fake.control("POST", path, {"result": usual})
        await scene.settled(job, Stage.succeeded)
    assert len(await published(scene, object_store, job)) == 1


async def test_a_spent_budget_goes_to_a_person_with_the_deadline_told_once(scene: Scene) -> None:
    missed = counted("coatcheck_capture_deadline_missed_total")
    scene.terms = {"retention_s": SHORT_S}
    job = await scene.bought({"result": {"status": 503}})
    with capture_logs() as logs:
        async with scene.reconciler(), scene.archiver():
            seen = await scene.settled(job, *OVER)
    assert seen.attention_reason == "capture_budget_spent"
    assert counted("coatcheck_capture_deadline_missed_total") == missed + 1
    assert [entry["event"] for entry in logs].count("capture_deadline_missed") == 1


async def test_an_optional_artifact_out_of_reach_does_not_cost_the_required_one(
    scene: Scene, object_store: ObjectStore
) -> None:
    extra = {**VIDEO, "name": "extra", "path": "$.extra"}
    scene.write_registry(VIDEO, extra)
    required = {**VIDEO, "required": True, "kind": "auto"}
    optional = {**extra, "required": False, "kind": "auto"}
    scene.terms = {"artifacts": [optional, required], "retention_s": SHORT_S}
    output = {"video_url": "{result_url}", "extra": "https://other.example.org/a.mp4"}
    job = await scene.bought({"job": {**AT_ONCE, "output": output}})
    async with scene.reconciler(), scene.archiver():
        seen = await scene.settled(job, *OVER)
    assert seen.stage is Stage.succeeded
    assert [item.name for item in await published(scene, object_store, job)] == ["master"]
    # The required one was fetched once, however long the other was waited for.
    assert len(await scene.fake.calls("result", job.provider_job_id)) == 1


async def test_a_provider_without_a_key_waits_with_an_alarm(scene: Scene) -> None:
    job = await scene.accepted("elsewhere-1", provider="elsewhere")
    waiting = await capturing(scene, job)

    async def was_tried() -> bool:
        return (await scene.job(waiting)).capture_attempts >= 2

    with capture_logs() as logs:
        async with scene.archiver():
            await until(was_tried)
    assert [entry["event"] for entry in logs].count("provider_without_key") == 1
    assert (await scene.job(waiting)).stage is Stage.capturing
