"""Looking at jobs and cancelling them: one's own alone, in every stage."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from services.gateway.desk import Desk
from shared.domain.stages import Stage
from shared.store.pool import Database
from tests.store.rows import Placed, now, placed
from tests.system.gateway.bench import BODY, Caller, assert_problem, caller

PUBLIC = {
    Stage.unsubmitted: "queued",
    Stage.submitting: "queued",
    Stage.unknown: "unknown",
    Stage.accepted: "queued",
    Stage.capturing: "saving",
    Stage.review: "review",
    Stage.succeeded: "succeeded",
    Stage.failed: "failed",
    Stage.cancelled: "cancelled",
}
MISSING = ["nope", "", "%00", "0" * 36, "{" + "0" * 36 + "}", "urn:uuid:" + str(uuid4()), "é" * 9]


async def look(owner: Caller, stage: Stage, database: Database) -> tuple[Placed, httpx.Response]:
    """A job in that stage, and what its owner sees."""
    held = await placed(database, stage)
    return held, await owner.http.get(f"/v1/jobs/{held.job.id}")


@pytest.mark.parametrize("stage", Stage)
async def test_every_stage_shows_its_status_and_exactly_what_belongs_to_it(
    owner: Caller, database: Database, stage: Stage
) -> None:
    held, answer = await look(owner, stage, database)
    assert answer.status_code == 200
    job = answer.json()
    assert job["status"] == PUBLIC[stage]
    shown = {name for name in ("result", "error", "attention") if job[name] is not None}
    assert shown == {
        Stage.succeeded: {"result"},
        Stage.failed: {"error"},
        Stage.unknown: {"attention"},
        Stage.review: {"attention"},
    }.get(stage, set())
    row = await now(database, held.job)
    assert answer.headers["etag"] == f'"{row.public_version}"'
    assert answer.headers["cache-control"] == "private, no-cache"
    assert answer.headers["vary"] == "Prefer"
    assert ("retry-after" in answer.headers) is not stage.is_terminal
    assert (job["finished_at"] is not None) is stage.is_terminal
    assert "provider.test" not in answer.text
    assert "results/" not in answer.text


async def test_result_error_and_attention_have_their_shapes(
    owner: Caller, database: Database
) -> None:
    held, answer = await look(owner, Stage.succeeded, database)
    (artifact,) = answer.json()["result"]["artifacts"]
    href = f"/v1/jobs/{held.job.id}/artifacts/master"
    assert artifact == {
        "name": "master",
        "media_type": "video/mp4",
        "bytes": 1000,
        "sha256": "ab" * 32,
        "href": href,
    }
    result = await owner.http.get(f"/v1/jobs/{held.job.id}/result")
    assert (result.status_code, result.headers["location"]) == (303, href)

    held, answer = await look(owner, Stage.failed, database)
    error = answer.json()["error"]
    assert error["code"] == "provider_failed"
    assert set(error) == {"code", "message", "retryable", "actions"}
    result = await owner.http.get(f"/v1/jobs/{held.job.id}/result")
    assert assert_problem(result, 409, "job_failed")["error"] == error

    held, answer = await look(owner, Stage.unknown, database)
    attention = answer.json()["attention"]
    assert attention["reason"] == "submission_outcome_unknown"
    assert attention["max_extra_cost_usd"] == "0.0500"
    assert set(attention) == {
        *("reason", "since", "explanation", "max_extra_cost_usd", "actions"),
    }
    assert attention["actions"] == ["resubmit", "abandon", "cancel"]
    result = await owner.http.get(f"/v1/jobs/{held.job.id}/result")
    assert_problem(result, 409, "not_ready")
    assert int(result.headers["retry-after"]) > 0

    held, answer = await look(owner, Stage.cancelled, database)
    result = await owner.http.get(f"/v1/jobs/{held.job.id}/result")
    assert_problem(result, 409, "job_cancelled")


async def test_a_version_that_the_caller_holds_is_not_sent_again(
    owner: Caller, database: Database
) -> None:
    held, answer = await look(owner, Stage.unsubmitted, database)
    path, etag = f"/v1/jobs/{held.job.id}", answer.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        same = await owner.http.get(path, headers={"If-None-Match": known})
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == etag
        assert same.headers["cache-control"] == "private, no-cache"
    await owner.http.post(f"{path}/cancel")
    changed = await owner.http.get(path, headers={"If-None-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag
    head = await owner.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == changed.headers["etag"]


async def test_missing_foreign_and_malformed_ids_get_the_same_answer(
    owner: Caller, desk: Desk, database: Database
) -> None:
    foreign = (await (await caller(desk, "owner-2")).post(BODY)).json()["id"]
    for tail in ("", "/cancel", "/result", "/artifacts/master"):
        answers = []
        for job_id in (foreign, str(uuid4()), *MISSING):
            method = "POST" if tail == "/cancel" else "GET"
            answers.append(await owner.http.request(method, f"/v1/jobs/{job_id}{tail}"))
        seen = set()
        for answer in answers:
            document: dict[str, Any] = assert_problem(answer, 404, "not_found")
            request_id = document.pop("request_id")
            headers = [pair for pair in answer.headers.raw if request_id.encode() not in pair[1]]
            seen.add((str(document), str(sorted(headers)).replace("/v1/jobs", "")))
        # An empty id is another route, and so another collection; all else must be equal.
        assert len({text.replace("'/'", "'/v1/jobs'") for text, _ in seen}) == 1
    other = await desk_owner_sees(desk, foreign)
    assert other.json()["cancel_requested"] is False


async def desk_owner_sees(desk: Desk, job_id: str) -> httpx.Response:
    """The foreign job as its own owner sees it."""
    return await (await caller(desk, "owner-2")).http.get(f"/v1/jobs/{job_id}")


@pytest.mark.parametrize("stage", Stage)
async def test_cancelling_in_every_stage(owner: Caller, database: Database, stage: Stage) -> None:
    held = await placed(database, stage)
    answer = await owner.http.post(f"/v1/jobs/{held.job.id}/cancel")
    if stage.is_terminal:
        assert_problem(answer, 409, "already_terminal")
        return
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert job["cancel_requested"] is True
    is_at_once = stage is Stage.unsubmitted
    assert job["status"] == ("cancelled" if is_at_once else PUBLIC[stage])
    again = await owner.http.post(f"/v1/jobs/{held.job.id}/cancel")
    assert again.status_code == (409 if is_at_once else 202)
