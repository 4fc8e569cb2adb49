-- breaking: no
-- Every table of the design. Money is USD; times are timestamptz; tokens are random UUIDs made
-- by clients. Rules that tie columns to stages are added by 0002, generated from the edge table.

CREATE TABLE submission_epoch (
    epoch integer PRIMARY KEY,
    system_identifier bigint NOT NULL,
    timeline integer NOT NULL,
    database_oid bigint NOT NULL,
    raised_xid bigint NOT NULL,
    raised_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    raised_by text NOT NULL,
    reason text NOT NULL
);

CREATE TABLE submission_witness (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    postmaster_started_at timestamptz,
    system_identifier bigint,
    compared_at timestamptz,
    latched_at timestamptz,
    latch_reason text,
    topic_offsets jsonb NOT NULL DEFAULT '{}'
);

CREATE TABLE endpoint_revisions (
    revision text PRIMARY KEY,
    endpoint text NOT NULL,
    spec jsonb NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE jobs (
    id uuid PRIMARY KEY,
    owner_id text NOT NULL CHECK (length(owner_id) BETWEEN 1 AND 255),
    epoch integer NOT NULL,
    idempotency_key text NOT NULL CHECK (length(idempotency_key) BETWEEN 1 AND 255),
    request_digest bytea NOT NULL CHECK (length(request_digest) = 32),
    endpoint text NOT NULL,
    endpoint_revision text NOT NULL REFERENCES endpoint_revisions (revision),
    provider text NOT NULL,
    provider_handle jsonb,
    provider_job_id text CHECK (length(provider_job_id) BETWEEN 1 AND 255),
    stage text NOT NULL,
    provider_status text,
    progress smallint CHECK (progress BETWEEN 0 AND 100),
    public_version bigint NOT NULL DEFAULT 1,
    claim_token uuid,
    claimed_at timestamptz,
    lease_token uuid,
    lease_owner text,
    lease_expires_at timestamptz,
    check_attempts integer NOT NULL DEFAULT 0,
    capture_attempts integer NOT NULL DEFAULT 0,
    checked_at timestamptz,
    hastened_at timestamptz,
    odd_answers integer NOT NULL DEFAULT 0,
    odd_since timestamptz,
    -- Which kind of odd answer is counted: answers of different kinds confirm nothing together.
    odd_state text,
    -- From here on the retention clock stands, even where a later answer says "running" again.
    completion_seen_at timestamptz,
    next_check_at timestamptz,
    unfinished_since timestamptz,
    capture_deadline timestamptz,
    cancel_requested boolean NOT NULL DEFAULT false,
    cancel_sent_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    accepted_at timestamptz,
    finished_at timestamptz,
    purged_at timestamptz,
    expires_at timestamptz,
    manifest_key text,
    estimated_cost_usd numeric(12, 4) NOT NULL CHECK (estimated_cost_usd >= 0),
    settled_cost_usd numeric(12, 4) CHECK (settled_cost_usd >= 0),
    retention text NOT NULL,
    verdict text CHECK (verdict IN ('accepted', 'rejected')),
    resubmits uuid REFERENCES jobs (id),
    resubmitted_as uuid REFERENCES jobs (id),
    error_code text,
    attention_reason text,
    attention_since timestamptz,
    request_id text,
    traceparent text,
    UNIQUE (owner_id, idempotency_key)
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX jobs_provider_job ON jobs (provider, provider_job_id)
    WHERE provider_job_id IS NOT NULL;
CREATE INDEX jobs_due ON jobs (stage, next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX jobs_buyable ON jobs (endpoint, next_check_at, id) WHERE stage = 'unsubmitted';
CREATE INDEX jobs_in_flight ON jobs (endpoint)
    WHERE stage IN ('submitting', 'accepted', 'unknown', 'review');
CREATE INDEX jobs_capture ON jobs (capture_deadline) WHERE stage = 'capturing';
CREATE INDEX jobs_unfinished ON jobs (endpoint, unfinished_since)
    WHERE stage IN ('accepted', 'review');
CREATE INDEX jobs_of_owner ON jobs (owner_id, created_at DESC, id DESC);
CREATE INDEX jobs_expiring ON jobs (expires_at)
    WHERE expires_at IS NOT NULL AND purged_at IS NULL;
CREATE INDEX jobs_open_age ON jobs (stage, created_at) WHERE finished_at IS NULL;

CREATE TABLE job_inputs (
    job_id uuid PRIMARY KEY REFERENCES jobs (id),
    input json NOT NULL,
    metadata json NOT NULL
);

CREATE TABLE job_artifacts (
    job_id uuid NOT NULL REFERENCES jobs (id),
    name text NOT NULL,
    lease_token uuid NOT NULL,
    media_type text NOT NULL,
    bytes bigint NOT NULL CHECK (bytes > 0),
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    key text NOT NULL UNIQUE,
    upload_id text,
    part_layout jsonb,
    prepared_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    stored_at timestamptz,
    PRIMARY KEY (job_id, name, lease_token)
);
CREATE UNIQUE INDEX job_artifacts_published ON job_artifacts (job_id, name)
    WHERE stored_at IS NOT NULL;

CREATE TABLE submission_claims (
    token uuid PRIMARY KEY,
    job_id uuid NOT NULL REFERENCES jobs (id),
    epoch integer NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    room text NOT NULL,
    sent_to jsonb NOT NULL,
    outcome text CHECK (
        outcome IN ('accepted', 'released', 'refused', 'uncertain', 'expired', 'restored')
    ),
    provider_job_id text,
    reason text,
    ended_at timestamptz
);
CREATE INDEX submission_claims_of_job ON submission_claims (job_id);

CREATE TABLE callback_evidence (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid NOT NULL REFERENCES jobs (id),
    claim_token uuid NOT NULL REFERENCES submission_claims (token),
    provider text NOT NULL,
    provider_job_id text CHECK (length(provider_job_id) BETWEEN 1 AND 255),
    source text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    examined_at timestamptz
);
CREATE UNIQUE INDEX callback_evidence_once
    ON callback_evidence (claim_token, (coalesce(provider_job_id, '')));
CREATE INDEX callback_evidence_of_job ON callback_evidence (job_id);

CREATE TABLE orphan_callbacks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid NOT NULL,
    claim_token uuid NOT NULL,
    provider text NOT NULL,
    provider_job_id text,
    source text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX orphan_callbacks_once
    ON orphan_callbacks (claim_token, (coalesce(provider_job_id, '')));

CREATE TABLE job_transitions (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid NOT NULL REFERENCES jobs (id),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    event text NOT NULL,
    from_stage text,
    to_stage text NOT NULL,
    actor text NOT NULL,
    token uuid,
    outbox_id uuid NOT NULL UNIQUE,
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX job_transitions_of_job ON job_transitions (job_id, seq);
CREATE FUNCTION job_transitions_refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'job_transitions is append-only' USING ERRCODE = 'check_violation';
END
$$;
CREATE TRIGGER job_transitions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON job_transitions
    FOR EACH STATEMENT EXECUTE FUNCTION job_transitions_refuse_change();

-- Rows are deleted once published, so the table stays small and is vacuumed early.
CREATE TABLE outbox (
    id uuid PRIMARY KEY DEFAULT uuidv7(),
    aggregatetype text NOT NULL,
    aggregateid uuid NOT NULL REFERENCES jobs (id),
    type text NOT NULL,
    payload jsonb NOT NULL,
    traceparent text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim_token uuid,
    claimed_until timestamptz,
    attempts integer NOT NULL DEFAULT 0
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX outbox_oldest ON outbox (created_at);

CREATE TABLE endpoint_slots (
    endpoint text PRIMARY KEY
);

CREATE TABLE endpoint_states (
    endpoint text PRIMARY KEY,
    refusals_in_row integer NOT NULL DEFAULT 0,
    last_accepted_at timestamptz,
    breaker_opened_at timestamptz,
    next_probe_at timestamptz,
    paused_at timestamptz,
    paused_by text,
    pause_reason text
);

CREATE TABLE provider_buckets (
    provider text NOT NULL,
    key_digest text NOT NULL,
    operation text NOT NULL,
    tokens double precision NOT NULL,
    refilled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    slowed_until timestamptz,
    PRIMARY KEY (provider, key_digest, operation)
);

CREATE TABLE room_beats (
    room text NOT NULL,
    instance text NOT NULL,
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (room, instance)
);

CREATE TABLE owner_limits (
    owner_id text PRIMARY KEY,
    rate_count integer CHECK (rate_count > 0),
    rate_window_seconds integer CHECK (rate_window_seconds > 0),
    spend_limit_usd numeric(12, 4) CHECK (spend_limit_usd >= 0),
    window_started_at timestamptz,
    window_count integer NOT NULL DEFAULT 0,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by text,
    reason text
);

CREATE TABLE owner_spend (
    owner_id text NOT NULL,
    month date NOT NULL CHECK (extract(day FROM month) = 1),
    reserved_usd numeric(14, 4) NOT NULL DEFAULT 0 CHECK (reserved_usd >= 0),
    spent_usd numeric(14, 4) NOT NULL DEFAULT 0 CHECK (spent_usd >= 0),
    PRIMARY KEY (owner_id, month)
);

CREATE TABLE api_keys (
    id text PRIMARY KEY,
    owner_id text NOT NULL CHECK (length(owner_id) BETWEEN 1 AND 255),
    key_sha256 bytea NOT NULL UNIQUE CHECK (length(key_sha256) = 32),
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz
);

CREATE TABLE dead_letters (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    error text NOT NULL,
    key bytea,
    value bytea,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    replayed_at timestamptz,
    UNIQUE (topic, partition, "offset")
);

CREATE TABLE uploads (
    id uuid PRIMARY KEY,
    owner_id text NOT NULL,
    media_type text NOT NULL,
    bytes bigint NOT NULL CHECK (bytes > 0),
    sha256 text,
    key text NOT NULL UNIQUE,
    upload_id text,
    status text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    completed_at timestamptz
);
CREATE INDEX uploads_of_owner ON uploads (owner_id, created_at DESC);

-- The number of the raised epoch while this server is the very one it was raised on, else null.
-- A dump restored elsewhere differs in system identifier, timeline or oid; one restored into the
-- same database differs in the row's xmin. A latched witness stops claims as well.
CREATE FUNCTION coatcheck_live_epoch() RETURNS integer
LANGUAGE sql STABLE
AS $$
    SELECT e.epoch
    FROM submission_epoch e
    WHERE e.epoch = (SELECT max(epoch) FROM submission_epoch)
      AND e.system_identifier = (SELECT system_identifier FROM pg_control_system())
      AND e.timeline
          = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
      AND e.database_oid
          = (SELECT oid::bigint FROM pg_database WHERE datname = current_database())
      AND e.raised_xid % 4294967296 = e.xmin::text::bigint
      AND NOT EXISTS (SELECT 1 FROM submission_witness WHERE latched_at IS NOT NULL)
$$;
