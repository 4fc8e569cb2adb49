"""Database rules generated from the edge table: the trigger and the CHECKs.

So each rule stands in the WHERE of a statement, in a trigger and in a CHECK, and the last two
cannot drift from `shared.domain.edges`. The committed migration must equal `rules_sql()`;
`python -m shared.store.rules` prints it.
"""

from enum import StrEnum

from shared.domain.edges import STAGE_PAIRS, TERMINAL_COLUMNS
from shared.domain.stages import AttentionReason, ErrorCode, Stage


def _quoted(values: list[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _names(kind: type[StrEnum]) -> str:
    return _quoted([member.value for member in kind])


def _stages(*, terminal: bool) -> str:
    return _quoted(sorted(stage.value for stage in Stage if stage.is_terminal is terminal))


CHECKS: tuple[tuple[str, str], ...] = (
    ("known_stage", f"stage IN ({_names(Stage)})"),
    ("known_error", f"error_code IN ({_names(ErrorCode)})"),
    ("known_attention", f"attention_reason IN ({_names(AttentionReason)})"),
    (
        "finished_iff_terminal",
        f"(finished_at IS NOT NULL) = (stage IN ({_stages(terminal=True)}))",
    ),
    ("error_iff_failed", "(error_code IS NOT NULL) = (stage = 'failed')"),
    (
        "attention_iff_open_question",
        "(attention_reason IS NOT NULL) = (stage IN ('unknown', 'review'))"
        " AND (attention_since IS NOT NULL) = (attention_reason IS NOT NULL)",
    ),
    (
        "claim_while_submitting",
        "stage <> 'submitting' OR (claim_token IS NOT NULL AND claimed_at IS NOT NULL)",
    ),
    ("no_claim_unsubmitted", "stage <> 'unsubmitted' OR claim_token IS NULL"),
    (
        "handle_once_accepted",
        "stage NOT IN ('accepted', 'capturing', 'review', 'succeeded')"
        " OR (provider_job_id IS NOT NULL AND provider_handle IS NOT NULL"
        " AND accepted_at IS NOT NULL AND unfinished_since IS NOT NULL)",
    ),
    (
        "no_handle_before_accept",
        "stage NOT IN ('unsubmitted', 'submitting', 'unknown') OR provider_job_id IS NULL",
    ),
    ("deadline_while_capturing", "stage <> 'capturing' OR capture_deadline IS NOT NULL"),
    ("manifest_when_succeeded", "stage <> 'succeeded' OR manifest_key IS NOT NULL"),
    (
        "open_rows_are_due",
        "stage NOT IN ('unsubmitted', 'submitting', 'accepted', 'capturing')"
        " OR next_check_at IS NOT NULL",
    ),
    (
        "ended_rows_rest",
        f"stage NOT IN ({_stages(terminal=True)})"
        " OR (next_check_at IS NULL AND lease_token IS NULL)",
    ),
    (
        "lease_is_whole",
        "num_nulls(lease_token, lease_owner, lease_expires_at) IN (0, 3)",
    ),
    (
        "leased_stages",
        "lease_token IS NULL OR stage IN ('accepted', 'review', 'unknown', 'capturing')",
    ),
)


def rules_sql() -> str:
    """The whole of migration 0002: CHECKs and the two triggers, as SQL text."""
    checks = "".join(
        f"ALTER TABLE jobs ADD CONSTRAINT jobs_{name}\n    CHECK ({text});\n"
        for name, text in CHECKS
    )
    pairs = ",\n            ".join(
        f"('{source}', '{target}')" for source, target in sorted(STAGE_PAIRS)
    )
    return (
        "-- breaking: no\n"
        "-- Generated from the edge table; do not edit by hand.\n\n"
        f"{checks}\n{_EDGE_TRIGGER.replace('%PAIRS%', pairs)}\n{_terminal_trigger()}"
    )


_EDGE_TRIGGER = """\
CREATE FUNCTION jobs_refuse_unknown_edge() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF new.stage <> 'unsubmitted' THEN
            RAISE EXCEPTION 'a job starts unsubmitted, not %', new.stage
                USING ERRCODE = 'check_violation';
        END IF;
    ELSIF (old.stage, new.stage) NOT IN (
            %PAIRS%
        ) THEN
        RAISE EXCEPTION 'no event moves a job from % to %', old.stage, new.stage
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN new;
END
$$;
CREATE TRIGGER jobs_first_stage BEFORE INSERT ON jobs
    FOR EACH ROW EXECUTE FUNCTION jobs_refuse_unknown_edge();
CREATE TRIGGER jobs_edges BEFORE UPDATE ON jobs
    FOR EACH ROW WHEN (old.stage IS DISTINCT FROM new.stage)
    EXECUTE FUNCTION jobs_refuse_unknown_edge();
"""


def _terminal_trigger() -> str:
    free = _quoted(list(TERMINAL_COLUMNS))
    return f"""\
CREATE FUNCTION jobs_refuse_terminal_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'jobs are never deleted' USING ERRCODE = 'check_violation';
    END IF;
    IF to_jsonb(old) - ARRAY[{free}]
            IS DISTINCT FROM to_jsonb(new) - ARRAY[{free}] THEN
        RAISE EXCEPTION 'a % job does not change', old.stage
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN new;
END
$$;
CREATE TRIGGER jobs_terminal BEFORE UPDATE ON jobs
    FOR EACH ROW WHEN (old.finished_at IS NOT NULL)
    EXECUTE FUNCTION jobs_refuse_terminal_change();
CREATE TRIGGER jobs_keep BEFORE DELETE ON jobs
    FOR EACH ROW EXECUTE FUNCTION jobs_refuse_terminal_change();
"""


if __name__ == "__main__":
    print(rules_sql(), end="")  # noqa: T201 - this module's one purpose as a program
