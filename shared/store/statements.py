"""Every statement that writes to `jobs`, and nothing else.

Each UPDATE guards with the stage, and with the token where one is held, on its own target row;
the functions in `transitions/` bind them. Leases are judged by `clock_timestamp()`, for `now()`
stands still inside a transaction. `$1` is always the job, `$2` always the token where one is
needed.
"""

from shared.domain.job import JOB_COLUMNS

RETURNED = "old.stage AS from_stage, old.public_version AS from_version, " + ", ".join(
    f"new.{name}" for name in JOB_COLUMNS
)
_MOVED = "public_version = public_version + 1, updated_at = clock_timestamp()"
_UNLEASED = "lease_token = NULL, lease_owner = NULL, lease_expires_at = NULL"
_LEASED = "lease_token = $2 AND lease_expires_at > clock_timestamp()"
_PROPER = "odd_answers = 0, odd_since = NULL, odd_state = NULL"
_UNEXAMINED = """EXISTS (SELECT 1 FROM callback_evidence e WHERE e.job_id = jobs.id
        AND e.examined_at IS NULL AND e.provider_job_id IS NOT NULL)"""

REQUEST_SQL = f"""
INSERT INTO jobs (id, owner_id, epoch, idempotency_key, request_digest, endpoint,
    endpoint_revision, provider, stage, next_check_at, estimated_cost_usd, retention,
    request_id, traceparent)
VALUES ($1, $2,
    coalesce(coatcheck_live_epoch(), (SELECT max(epoch) + 1 FROM submission_epoch), 1),
    $3, $4, $5, $6, $7, 'unsubmitted', clock_timestamp(), $8, $9, $10, $11)
ON CONFLICT (owner_id, idempotency_key) DO NOTHING
RETURNING NULL::text AS from_stage, 0::bigint AS from_version, {", ".join(JOB_COLUMNS)}
"""

# $1 endpoint, $2 most rows, $3 tokens, $4 the wanted ids or null, $5 claim life, $6 room,
# $7 where the call goes. Runs after the endpoint's slot row was locked and counted.
CLAIM_SQL = f"""
WITH picked AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE stage = 'unsubmitted' AND endpoint = $1 AND NOT cancel_requested
      AND next_check_at <= clock_timestamp()
      AND epoch = (SELECT coatcheck_live_epoch())
      AND ($4::uuid[] IS NULL OR id = ANY ($4::uuid[]))
      AND NOT EXISTS (SELECT 1 FROM callback_evidence e WHERE e.job_id = jobs.id)
    ORDER BY next_check_at, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), numbered AS (
    SELECT id, ($3::uuid[])[row_number() OVER (ORDER BY id)] AS token FROM picked
), claimed AS (
    UPDATE jobs
    SET stage = 'submitting', claim_token = numbered.token, claimed_at = clock_timestamp(),
        unfinished_since = clock_timestamp(),
        next_check_at = clock_timestamp() + $5::interval, {_MOVED}
    FROM numbered
    WHERE jobs.id = numbered.id AND jobs.stage = 'unsubmitted' AND NOT jobs.cancel_requested
      AND jobs.epoch = (SELECT coatcheck_live_epoch())
    RETURNING {RETURNED}
), claims AS (
    INSERT INTO submission_claims (token, job_id, epoch, claimed_at, room, sent_to)
    SELECT claim_token, id, epoch, claimed_at, $6, $7::jsonb FROM claimed
)
SELECT claimed.*, job_inputs.input
FROM claimed JOIN job_inputs ON job_inputs.job_id = claimed.id
"""

# Evidence that came before the create's answer was read makes the first check due at once.
ACCEPT_SQL = f"""
UPDATE jobs
SET stage = 'accepted', provider_job_id = $3, provider_handle = $4,
    accepted_at = clock_timestamp(), provider_status = 'queued', {_MOVED},
    next_check_at = clock_timestamp() + CASE
        WHEN EXISTS (SELECT 1 FROM callback_evidence e WHERE e.job_id = jobs.id)
        THEN interval '0' ELSE $5::interval END
WHERE id = $1 AND stage = 'submitting' AND claim_token = $2
RETURNING {RETURNED}
"""

RELEASE_SQL = f"""
UPDATE jobs
SET stage = CASE WHEN cancel_requested THEN 'cancelled' ELSE 'unsubmitted' END,
    finished_at = CASE WHEN cancel_requested THEN clock_timestamp() END,
    next_check_at = CASE WHEN cancel_requested THEN NULL
        ELSE clock_timestamp() + $3::interval END,
    claim_token = NULL, claimed_at = NULL, unfinished_since = NULL, {_MOVED}
WHERE id = $1 AND stage = 'submitting' AND claim_token = $2
RETURNING {RETURNED}
"""

REFUSE_SQL = f"""
UPDATE jobs
SET stage = 'failed', error_code = 'provider_rejected', finished_at = clock_timestamp(),
    next_check_at = NULL, {_MOVED}
WHERE id = $1 AND stage = 'submitting' AND claim_token = $2
RETURNING {RETURNED}
"""

# $3 reason. Used for the holder's own uncertainty and for a refusal contradicted by evidence.
UNKNOWN_SQL = f"""
UPDATE jobs
SET stage = 'unknown', attention_reason = $3, attention_since = clock_timestamp(), {_MOVED},
    next_check_at = CASE WHEN {_UNEXAMINED} THEN clock_timestamp() END
WHERE id = $1 AND stage = 'submitting' AND claim_token = $2
RETURNING {RETURNED}
"""

# $1 is the claim's life, $2 the most rows of one pass.
EXPIRE_SQL = f"""
WITH stale AS MATERIALIZED (
    SELECT id, claim_token FROM jobs
    WHERE stage = 'submitting' AND claimed_at < clock_timestamp() - $1::interval
    ORDER BY claimed_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE jobs
SET stage = 'unknown', attention_reason = 'submission_outcome_unknown',
    attention_since = clock_timestamp(), {_MOVED},
    next_check_at = CASE WHEN {_UNEXAMINED} THEN clock_timestamp() END
FROM stale
WHERE jobs.id = stale.id AND jobs.stage = 'submitting'
  AND jobs.claim_token = stale.claim_token
  AND jobs.claimed_at < clock_timestamp() - $1::interval
RETURNING {RETURNED}
"""

# $2 reason. The callback's transaction holds the row's lock already.
HOLD_SQL = f"""
UPDATE jobs
SET stage = 'unknown', attention_reason = $2, attention_since = clock_timestamp(), {_MOVED},
    next_check_at = CASE WHEN {_UNEXAMINED} THEN clock_timestamp() END
WHERE id = $1 AND stage = 'unsubmitted'
RETURNING {RETURNED}
"""

# $1 endpoint, $2 how long it may wait, $3 the most rows of one pass.
NEVER_SUBMITTED_SQL = f"""
WITH old_rows AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE stage = 'unsubmitted' AND endpoint = $1
      AND NOT cancel_requested
      AND created_at < clock_timestamp() - $2::interval
      AND coatcheck_live_epoch() IS NOT NULL
    ORDER BY created_at LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE jobs
SET stage = 'failed', error_code = 'never_submitted', finished_at = clock_timestamp(),
    next_check_at = NULL, {_MOVED}
FROM old_rows
WHERE jobs.id = old_rows.id AND jobs.stage = 'unsubmitted' AND NOT jobs.cancel_requested
  AND coatcheck_live_epoch() IS NOT NULL
RETURNING {RETURNED}
"""

# $2 owner. While claims are stopped after a restore, even an unsubmitted job only gets the flag.
CANCEL_SQL = f"""
UPDATE jobs
SET stage = CASE WHEN stage = 'unsubmitted' AND coatcheck_live_epoch() IS NOT NULL
        THEN 'cancelled' ELSE stage END,
    finished_at = CASE WHEN stage = 'unsubmitted' AND coatcheck_live_epoch() IS NOT NULL
        THEN clock_timestamp() END,
    next_check_at = CASE WHEN stage = 'unsubmitted' AND coatcheck_live_epoch() IS NOT NULL
        THEN NULL
        WHEN stage IN ('accepted', 'review') THEN least(next_check_at, clock_timestamp())
        ELSE next_check_at END,
    cancel_requested = true, {_MOVED}
WHERE id = $1 AND owner_id = $2 AND NOT cancel_requested
  AND stage IN ('unsubmitted', 'submitting', 'unknown', 'accepted', 'capturing', 'review')
RETURNING {RETURNED}
"""

# Cancels asked for while claims were stopped, honoured once they run again. $1 the most rows.
CANCEL_STANDING_SQL = f"""
WITH asked AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE stage = 'unsubmitted' AND cancel_requested AND coatcheck_live_epoch() IS NOT NULL
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE jobs
SET stage = 'cancelled', finished_at = clock_timestamp(), next_check_at = NULL, {_MOVED}
FROM asked
WHERE jobs.id = asked.id AND jobs.stage = 'unsubmitted' AND jobs.cancel_requested
  AND coatcheck_live_epoch() IS NOT NULL
RETURNING {RETURNED}
"""

# $1 the most rows, $2 tokens, $3 holder, $4 the lease's life, $5 the wanted ids or null.
LEASE_CHECKS_SQL = f"""
WITH due AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE stage IN ('accepted', 'review', 'unknown') AND next_check_at <= clock_timestamp()
      AND (lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp())
      AND ($5::uuid[] IS NULL OR id = ANY ($5::uuid[]))
    ORDER BY next_check_at LIMIT $1 FOR UPDATE SKIP LOCKED
), numbered AS (
    SELECT id, ($2::uuid[])[row_number() OVER (ORDER BY id)] AS token FROM due
)
UPDATE jobs
SET lease_token = numbered.token, lease_owner = $3,
    lease_expires_at = clock_timestamp() + $4::interval,
    check_attempts = check_attempts + 1, checked_at = clock_timestamp()
FROM numbered
WHERE jobs.id = numbered.id AND jobs.stage IN ('accepted', 'review', 'unknown')
  AND (jobs.lease_expires_at IS NULL OR jobs.lease_expires_at <= clock_timestamp())
RETURNING {RETURNED}
"""

# $3 delay or null for "rest", $4 provider status or null to keep it, $5 progress,
# $6 the job was seen unfinished, $7 the kind of an odd answer or null, $8 floor after a
# hastening. A callback that came during the check wins over the delay. Once completion was
# seen the retention clock stands.
RESCHEDULE_CHECK_SQL = f"""
UPDATE jobs
SET next_check_at = CASE
        WHEN hastened_at > checked_at THEN clock_timestamp() + $8::interval
        ELSE clock_timestamp() + $3::interval END,
    provider_status = coalesce($4, provider_status),
    progress = CASE WHEN $4::text IS NULL THEN progress ELSE $5::smallint END,
    started_at = CASE WHEN $4 = 'running' THEN coalesce(started_at, clock_timestamp())
        ELSE started_at END,
    unfinished_since = CASE WHEN $6::boolean AND completion_seen_at IS NULL THEN checked_at
        ELSE unfinished_since END,
    completion_seen_at = CASE WHEN $7 = 'completed' THEN coalesce(completion_seen_at, checked_at)
        ELSE completion_seen_at END,
    odd_answers = CASE WHEN $7::text IS NULL AND $4::text IS NULL THEN odd_answers
        WHEN $7::text IS NULL THEN 0 WHEN odd_state = $7 THEN odd_answers + 1 ELSE 1 END,
    odd_since = CASE WHEN $7::text IS NULL AND $4::text IS NULL THEN odd_since
        WHEN $7::text IS NULL THEN NULL WHEN odd_state = $7 THEN odd_since ELSE checked_at END,
    odd_state = CASE WHEN $7::text IS NULL AND $4::text IS NULL THEN odd_state ELSE $7 END,
    public_version = public_version + CASE WHEN $4::text IS NOT NULL AND stage = 'accepted'
        AND (($4 = 'running') IS DISTINCT FROM (provider_status = 'running')
             OR progress IS DISTINCT FROM $5::smallint) THEN 1 ELSE 0 END,
    updated_at = CASE WHEN $4::text IS NOT NULL AND stage = 'accepted'
        AND (($4 = 'running') IS DISTINCT FROM (provider_status = 'running')
             OR progress IS DISTINCT FROM $5::smallint) THEN clock_timestamp()
        ELSE updated_at END,
    {_UNLEASED}
WHERE id = $1 AND stage IN ('accepted', 'review', 'unknown') AND {_LEASED}
RETURNING {RETURNED}
"""

# $2 the least distance to the last check. Called with the row's lock held.
HASTEN_CHECK_SQL = f"""
UPDATE jobs
SET next_check_at = CASE WHEN stage = 'unknown' AND NOT {_UNEXAMINED} THEN next_check_at
        ELSE least(next_check_at, greatest(clock_timestamp(), checked_at + $2::interval)) END,
    hastened_at = clock_timestamp()
WHERE id = $1 AND stage IN ('accepted', 'review', 'unknown')
RETURNING {RETURNED}
"""

CANCEL_SENT_SQL = f"""
UPDATE jobs SET cancel_sent_at = clock_timestamp()
WHERE id = $1 AND stage IN ('accepted', 'review') AND {_LEASED} AND cancel_requested
RETURNING {RETURNED}
"""

# $3 claim token, $4 provider job id, $5 handle, $6 when that claim was made.
ADOPT_SQL = f"""
UPDATE jobs
SET stage = 'accepted', claim_token = $3, provider_job_id = $4, provider_handle = $5,
    accepted_at = clock_timestamp(), claimed_at = $6, unfinished_since = $6,
    provider_status = 'queued', attention_reason = NULL, attention_since = NULL, {_PROPER},
    completion_seen_at = NULL, next_check_at = clock_timestamp(), {_UNLEASED}, {_MOVED}
WHERE id = $1 AND stage = 'unknown' AND {_LEASED}
RETURNING {RETURNED}
"""

# $3 retention, $4 link life, $5 the expiry signed into the link or null.
COMPLETE_SQL = f"""
UPDATE jobs
SET stage = 'capturing', provider_status = 'completed', progress = NULL,
    capture_deadline = least(unfinished_since + $3::interval,
        clock_timestamp() + $4::interval, $5::timestamptz),
    completion_seen_at = coalesce(completion_seen_at, checked_at),
    attention_reason = NULL, attention_since = NULL, {_PROPER},
    next_check_at = clock_timestamp(), {_UNLEASED}, {_MOVED}
WHERE id = $1 AND stage IN ('accepted', 'review') AND {_LEASED}
RETURNING {RETURNED}
"""

# $3 stage, $4 error code or null, $5 provider status. The provider's word ends the job.
END_SQL = f"""
UPDATE jobs
SET stage = $3, error_code = $4, provider_status = $5, finished_at = clock_timestamp(),
    progress = NULL, attention_reason = NULL, attention_since = NULL, next_check_at = NULL,
    {_UNLEASED}, {_MOVED}
WHERE id = $1 AND stage IN ('accepted', 'review') AND {_LEASED}
RETURNING {RETURNED}
"""

# $3 reason, $4 delay, $5 provider status or null to keep it.
REVIEW_SQL = f"""
UPDATE jobs
SET stage = 'review', attention_reason = $3, attention_since = clock_timestamp(),
    provider_status = coalesce($5, provider_status), {_PROPER},
    next_check_at = clock_timestamp() + $4::interval, {_UNLEASED}, {_MOVED}
WHERE id = $1 AND stage IN ('accepted', 'capturing') AND {_LEASED}
RETURNING {RETURNED}
"""

# $1 the most rows, $2 tokens, $3 holder, $4 the lease's life, $5 the wanted ids or null,
# $6 what a transfer takes: rows with less time than that are probably lost and go last.
LEASE_CAPTURES_SQL = f"""
WITH due AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE stage = 'capturing' AND next_check_at <= clock_timestamp()
      AND (lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp())
      AND ($5::uuid[] IS NULL OR id = ANY ($5::uuid[]))
    ORDER BY capture_deadline < clock_timestamp() + $6::interval, capture_deadline
    LIMIT $1 FOR UPDATE SKIP LOCKED
), numbered AS (
    SELECT id, ($2::uuid[])[row_number() OVER (ORDER BY id)] AS token FROM due
)
UPDATE jobs
SET lease_token = numbered.token, lease_owner = $3,
    lease_expires_at = clock_timestamp() + $4::interval,
    capture_attempts = capture_attempts + 1
FROM numbered
WHERE jobs.id = numbered.id AND jobs.stage = 'capturing'
  AND (jobs.lease_expires_at IS NULL OR jobs.lease_expires_at <= clock_timestamp())
RETURNING {RETURNED}
"""

EXTEND_CAPTURE_SQL = f"""
UPDATE jobs SET lease_expires_at = clock_timestamp() + $3::interval
WHERE id = $1 AND stage = 'capturing' AND {_LEASED}
RETURNING {RETURNED}
"""

# $3 delay, $4 the kind of an odd answer or null, $5 nothing was said: the count stays.
RESCHEDULE_CAPTURE_SQL = f"""
UPDATE jobs
SET next_check_at = clock_timestamp() + $3::interval,
    odd_answers = CASE WHEN $5::boolean THEN odd_answers
        WHEN $4::text IS NULL THEN 0 WHEN odd_state = $4 THEN odd_answers + 1 ELSE 1 END,
    odd_since = CASE WHEN $5::boolean OR odd_state = $4 THEN odd_since
        WHEN $4::text IS NOT NULL THEN clock_timestamp() END,
    odd_state = CASE WHEN $5::boolean THEN odd_state ELSE $4 END, {_UNLEASED}
WHERE id = $1 AND stage = 'capturing' AND {_LEASED}
RETURNING {RETURNED}
"""

# $3 name, $4 media type, $5 bytes, $6 sha256, $7 key, $8 upload id, $9 part layout.
PREPARE_SQL = f"""
WITH held AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = $1 AND stage = 'capturing' AND {_LEASED} FOR UPDATE
)
INSERT INTO job_artifacts
    (job_id, lease_token, name, media_type, bytes, sha256, key, upload_id, part_layout)
SELECT held.id, $2, $3, $4, $5, $6, $7, $8, $9::jsonb FROM held
RETURNING job_id
"""

# $3 manifest key, $4 lifetime or null for ever, $5 settled cost or null,
# $6 and $7 the published (name, lease token) pairs. All or none: a missing pair moves nothing.
STORE_SQL = f"""
WITH published AS (
    UPDATE job_artifacts SET stored_at = clock_timestamp()
    FROM unnest($6::text[], $7::uuid[]) AS wanted (name, lease_token)
    WHERE job_artifacts.job_id = $1 AND job_artifacts.name = wanted.name
      AND job_artifacts.lease_token = wanted.lease_token
      AND EXISTS (SELECT 1 FROM jobs WHERE id = $1 AND stage = 'capturing' AND {_LEASED})
    RETURNING job_artifacts.name
)
UPDATE jobs
SET stage = 'succeeded', manifest_key = $3, finished_at = clock_timestamp(),
    expires_at = clock_timestamp() + $4::interval,
    settled_cost_usd = coalesce($5, estimated_cost_usd), next_check_at = NULL,
    {_UNLEASED}, {_MOVED}
WHERE id = $1 AND stage = 'capturing' AND {_LEASED}
  AND (SELECT count(*) FROM published) = cardinality($6::text[])
RETURNING {RETURNED}
"""

# $3 error code.
REFUSE_RESULT_SQL = f"""
UPDATE jobs
SET stage = 'failed', error_code = $3, finished_at = clock_timestamp(), next_check_at = NULL,
    {_UNLEASED}, {_MOVED}
WHERE id = $1 AND stage = 'capturing' AND {_LEASED}
RETURNING {RETURNED}
"""

LOCK_SQL = f"SELECT {', '.join(JOB_COLUMNS)} FROM jobs WHERE id = $1 FOR UPDATE"
"""Locks one row first, where a decision needs evidence and row as one picture."""
