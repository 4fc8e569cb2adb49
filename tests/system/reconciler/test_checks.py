"""What becomes of accepted jobs, by every kind of answer a provider gives."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.domain.stages import Stage
from shared.store.transitions import admission
from tests.store import rows
from tests.system.watchers import AT_ONCE, Scene, counted, until

OVER = (Stage.capturing, Stage.failed, Stage.cancelled, Stage.review)
FOREVER = {"queue_s": 0, "run_s": "forever"}


async def test_a_finished_job_goes_to_the_archiver_with_a_deadline(scene: Scene) -> None:
    before = counted("coatcheck_checks_total", provider="runpod", **{"class": "completed"})
    job = await scene.bought()
    async with scene.reconciler():
        seen = await scene.settled(job, *OVER)
    assert seen.stage is Stage.capturing
    assert seen.capture_deadline is not None
    assert seen.unfinished_since is not None
    # The clock runs from the claim: no check ever saw this job unfinished.
    assert (seen.capture_deadline - seen.unfinished_since).total_seconds() == 1800 / 60
    after = counted("coatcheck_checks_total", provider="runpod", **{"class": "completed"})
    assert after == before + 1


async def test_a_running_job_shows_its_progress_and_moves_the_clock(scene: Scene) -> None:
    job = await scene.bought({"job": {**FOREVER, "progress": {"progress": 40}}})

    async def has_progress() -> bool:
        return (await scene.job(job)).progress == 40

    async with scene.reconciler():
        await until(has_progress)
        seen = await scene.job(job)
        assert (seen.stage, seen.provider_status) == (Stage.accepted, "running")
        assert seen.started_at is not None
        assert seen.unfinished_since is not None
        assert job.unfinished_since is not None
        assert seen.unfinished_since > job.unfinished_since
        assert job.provider_job_id is not None
        await scene.fake.control("POST", f"jobs/{job.provider_job_id}/end", {})
        assert (await scene.settled(job, *OVER)).stage is Stage.capturing


@pytest.mark.parametrize(
    ("script", "stage", "code"),
    [
        ({"outcome": "FAILED"}, Stage.failed, "provider_failed"),
        (
            {"outcome": "FAILED", "error": "executionTimeout exceeded"},
            Stage.failed,
            "provider_timed_out",
        ),
        ({"outcome": "TIMED_OUT", "queue_s": 0, "run_s": 0}, Stage.failed, "provider_timed_out"),
        ({"outcome": "CANCELLED"}, Stage.cancelled, None),
        ({"output": {"error": "out of memory"}}, Stage.failed, "provider_failed"),
    ],
)
async def test_the_providers_word_ends_a_job(
    scene: Scene, script: dict[str, Any], stage: Stage, code: str | None
) -> None:
    job = await scene.bought({"job": {**AT_ONCE, **script}})
    async with scene.reconciler():
        seen = await scene.settled(job, *OVER)
    assert seen.stage is stage
    if code == "provider_timed_out" and script["outcome"] == "TIMED_OUT":
        assert seen.error_code in ("provider_timed_out", "provider_expired")
    else:
        assert seen.error_code == code


async def test_a_completion_without_output_is_checked_again_before_it_fails(scene: Scene) -> None:
    job = await scene.bought({"job": {**AT_ONCE, "output": "none"}})
    async with scene.reconciler():
        seen = await scene.settled(job, *OVER)
    assert (seen.stage, seen.error_code) == (Stage.failed, "result_missing")
    assert len(await scene.fake.calls("status", job.provider_job_id)) >= 4


async def test_an_output_hidden_by_a_late_progress_post_is_found(scene: Scene) -> None:
    hidden = [{"drop": ["output"]}, {"fields": {"status": "IN_PROGRESS"}}, {"drop": ["output"]}]
    job = await scene.bought({"status": {"sequence": hidden, "when": "ended"}})
    async with scene.reconciler():
        seen = await scene.settled(job, *OVER)
    assert seen.stage is Stage.capturing
    # Completion was seen at the first look: the look that said "running" moved no clock.
    assert seen.unfinished_since == job.unfinished_since


async def test_a_404_opens_a_review_and_a_proper_answer_ends_it(scene: Scene) -> None:
    script = {"status": {"sequence": [{"http": 404}], "repeat_last": True}}
    job = await scene.bought(script)
    with capture_logs() as logs:
        async with scene.reconciler():
            seen = await scene.settled(job, *OVER)
            assert seen.stage is Stage.review
            assert seen.attention_reason == "provider_job_gone"
            assert len(await scene.fake.calls("status", job.provider_job_id)) >= 3
            told: dict[str, Any] = {"status": {"sequence": [{}]}}
            await scene.fake.control("POST", f"jobs/{job.provider_job_id}/script", told)
            assert (await scene.settled(job, Stage.capturing)).attention_reason is None
    alarms = [entry for entry in logs if entry["event"] == "job_needs_attention"]
    assert [entry["reason"] for entry in alarms] == ["provider_job_gone"]


async def test_an_unknown_state_opens_a_review(scene: Scene) -> None:
    before = counted("coatcheck_provider_unrecognised_total", provider="runpod")
    job = await scene.bought({"job": {**AT_ONCE, "outcome": "PONDERING"}})
    async with scene.reconciler():
        seen = await scene.settled(job, *OVER)
    assert seen.attention_reason == "provider_state_unrecognised"
    assert counted("coatcheck_provider_unrecognised_total", provider="runpod") >= before + 3


async def test_a_spent_budget_opens_a_review_that_is_still_watched(scene: Scene) -> None:
    scene.terms = {"ttl_s": 30.0}
    job = await scene.bought({"job": FOREVER})
    async with scene.reconciler():
        seen = await scene.settled(job, *OVER)
        assert seen.attention_reason == "check_budget_spent"
        await scene.fake.control("POST", f"jobs/{job.provider_job_id}/end", {})
        await scene.settled(job, Stage.capturing)


async def test_a_review_rests_once_the_provider_has_forgotten(scene: Scene) -> None:
    scene.terms = {"ttl_s": 30.0, "retention_s": 60.0}
    job = await scene.bought({"job": FOREVER})

    async def rests() -> bool:
        seen = await scene.job(job)
        return seen.stage is Stage.review and seen.next_check_at is None

    async with scene.reconciler():
        await until(rests)


async def test_answers_that_say_nothing_move_nothing(scene: Scene) -> None:
    silent = [
        {"http": 429, "headers": {"Retry-After": "1"}},
        {"http": 502, "body": "<html>bad gateway</html>"},
        {"cut": True},
        {"http": 200, "body": "<html>welcome</html>"},
    ]
    throttled = counted("coatcheck_provider_throttled_total", provider="runpod", operation="status")
    job = await scene.bought({"status": {"sequence": silent}})
    async with scene.reconciler():
        seen = await scene.settled(job, *OVER)
    assert seen.stage is Stage.capturing
    events = [entry.event for entry in await scene.told(job)]
    assert events == [
        *("job_requested", "submission_claimed", "submission_accepted", "completion_observed"),
    ]
    held = counted("coatcheck_provider_throttled_total", provider="runpod", operation="status")
    assert held > throttled


async def test_a_wish_to_be_left_alone_holds_for_every_job(scene: Scene) -> None:
    wish = {"status": {"sequence": [{"http": 429, "headers": {"Retry-After": "600"}}]}}
    first = await scene.bought(wish)

    async def is_held() -> bool:
        return len(await scene.fake.calls("status", first.provider_job_id)) == 1

    async with scene.reconciler():
        await until(is_held)
        second = await scene.bought()

        async def was_put_off() -> bool:
            seen = await scene.job(second)
            return seen.check_attempts > 0 and seen.lease_token is None

        await until(was_put_off)
    assert await scene.fake.calls("status", second.provider_job_id) == []
    assert (await scene.job(second)).stage is Stage.accepted


async def test_a_wish_to_cancel_is_sent_and_the_status_decides(scene: Scene) -> None:
    job = await scene.bought({"job": FOREVER})
    rows.landed(await admission.cancel_requested(scene.database, job.id, rows.OWNER))
    async with scene.reconciler():
        seen = await scene.settled(job, *OVER)
    assert seen.stage is Stage.cancelled
    assert seen.cancel_sent_at is not None
    assert len(await scene.fake.calls("cancel", job.provider_job_id)) == 1


async def test_a_job_that_ignores_the_wish_is_asked_again_and_captured(scene: Scene) -> None:
    job = await scene.bought({"job": {**FOREVER, "ignore_cancel": True}})
    rows.landed(await admission.cancel_requested(scene.database, job.id, rows.OWNER))

    async def was_asked_twice() -> bool:
        return len(await scene.fake.calls("cancel", job.provider_job_id)) >= 2

    async with scene.reconciler():
        await until(was_asked_twice)
        await scene.fake.control("POST", f"jobs/{job.provider_job_id}/end", {})
        assert (await scene.settled(job, *OVER)).stage is Stage.capturing


async def test_a_cancel_that_fails_does_not_stop_the_watching(scene: Scene) -> None:
    job = await scene.bought({"cancel": {"status": 500}})
    rows.landed(await admission.cancel_requested(scene.database, job.id, rows.OWNER))
    async with scene.reconciler():
        seen = await scene.settled(job, *OVER)
    assert (seen.stage, seen.cancel_sent_at) == (Stage.capturing, None)


async def test_a_cancel_that_hangs_leaves_time_for_the_status(scene: Scene) -> None:
    job = await scene.bought({"cancel": {"gate": "cancel"}})
    rows.landed(await admission.cancel_requested(scene.database, job.id, rows.OWNER))
    async with scene.reconciler():
        assert (await scene.settled(job, *OVER)).stage is Stage.capturing
        await scene.fake.control("POST", "gates/cancel/open")


async def test_a_lost_lease_changes_nothing_and_is_counted(scene: Scene) -> None:
    lost = counted("coatcheck_lease_lost_total", stage="accepted")
    failed = {"fields": {"status": "FAILED"}, "gate": "late"}
    job = await scene.bought({"status": {"sequence": [failed]}})

    async def is_held() -> bool:
        return await scene.fake.is_held("late")

    async def was_counted() -> bool:
        return counted("coatcheck_lease_lost_total", stage="accepted") > lost

    async with scene.reconciler():
        await until(is_held)
        await scene.lose_lease(job)
        # Another look, under a lease of its own, has the true answer first.
        assert (await scene.settled(job, *OVER)).stage is Stage.capturing
        await scene.fake.control("POST", "gates/late/open")
        await until(was_counted)
    assert (await scene.job(job)).stage is Stage.capturing


async def test_a_provider_without_a_key_waits_with_an_alarm(scene: Scene) -> None:
    job = await scene.accepted("elsewhere-1", provider="elsewhere")
    other = await scene.bought()

    async def was_put_off() -> bool:
        seen = await scene.job(job)
        return seen.check_attempts > 0 and seen.lease_token is None

    with capture_logs() as logs:
        async with scene.reconciler():
            await until(was_put_off)
            await scene.settled(other, Stage.capturing)
    events = [entry["event"] for entry in logs]
    assert events.count("provider_without_key") == 1
    assert (await scene.job(job)).stage is Stage.accepted
