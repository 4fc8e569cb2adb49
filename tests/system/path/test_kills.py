"""Every room killed in the middle of fifty jobs, several times.

Nothing may be paid twice, nothing lost: by the provider's journal and the audit rows, not by what
the rooms say of themselves.
"""

import asyncio
from uuid import uuid4

import pytest

from tests.system.path.stack import ROOMS, Stack
from tests.system.path.test_path import rows

ROUNDS = 2
JOBS = 50
# Creates are answered late, so that a killed submitter surely has calls in flight.
SLOW_CREATE = {"create": {"delay_s": 0.4}, "webhook": {"send": False}}


async def kill_in_the_middle(stack: Stack, room: str, keys: list[str]) -> None:
    """Kills the room once a few of these jobs are where it works on them; waits for its return."""
    reached = {
        "gateway": "stage IS NOT NULL",
        "relay": "stage IS NOT NULL",
        "submitter": "stage = 'submitting'",
        "reconciler": "accepted_at IS NOT NULL",
        "archiver": "stage IN ('capturing', 'succeeded')",
        "webhook": "stage IN ('capturing', 'succeeded')",
    }[room]
    statement = f"SELECT count(*) FROM jobs WHERE idempotency_key = ANY ($1) AND {reached}"
    while True:
        (seen,) = await rows(stack, statement, keys)
        if seen["count"] >= 3:
            break
        await asyncio.sleep(0.02)
    await asyncio.to_thread(stack.kill, room)
    await asyncio.to_thread(stack.wait_ready, room)


@pytest.mark.parametrize("room", ROOMS)
async def test_a_killed_room_costs_no_money_and_no_result(stack: Stack, room: str) -> None:
    for _ in range(ROUNDS):
        keys = [f"kill-{room}-{uuid4()}" for _ in range(JOBS)]
        script = SLOW_CREATE if room == "submitter" else None
        ids, _ = await asyncio.gather(
            asyncio.to_thread(stack.post_many, keys, script),
            kill_in_the_middle(stack, room, keys),
        )
        statuses = {
            job_id: (await asyncio.to_thread(stack.settled, job_id))["status"] for job_id in ids
        }
        allowed = {"succeeded", "unknown"} if room == "submitter" else {"succeeded"}
        assert set(statuses.values()) <= allowed, statuses
        await judge(stack, ids, statuses)
    if room == "submitter":
        (ended,) = await rows(
            stack, "SELECT count(*) FROM submission_claims WHERE outcome = 'expired'"
        )
        assert ended["count"] > 0, "no kill landed between a claim and its accept"


async def judge(stack: Stack, ids: list[str], statuses: dict[str, str]) -> None:
    """By the journal and the audit: at most one create a job, one claim, no second try."""
    creates = stack.creates_by_prompt()
    assert all(count == 1 for count in creates.values())
    claims = await rows(
        stack,
        "SELECT job_id, count(*) AS claims, array_agg(outcome) AS outcomes"
        " FROM submission_claims WHERE job_id = ANY ($1::uuid[]) GROUP BY job_id",
        ids,
    )
    by_job = {str(row["job_id"]): row for row in claims}
    for job_id, status in statuses.items():
        outcomes = by_job[job_id]["outcomes"]
        if status == "unknown":
            assert outcomes[-1] in ("expired", "uncertain")
            assert outcomes.count("expired") + outcomes.count("uncertain") == 1
        # A claim given back is one that provably sent nothing; all others stand alone.
        assert sum(outcome != "released" for outcome in outcomes) == 1
    (again,) = await rows(
        stack,
        "SELECT count(*) FROM job_transitions WHERE from_stage = 'unknown'"
        " AND event <> 'submission_adopted'",
    )
    assert again["count"] == 0
