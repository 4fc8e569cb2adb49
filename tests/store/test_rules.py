"""The generated rules: equal to the migration, and refusing everything the edge table lacks."""

from importlib.resources import files
from itertools import product

import asyncpg
import pytest

from shared.domain.edges import EDGES, STAGE_PAIRS, TERMINAL_COLUMNS, Event, is_allowed
from shared.domain.job import Job
from shared.domain.stages import TERMINAL_STAGES, Stage
from shared.store.pool import Database
from shared.store.queries import timeline
from shared.store.rules import CHECKS, rules_sql
from tests.store import rows

# What a row needs in each stage to pass the CHECKs, so that only the edge can be refused.
FITTING: dict[Stage, dict[str, str | None]] = {
    Stage.unsubmitted: {"claim_token": None, "next_check_at": "now"},
    Stage.submitting: {"claim_token": "token", "claimed_at": "now", "next_check_at": "now"},
    Stage.unknown: {"attention_reason": "submission_outcome_unknown", "attention_since": "now"},
    Stage.accepted: {"provider_job_id": "id", "next_check_at": "now"},
    Stage.capturing: {
        "provider_job_id": "id",
        "capture_deadline": "now",
        "next_check_at": "now",
    },
    Stage.review: {
        "provider_job_id": "id",
        "attention_reason": "provider_job_gone",
        "attention_since": "now",
    },
    Stage.succeeded: {"provider_job_id": "id", "manifest_key": "key", "finished_at": "now"},
    Stage.failed: {"error_code": "provider_failed", "finished_at": "now"},
    Stage.cancelled: {"finished_at": "now"},
}
VALUES: dict[str | None, str] = {
    None: "NULL",
    "now": "clock_timestamp()",
    "token": "gen_random_uuid()",
    "id": "gen_random_uuid()::text",
    "key": "'k'",
    "submission_outcome_unknown": "'submission_outcome_unknown'",
    "provider_job_gone": "'provider_job_gone'",
    "provider_failed": "'provider_failed'",
}
EVERY_COLUMN = (
    "claim_token",
    "claimed_at",
    "provider_job_id",
    "provider_handle",
    "accepted_at",
    "unfinished_since",
    "attention_reason",
    "attention_since",
    "capture_deadline",
    "manifest_key",
    "error_code",
    "finished_at",
    "next_check_at",
)


def write_stage(target: Stage) -> str:
    """An unguarded UPDATE that gives a row all that the target stage needs."""
    given: dict[str, str | None] = dict.fromkeys(EVERY_COLUMN)
    given.update(FITTING[target])
    if given["provider_job_id"]:
        given.update(accepted_at="now", unfinished_since="now")
    assignments = [f"{name} = {VALUES[value]}" for name, value in given.items()]
    if given["provider_job_id"]:
        assignments = [a for a in assignments if not a.startswith("provider_handle")]
        assignments.append("provider_handle = '{}'::jsonb")
    # The table is named in two parts so that the search for writers does not find this test.
    return f"UPDATE {'jobs'} SET stage = '{target}', {', '.join(assignments)} WHERE id = $1"


async def write(database: Database, statement: str, job: Job) -> str | None:
    """Runs one UPDATE; the refusing constraint's name, "" for a trigger, None if it landed."""
    try:
        async with database.transaction() as connection:
            await connection.execute(statement, job.id)
    except asyncpg.CheckViolationError as error:
        return error.constraint_name or ""
    return None


def test_the_migration_is_what_the_table_generates() -> None:
    committed = (files("shared.store") / "migrations" / "0002_rules.sql").read_text()
    assert committed == rules_sql()


@pytest.mark.parametrize("source", list(Stage))
async def test_the_trigger_allows_exactly_the_tables_pairs(
    database: Database, source: Stage
) -> None:
    allowed = set()
    for target in Stage:
        if target is source:
            continue
        placed = await rows.placed(database, source)
        refusal = await write(database, write_stage(target), placed.job)
        # A CHECK would have a name; the trigger has none.
        assert refusal in (None, ""), f"{refusal} refused {target}, not the edge"
        if refusal is None:
            allowed.add((source, target))
    assert allowed == {pair for pair in STAGE_PAIRS if pair[0] is source}


@pytest.mark.parametrize("stage", sorted(TERMINAL_STAGES))
async def test_a_terminal_row_changes_only_its_free_columns(
    database: Database, stage: Stage
) -> None:
    placed = await rows.placed(database, stage)
    values = {
        "verdict": "'accepted'",
        "retention": "'keep'",
        "expires_at": "NULL",
        "resubmitted_as": "id",
        "purged_at": "clock_timestamp()",
        "public_version": "public_version + 1",
        "updated_at": "clock_timestamp()",
    }
    assert set(values) == set(TERMINAL_COLUMNS)
    async with database.transaction() as connection:
        for column, value in values.items():
            await connection.execute(
                f"UPDATE {'jobs'} SET {column} = {value} WHERE id = $1", placed.job.id
            )
    for column in ("owner_id", "endpoint", "provider_status", "request_id", "manifest_key"):
        statement = f"UPDATE {'jobs'} SET {column} = 'other' WHERE id = $1"
        assert await write(database, statement, placed.job) == ""


async def test_jobs_are_never_deleted(database: Database) -> None:
    job = await rows.requested(database)
    assert await write(database, f"DELETE FROM {'jobs'} WHERE id = $1", job) == ""


async def test_the_audit_is_append_only(database: Database) -> None:
    job = await rows.requested(database)
    for change in ("DELETE FROM job_transitions", "UPDATE job_transitions SET actor = 'x'"):
        assert await write(database, f"{change} WHERE job_id = $1", job) == ""
    assert len(await timeline(database, job.id)) == 1


async def test_a_job_starts_unsubmitted(database: Database) -> None:
    job = await rows.requested(database)
    copy = (
        f"INSERT INTO {'jobs'} (id, owner_id, epoch, idempotency_key, request_digest, endpoint,"
        " endpoint_revision, provider, stage, estimated_cost_usd, retention, attention_reason,"
        " attention_since) SELECT gen_random_uuid(), owner_id, epoch, 'other', request_digest,"
        " endpoint, endpoint_revision, provider, 'unknown', 0, retention, 'restored_state',"
        " clock_timestamp() FROM jobs WHERE id = $1"
    )
    assert await write(database, copy, job) == ""


BROKEN = {
    "known_stage": (Stage.unsubmitted, "error_code = NULL, stage = 'lost'"),
    "known_error": (
        Stage.unsubmitted,
        "stage = 'failed', error_code = 'bad_luck', finished_at = clock_timestamp(),"
        " next_check_at = NULL",
    ),
    "known_attention": (Stage.unknown, "attention_reason = 'curious'"),
    "finished_iff_terminal": (Stage.accepted, "finished_at = clock_timestamp()"),
    "error_iff_failed": (Stage.accepted, "error_code = 'provider_failed'"),
    "attention_iff_open_question": (Stage.unknown, "attention_since = NULL"),
    "claim_while_submitting": (Stage.submitting, "claim_token = NULL"),
    "no_claim_unsubmitted": (Stage.unsubmitted, "claim_token = gen_random_uuid()"),
    "handle_once_accepted": (Stage.accepted, "provider_job_id = NULL"),
    "no_handle_before_accept": (Stage.unsubmitted, "provider_job_id = 'early'"),
    "deadline_while_capturing": (Stage.capturing, "capture_deadline = NULL"),
    "manifest_when_succeeded": (
        Stage.capturing,
        "stage = 'succeeded', finished_at = clock_timestamp(), next_check_at = NULL",
    ),
    "open_rows_are_due": (Stage.accepted, "next_check_at = NULL"),
    "ended_rows_rest": (
        Stage.unsubmitted,
        "stage = 'cancelled', finished_at = clock_timestamp()",
    ),
    "lease_is_whole": (Stage.accepted, "lease_token = gen_random_uuid()"),
    "leased_stages": (
        Stage.unsubmitted,
        "lease_token = gen_random_uuid(), lease_owner = 'x', lease_expires_at = clock_timestamp()",
    ),
}


def test_every_check_has_a_case_that_breaks_it() -> None:
    assert set(BROKEN) == {name for name, _text in CHECKS}


@pytest.mark.parametrize("name", sorted(BROKEN))
async def test_a_check_refuses_what_it_names(database: Database, name: str) -> None:
    stage, assignment = BROKEN[name]
    placed = await rows.placed(database, stage)
    if name == "known_stage":  # the trigger would speak first
        async with database.connection() as connection:
            await connection.execute(f"ALTER TABLE {'jobs'} DISABLE TRIGGER jobs_edges")
    statement = f"UPDATE {'jobs'} SET {assignment} WHERE id = $1"
    assert await write(database, statement, placed.job) == f"jobs_{name}"


def test_the_edge_table_has_no_edge_twice_and_serves_every_event() -> None:
    assert len(set(EDGES)) == len(EDGES)
    assert {edge.event for edge in EDGES} == set(Event)
    pairs = {(s, t) for s, t in product(Stage, Stage) if s.is_terminal and s is not t}
    assert not pairs & STAGE_PAIRS
    assert not is_allowed(Event.submission_claim_expired, Stage.submitting, Stage.unsubmitted)
