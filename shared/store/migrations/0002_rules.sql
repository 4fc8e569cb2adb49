-- breaking: no
-- Generated from the edge table; do not edit by hand.

ALTER TABLE jobs ADD CONSTRAINT jobs_known_stage
    CHECK (stage IN ('unsubmitted', 'submitting', 'unknown', 'accepted', 'capturing', 'review', 'succeeded', 'failed', 'cancelled'));
ALTER TABLE jobs ADD CONSTRAINT jobs_known_error
    CHECK (error_code IN ('never_submitted', 'provider_rejected', 'provider_failed', 'provider_timed_out', 'provider_expired', 'result_invalid', 'result_missing', 'result_lost', 'abandoned'));
ALTER TABLE jobs ADD CONSTRAINT jobs_known_attention
    CHECK (attention_reason IN ('submission_outcome_unknown', 'restored_state', 'release_contradicted', 'provider_job_gone', 'provider_state_unrecognised', 'result_refused_by_config', 'check_budget_spent', 'capture_budget_spent'));
ALTER TABLE jobs ADD CONSTRAINT jobs_finished_iff_terminal
    CHECK ((finished_at IS NOT NULL) = (stage IN ('cancelled', 'failed', 'succeeded')));
ALTER TABLE jobs ADD CONSTRAINT jobs_error_iff_failed
    CHECK ((error_code IS NOT NULL) = (stage = 'failed'));
ALTER TABLE jobs ADD CONSTRAINT jobs_attention_iff_open_question
    CHECK ((attention_reason IS NOT NULL) = (stage IN ('unknown', 'review')) AND (attention_since IS NOT NULL) = (attention_reason IS NOT NULL));
ALTER TABLE jobs ADD CONSTRAINT jobs_claim_while_submitting
    CHECK (stage <> 'submitting' OR (claim_token IS NOT NULL AND claimed_at IS NOT NULL));
ALTER TABLE jobs ADD CONSTRAINT jobs_no_claim_unsubmitted
    CHECK (stage <> 'unsubmitted' OR claim_token IS NULL);
ALTER TABLE jobs ADD CONSTRAINT jobs_handle_once_accepted
    CHECK (stage NOT IN ('accepted', 'capturing', 'review', 'succeeded') OR (provider_job_id IS NOT NULL AND provider_handle IS NOT NULL AND accepted_at IS NOT NULL AND unfinished_since IS NOT NULL));
ALTER TABLE jobs ADD CONSTRAINT jobs_no_handle_before_accept
    CHECK (stage NOT IN ('unsubmitted', 'submitting', 'unknown') OR provider_job_id IS NULL);
ALTER TABLE jobs ADD CONSTRAINT jobs_deadline_while_capturing
    CHECK (stage <> 'capturing' OR capture_deadline IS NOT NULL);
ALTER TABLE jobs ADD CONSTRAINT jobs_manifest_when_succeeded
    CHECK (stage <> 'succeeded' OR manifest_key IS NOT NULL);
ALTER TABLE jobs ADD CONSTRAINT jobs_open_rows_are_due
    CHECK (stage NOT IN ('unsubmitted', 'submitting', 'accepted', 'capturing') OR next_check_at IS NOT NULL);
ALTER TABLE jobs ADD CONSTRAINT jobs_ended_rows_rest
    CHECK (stage NOT IN ('cancelled', 'failed', 'succeeded') OR (next_check_at IS NULL AND lease_token IS NULL));
ALTER TABLE jobs ADD CONSTRAINT jobs_lease_is_whole
    CHECK (num_nulls(lease_token, lease_owner, lease_expires_at) IN (0, 3));
ALTER TABLE jobs ADD CONSTRAINT jobs_leased_stages
    CHECK (lease_token IS NULL OR stage IN ('accepted', 'review', 'unknown', 'capturing'));

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
            ('accepted', 'cancelled'),
            ('accepted', 'capturing'),
            ('accepted', 'failed'),
            ('accepted', 'review'),
            ('capturing', 'failed'),
            ('capturing', 'review'),
            ('capturing', 'succeeded'),
            ('review', 'accepted'),
            ('review', 'cancelled'),
            ('review', 'capturing'),
            ('review', 'failed'),
            ('submitting', 'accepted'),
            ('submitting', 'cancelled'),
            ('submitting', 'failed'),
            ('submitting', 'unknown'),
            ('submitting', 'unsubmitted'),
            ('unknown', 'accepted'),
            ('unknown', 'failed'),
            ('unsubmitted', 'cancelled'),
            ('unsubmitted', 'failed'),
            ('unsubmitted', 'submitting'),
            ('unsubmitted', 'unknown')
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

CREATE FUNCTION jobs_refuse_terminal_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'jobs are never deleted' USING ERRCODE = 'check_violation';
    END IF;
    IF to_jsonb(old) - ARRAY['verdict', 'retention', 'expires_at', 'resubmitted_as', 'purged_at', 'public_version', 'updated_at']
            IS DISTINCT FROM to_jsonb(new) - ARRAY['verdict', 'retention', 'expires_at', 'resubmitted_as', 'purged_at', 'public_version', 'updated_at'] THEN
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
