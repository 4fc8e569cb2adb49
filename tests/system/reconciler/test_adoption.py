"""Jobs whose paid call had no known outcome, and the ids that come back for them."""

from datetime import timedelta
from uuid import UUID, uuid4

from structlog.testing import capture_logs

from shared.domain.job import Job
from shared.domain.stages import Stage
from shared.store.transitions import admission, evidence, submission
from shared.store.transitions.evidence import Callback
from shared.store.transitions.submission import Claim, ClaimTerms
from tests.store import rows
from tests.system.watchers import Scene, until

NOT_YET = {"status": {"sequence": [{"http": 404}, {"http": 404}]}}
NEVER = {"status": {"sequence": [{"http": 404}], "repeat_last": True}}


async def unknown(scene: Scene) -> tuple[Job, Claim]:
    """A job sent to the fake whose answer was lost, and its claim."""
    requested = await rows.requested(scene.database)
    sent_to = {"base_url": scene.fake.base_url, "endpoint_id": "demo"}
    terms = ClaimTerms(rows.ENDPOINT, 50, rows.HOUR, rows.HOUR, sent_to)
    (claim,) = await submission.submission_claimed(
        scene.database, terms, batch=1, job_ids=[requested.id]
    )
    job = rows.landed(await submission.submission_uncertain(scene.database, claim, reason="cut"))
    return job, claim


async def called_back(scene: Scene, job: Job, token: UUID, provider_job_id: str) -> None:
    """An authentic callback of that claim, as the webhook room stores it."""
    callback = Callback("runpod", job.id, token, provider_job_id)
    await evidence.callback_recorded(scene.database, callback, floor=timedelta(0))


async def is_examined(scene: Scene, job: Job) -> bool:
    """Whether no evidence of the job is left to be asked about."""
    return await evidence.unexamined_evidence(scene.database, [job.id]) == []


async def test_a_job_comes_back_once_the_provider_confirms_the_id(scene: Scene) -> None:
    job, claim = await unknown(scene)
    provider_job_id = await scene.fake.buy()
    async with scene.reconciler():
        await called_back(scene, job, claim.token, provider_job_id)
        seen = await scene.settled(job, Stage.capturing)
    assert seen.provider_job_id == provider_job_id
    assert seen.claim_token == claim.token
    events = [entry.event for entry in await scene.told(job)]
    assert events[-2:] == ["submission_adopted", "completion_observed"]
    assert await is_examined(scene, job)
    assert len(await scene.fake.calls("run")) == 1


async def test_a_404_right_after_the_create_is_no_answer(scene: Scene) -> None:
    job, claim = await unknown(scene)
    await called_back(scene, job, claim.token, await scene.fake.buy(NOT_YET))
    async with scene.reconciler():
        seen = await scene.settled(job, Stage.capturing)
    assert len(await scene.fake.calls("status", seen.provider_job_id)) >= 3


async def test_an_id_that_is_never_confirmed_is_given_up_in_the_end(scene: Scene) -> None:
    job, claim = await unknown(scene)
    await called_back(scene, job, claim.token, await scene.fake.buy(NEVER))
    async with scene.reconciler():
        await until_asked(scene, 2)
        assert not await is_examined(scene, job)
        await scene.run(
            "UPDATE submission_claims SET claimed_at = claimed_at - interval '1 hour'"
            " WHERE token = $1",
            claim.token,
        )
        with capture_logs() as logs:
            await until(lambda: is_examined(scene, job))
            await until(lambda: rests(scene, job))
    assert "evidence_given_up" in [entry["event"] for entry in logs]
    assert (await scene.job(job)).stage is Stage.unknown


async def until_asked(scene: Scene, times: int) -> None:
    async def was_asked() -> bool:
        return len(await scene.fake.calls("status")) >= times

    await until(was_asked)


async def rests(scene: Scene, job: Job) -> bool:
    return (await scene.job(job)).next_check_at is None


async def test_an_id_that_another_job_holds_is_refused_with_an_alarm(scene: Scene) -> None:
    holder = await scene.bought()
    assert holder.provider_job_id is not None
    job, claim = await unknown(scene)
    await called_back(scene, job, claim.token, holder.provider_job_id)
    with capture_logs() as logs:
        async with scene.reconciler():
            await until(lambda: is_examined(scene, job))
            await until(lambda: rests(scene, job))
    assert "adoption_refused" in [entry["event"] for entry in logs]
    assert (await scene.job(job)).stage is Stage.unknown


async def test_a_wrong_id_does_not_keep_the_right_one_waiting(scene: Scene) -> None:
    job, claim = await unknown(scene)
    await called_back(scene, job, claim.token, await scene.fake.buy(NEVER))
    right = await scene.fake.buy()
    await called_back(scene, job, claim.token, right)
    async with scene.reconciler():
        seen = await scene.settled(job, Stage.capturing)
    assert seen.provider_job_id == right


async def test_manual_adoption_only_reports(scene: Scene) -> None:
    job, claim = await unknown(scene)
    await called_back(scene, job, claim.token, await scene.fake.buy())
    with capture_logs() as logs:
        async with scene.reconciler(adoption="manual"):
            await until_asked(scene, 2)
    assert "adoption_waits_for_operator" in [entry["event"] for entry in logs]
    assert (await scene.job(job)).stage is Stage.unknown
    assert not await is_examined(scene, job)


async def test_a_claim_that_a_restore_took_away_is_asked_where_jobs_go_today(
    scene: Scene,
) -> None:
    job = await rows.requested(scene.database)
    provider_job_id = await scene.fake.buy()
    await called_back(scene, job, uuid4(), provider_job_id)
    held = await scene.job(job)
    assert (held.stage, held.attention_reason) == (Stage.unknown, "restored_state")
    async with scene.reconciler():
        seen = await scene.settled(job, Stage.capturing)
    assert seen.provider_job_id == provider_job_id
    assert len(await scene.fake.calls("run")) == 1


async def test_a_wish_to_cancel_is_sent_once_the_id_is_known(scene: Scene) -> None:
    job, claim = await unknown(scene)
    rows.landed(await admission.cancel_requested(scene.database, job.id, rows.OWNER))
    running = await scene.fake.buy({"job": {"queue_s": 0, "run_s": "forever"}})
    await called_back(scene, job, claim.token, running)
    async with scene.reconciler():
        seen = await scene.settled(job, Stage.cancelled)
    assert seen.provider_job_id == running
    assert len(await scene.fake.calls("cancel", running)) == 1


async def test_an_unknown_job_of_a_provider_without_a_key_waits(scene: Scene) -> None:
    claim = await rows.claimed(
        scene.database, await rows.requested(scene.database, provider="elsewhere")
    )
    job = rows.landed(await submission.submission_uncertain(scene.database, claim, reason="cut"))
    callback = Callback("elsewhere", job.id, claim.token, "elsewhere-1")
    await evidence.callback_recorded(scene.database, callback, floor=timedelta(0))

    async def was_put_off() -> bool:
        seen = await scene.job(job)
        return seen.check_attempts > 0 and seen.lease_token is None

    async with scene.reconciler():
        await until(was_put_off)
    assert not await is_examined(scene, job)
