"""The stages of a job and the words that stand beside them, as prose.

`Stage` is ours and is the fence: every write names the stage it expects. The public status is
derived in `status.py` alone. A terminal stage never changes again.
"""

from enum import StrEnum


class Stage(StrEnum):
    """Where a job stands. Each member says who takes it in and who takes it out."""

    unsubmitted = "unsubmitted"
    """A durable record; nobody holds a claim. In: the gateway, a release. Out: a claim, a
    cancel, `never_submitted`."""

    submitting = "submitting"
    """One claim token is out and the paid call may be in flight. In: a claim. Out: the
    holder's accept, release, refusal or uncertainty, or the claim's expiry."""

    unknown = "unknown"
    """The paid call may have created a job whose id we do not hold. Out: adoption with
    evidence, or a person."""

    accepted = "accepted"
    """We hold the provider's id. Out: the reconciler, by the provider's word."""

    capturing = "capturing"
    """The provider finished; bytes are to be copied before `capture_deadline`. Out: the
    archiver."""

    review = "review"
    """Accepted, but no machine could establish the outcome yet; still watched."""

    succeeded = "succeeded"
    """Terminal: every required artifact is in our bucket."""

    failed = "failed"
    """Terminal: `error_code` says why."""

    cancelled = "cancelled"
    """Terminal: nothing was paid, or the provider says it stopped."""

    @property
    def is_terminal(self) -> bool:
        """True for stages that never change again."""
        return self in TERMINAL_STAGES


TERMINAL_STAGES = frozenset({Stage.succeeded, Stage.failed, Stage.cancelled})


class ErrorCode(StrEnum):
    """Why a job failed; each has one safe sentence in `status.py`."""

    never_submitted = "never_submitted"
    provider_rejected = "provider_rejected"
    provider_failed = "provider_failed"
    provider_timed_out = "provider_timed_out"
    provider_expired = "provider_expired"
    result_invalid = "result_invalid"
    result_missing = "result_missing"
    result_lost = "result_lost"
    abandoned = "abandoned"


class AttentionReason(StrEnum):
    """Why a job waits for a person, or for evidence."""

    submission_outcome_unknown = "submission_outcome_unknown"
    restored_state = "restored_state"
    release_contradicted = "release_contradicted"
    provider_job_gone = "provider_job_gone"
    provider_state_unrecognised = "provider_state_unrecognised"
    result_refused_by_config = "result_refused_by_config"
    check_budget_spent = "check_budget_spent"
    capture_budget_spent = "capture_budget_spent"


class ClaimOutcome(StrEnum):
    """How a claim ended; null while it is out."""

    accepted = "accepted"
    released = "released"
    refused = "refused"
    uncertain = "uncertain"
    expired = "expired"
    restored = "restored"
