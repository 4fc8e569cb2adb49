"""Odd answers are counted by kind, and the retention clock stands once completion was seen."""

from datetime import timedelta

from shared.domain.job import Job
from shared.domain.provider import ProviderState
from shared.domain.stages import AttentionReason
from shared.store.pool import Database
from shared.store.queries import reviewed_under
from shared.store.transitions import capture, checks
from tests.store import rows

GONE, COMPLETED = ProviderState.gone, ProviderState.completed
RUNNING = ProviderState.running


async def looked(
    database: Database,
    job: Job,
    *,
    state: ProviderState | None = None,
    odd_state: ProviderState | None = None,
) -> Job:
    """One check with this answer."""
    leased = await rows.check_lease(database, job)
    return rows.landed(
        await checks.check_rescheduled(
            database,
            leased,
            delay=rows.NOW,
            state=state,
            is_unfinished=state is RUNNING,
            odd_state=odd_state,
        )
    )


async def tried(
    database: Database,
    job: Job,
    odd_state: ProviderState | None = None,
    *,
    was_silent: bool = False,
) -> Job:
    """One capture lease that ends so."""
    leased = await rows.capture_lease(database, job)
    return rows.landed(
        await capture.capture_rescheduled(
            database, leased, delay=rows.NOW, odd_state=odd_state, was_silent=was_silent
        )
    )


async def test_checks_count_equal_odd_answers_through_silence(database: Database) -> None:
    job = await rows.accepted(database)
    first = await looked(database, job, odd_state=GONE)
    assert (first.odd_answers, first.odd_state) == (1, "gone")
    silent = await looked(database, job)
    assert (silent.odd_answers, silent.odd_since) == (1, first.odd_since)
    second = await looked(database, job, odd_state=GONE)
    assert (second.odd_answers, second.odd_since) == (2, first.odd_since)


async def test_another_kind_or_a_proper_answer_counts_anew(database: Database) -> None:
    job = await rows.accepted(database)
    gone = await looked(database, job, odd_state=GONE)
    other = await looked(database, job, odd_state=COMPLETED)
    assert (other.odd_answers, other.odd_state) == (1, "completed")
    assert other.odd_since is not None
    assert gone.odd_since is not None
    assert other.odd_since > gone.odd_since
    proper = await looked(database, job, state=RUNNING)
    assert (proper.odd_answers, proper.odd_since, proper.odd_state) == (0, None, None)


async def test_an_odd_answer_changes_nothing_that_is_shown(database: Database) -> None:
    job = await rows.accepted(database)
    running = await looked(database, job, state=RUNNING)
    odd = await looked(database, job, odd_state=GONE)
    assert (odd.public_version, odd.provider_status) == (running.public_version, "running")


async def test_the_clock_moves_until_completion_was_seen(database: Database) -> None:
    job = await rows.accepted(database)
    moved = await looked(database, job, state=RUNNING)
    assert job.unfinished_since is not None
    assert moved.unfinished_since is not None
    assert moved.unfinished_since > job.unfinished_since
    await looked(database, job, odd_state=COMPLETED)
    assert (await looked(database, job, state=RUNNING)).unfinished_since == moved.unfinished_since


async def test_the_clock_stands_in_a_review_that_the_archiver_opened(database: Database) -> None:
    job = await rows.capturing(database)
    leased = await rows.capture_lease(database, job)
    reason = AttentionReason.result_refused_by_config
    rows.landed(
        await checks.review_opened(
            database, leased, reason=reason, delay=rows.NOW, rules="0123456789abcdef"
        )
    )
    assert await reviewed_under(database, job.id) == "0123456789abcdef"
    again = await looked(database, job, state=RUNNING)
    assert again.unfinished_since == job.unfinished_since


async def test_captures_count_equal_refusals_through_silence(database: Database) -> None:
    job = await rows.capturing(database)
    first = await tried(database, job, GONE)
    assert (first.odd_answers, first.odd_state) == (1, "gone")
    silent = await tried(database, job, was_silent=True)
    assert (silent.odd_answers, silent.odd_since) == (1, first.odd_since)
    second = await tried(database, job, GONE)
    assert (second.odd_answers, second.odd_since) == (2, first.odd_since)
    other = await tried(database, job, COMPLETED)
    assert (other.odd_answers, other.odd_state) == (1, "completed")
    proper = await tried(database, job)
    assert (proper.odd_answers, proper.odd_since, proper.odd_state) == (0, None, None)


async def test_captures_that_a_transfer_can_no_longer_save_go_last(database: Database) -> None:
    spans = {name: timedelta(minutes=minutes) for name, minutes in (("a", 1), ("b", 30), ("c", 9))}
    jobs = {}
    for name, retention in spans.items():
        leased = await rows.check_lease(database, await rows.accepted(database))
        observed = await checks.completion_observed(
            database, leased, retention=retention, link_life=rows.HOUR
        )
        jobs[rows.landed(observed).id] = name

    async def order(transfer: timedelta) -> str:
        taken = ""
        for _ in spans:
            (leased,) = await capture.capture_leased(
                database, holder="test", life=rows.HOUR, batch=1, transfer=transfer
            )
            taken += jobs[leased.id]
        async with database.connection() as connection:
            await connection.execute("UPDATE jobs SET lease_expires_at = clock_timestamp()")
        return taken

    assert await order(timedelta(0)) == "acb"
    assert await order(timedelta(minutes=5)) == "cba"
