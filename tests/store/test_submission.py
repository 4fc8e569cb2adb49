"""The paid call's events: caps, evidence, releases, uncertain commits, expiry, restores."""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from shared.domain.errors import Uncertain
from shared.domain.stages import Stage
from shared.store.pool import Database
from shared.store.queries import claims_of, timeline
from shared.store.transitions import admission, evidence, submission
from shared.store.transitions.record import FenceLost
from tests.store import rows
from tests.store.rows import HOUR, NOW


async def count(database: Database, table: str) -> int:
    """How many rows a table has."""
    async with database.connection() as connection:
        value: int = await connection.fetchval(f"SELECT count(*) FROM {table}")
    return value


async def test_a_claim_hands_out_the_input_once(database: Database) -> None:
    job = await rows.requested(database, input_json='{"prompt":"\\u0000"}')
    (claim,) = await submission.submission_claimed(database, rows.terms(), batch=16)
    assert claim.job.id == job.id
    assert claim.input_json == '{"prompt":"\\u0000"}'
    assert claim.job.claim_token == claim.token
    assert await submission.submission_claimed(database, rows.terms(), batch=16) == []
    (entry,) = await claims_of(database, job.id)
    assert entry["token"] == claim.token
    assert entry["outcome"] is None


async def test_the_cap_counts_every_stage_in_flight_but_resubmitted_and_overdue(
    database: Database,
) -> None:
    for stage in (Stage.submitting, Stage.accepted, Stage.unknown, Stage.review):
        await rows.placed(database, stage)
    await rows.placed(database, Stage.capturing)  # does not count
    for _ in range(3):
        await rows.requested(database)
    assert len(await submission.submission_claimed(database, rows.terms(5), batch=16)) == 1
    overdue = replace(rows.terms(5), counts_for=NOW)
    assert len(await submission.submission_claimed(database, overdue, batch=16)) == 2


async def test_two_batches_never_share_a_token(database: Database) -> None:
    for _ in range(20):
        await rows.requested(database)
    first = await submission.submission_claimed(database, rows.terms(), batch=16)
    second = await submission.submission_claimed(database, rows.terms(), batch=16)
    tokens = {claim.token for claim in first + second}
    assert (len(first), len(second), len(tokens)) == (16, 4, 20)


async def test_an_unclear_commit_raises_uncertain_and_expires_to_unknown(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notice during COMMIT is how a cancelled wait for a standby looks."""
    job = await rows.requested(database)
    async with database.connection() as connection:
        await connection.execute("""
            CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE WARNING 'not replicated'; RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON submission_claims
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION warn();
        """)
    with pytest.raises(Uncertain):
        await submission.submission_claimed(database, rows.terms(), batch=1)
    # The row is there all the same; the sweep finds it, and nobody may have called.
    assert (await rows.now(database, job)).stage is Stage.submitting
    (expired,) = await submission.submission_claims_expired(database, claim_life=NOW, batch=5)
    assert expired.stage is Stage.unknown


async def test_an_accept_written_twice_lands_twice(database: Database) -> None:
    claim = await rows.claimed(database)
    handle = rows.handle()
    first = await submission.submission_accepted(database, claim, handle, first_check=HOUR)
    again = await submission.submission_accepted(database, claim, handle, first_check=HOUR)
    assert rows.landed(first).provider_job_id == handle.provider_job_id
    assert rows.landed(again).stage is Stage.accepted
    events = [entry.event for entry in await timeline(database, claim.job.id)]
    assert events == ["job_requested", "submission_claimed", "submission_accepted"]


async def test_an_id_that_another_row_holds_is_evidence_and_never_a_handle(
    database: Database,
) -> None:
    taken = rows.handle()
    await rows.accepted(database, taken.provider_job_id)
    claim = await rows.claimed(database)
    landing = await submission.submission_accepted(database, claim, taken, first_check=NOW)
    assert landing == FenceLost(Stage.unknown)
    (found,) = await evidence.unexamined_evidence(database, [claim.job.id])
    assert found.provider_job_id == taken.provider_job_id


async def test_a_release_gives_the_row_back_later(database: Database) -> None:
    claim = await rows.claimed(database)
    job = rows.landed(
        await submission.submission_released(database, claim, reason="unsent", again_after=HOUR)
    )
    assert job.stage is Stage.unsubmitted
    assert job.claim_token is None
    assert await submission.submission_claimed(database, rows.terms(), batch=1) == []
    (entry,) = await claims_of(database, job.id)
    assert (entry["outcome"], entry["reason"]) == ("released", "unsent")


@pytest.mark.parametrize("provider_job_id", ["p-1", None])
async def test_a_release_with_evidence_at_hand_goes_to_unknown(
    database: Database, provider_job_id: str | None
) -> None:
    claim = await rows.claimed(database)
    callback = evidence.Callback("runpod", claim.job.id, claim.token, provider_job_id)
    await evidence.callback_recorded(database, callback, floor=NOW)
    job = rows.landed(
        await submission.submission_released(database, claim, reason="429", again_after=NOW)
    )
    assert job.stage is Stage.unknown
    assert job.attention_reason == "release_contradicted"
    assert (job.next_check_at is not None) == (provider_job_id is not None)


async def test_evidence_forbids_a_claim(database: Database) -> None:
    claim = await rows.claimed(database)
    job = rows.landed(
        await submission.submission_released(database, claim, reason="x", again_after=NOW)
    )
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO callback_evidence (job_id, claim_token, provider, source)"
            " VALUES ($1, $2, 'runpod', 'test')",
            job.id,
            claim.token,
        )
    assert await submission.submission_claimed(database, rows.terms(), batch=1) == []


async def test_an_expiry_leaves_young_claims_alone(database: Database) -> None:
    await rows.claimed(database)
    assert await submission.submission_claims_expired(database, claim_life=HOUR, batch=5) == []
    (expired,) = await submission.submission_claims_expired(database, claim_life=NOW, batch=5)
    (entry,) = await claims_of(database, expired.id)
    assert entry["outcome"] == "expired"


async def test_a_copied_database_stops_claims_and_softens_cancels(database: Database) -> None:
    """The epoch row's transaction id no longer fits: what a dump restored in place looks like."""
    job = await rows.requested(database)
    async with database.connection() as connection:
        await connection.execute("UPDATE submission_epoch SET reason = 'rewritten'")
    assert await submission.submission_claimed(database, rows.terms(), batch=1) == []
    assert await submission.never_submitted(database, rows.ENDPOINT, within=NOW, batch=5) == []
    landing = await admission.cancel_requested(database, job.id, rows.OWNER)
    assert rows.landed(landing).stage is Stage.unsubmitted
    assert rows.landed(landing).cancel_requested
    assert await admission.standing_cancels_honoured(database, batch=5) == []
    later = await rows.requested(database)
    assert (job.epoch, later.epoch) == (1, 2)


async def test_standing_cancels_are_honoured_once_claims_run(database: Database) -> None:
    job = await rows.requested(database)
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO submission_witness (latched_at, latch_reason) VALUES (now(), 'test')"
        )
    await admission.cancel_requested(database, job.id, rows.OWNER)
    async with database.connection() as connection:
        await connection.execute("DELETE FROM submission_witness")
    (cancelled,) = await admission.standing_cancels_honoured(database, batch=5)
    assert cancelled.stage is Stage.cancelled


async def test_a_waiting_job_ends_unpaid_after_its_time(database: Database) -> None:
    job = await rows.requested(database)
    assert await submission.never_submitted(database, rows.ENDPOINT, within=HOUR, batch=5) == []
    (ended,) = await submission.never_submitted(database, rows.ENDPOINT, within=NOW, batch=5)
    assert (ended.id, ended.error_code) == (job.id, "never_submitted")
    assert await count(database, "submission_claims") == 0


async def test_a_late_accept_of_a_forgotten_claim_holds_the_row(database: Database) -> None:
    """A restore took the claim away; the answer that was on its way is evidence all the same."""
    job = await rows.requested(database)
    claim = submission.Claim(job, uuid4(), "{}", 0.0)
    landing = await submission.submission_accepted(
        database, claim, rows.handle(), first_check=timedelta(0)
    )
    assert landing == FenceLost(Stage.unknown)
    held = await rows.now(database, job)
    assert held.attention_reason == "restored_state"
    (entry,) = await claims_of(database, job.id)
    assert entry["outcome"] == "restored"
