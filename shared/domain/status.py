"""The public face of a job: derived in this one place from the row, nowhere stored.

Every sentence a user may read about an error or an open question stands here; none of them
ever contains a provider's words.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from shared.domain.provider import ProviderState
from shared.domain.stages import AttentionReason, ErrorCode, Stage


class PublicStatus(StrEnum):
    """The `status` field of the job resource."""

    queued = "queued"
    running = "running"
    saving = "saving"
    succeeded = "succeeded"
    failed = "failed"
    cancelled = "cancelled"
    unknown = "unknown"
    review = "review"


def public_status(stage: Stage, provider_status: str | None) -> PublicStatus:
    """What the world sees of a stage and of the last word of the provider."""
    match stage:
        case Stage.unsubmitted | Stage.submitting:
            return PublicStatus.queued
        case Stage.accepted:
            running = provider_status == ProviderState.running
            return PublicStatus.running if running else PublicStatus.queued
        case Stage.capturing:
            return PublicStatus.saving
        case Stage.unknown:
            return PublicStatus.unknown
        case Stage.review:
            return PublicStatus.review
        case Stage.succeeded:
            return PublicStatus.succeeded
        case Stage.failed:
            return PublicStatus.failed
        case Stage.cancelled:
            return PublicStatus.cancelled
        case _:
            assert_never(stage)


@dataclass(frozen=True)
class ErrorText:
    """A safe sentence, whether trying again may help, and what the owner can do."""

    message: str
    retryable: bool
    actions: tuple[str, ...]


_RESUBMIT = ("resubmit",)
_ASK = ("resubmit", "contact_operator")

ERROR_TEXTS: dict[ErrorCode, ErrorText] = {
    ErrorCode.never_submitted: ErrorText(
        "The job waited longer than its endpoint allows and was never sent; nothing was paid.",
        True,
        _RESUBMIT,
    ),
    ErrorCode.provider_rejected: ErrorText(
        "The provider refused the job before it began.", False, _ASK
    ),
    ErrorCode.provider_failed: ErrorText("The provider reports that the job failed.", True, _ASK),
    ErrorCode.provider_timed_out: ErrorText(
        "The job ran longer than its endpoint allows.", True, _ASK
    ),
    ErrorCode.provider_expired: ErrorText(
        "The job expired at the provider before it began to run.", True, _RESUBMIT
    ),
    ErrorCode.result_invalid: ErrorText(
        "The provider finished, but its result cannot be accepted.", False, _ASK
    ),
    ErrorCode.result_missing: ErrorText(
        "The provider finished without the required artifact.", True, _ASK
    ),
    ErrorCode.result_lost: ErrorText(
        "The provider no longer hands out the result, and it was not captured in time.",
        True,
        _ASK,
    ),
    ErrorCode.abandoned: ErrorText("The job was abandoned by a person.", False, _RESUBMIT),
}

ATTENTION_TEXTS: dict[AttentionReason, str] = {
    AttentionReason.submission_outcome_unknown: (
        "The paid call was made, but its outcome is not known. If the provider calls back, the"
        " job goes on by itself; nobody sends it again but a person."
    ),
    AttentionReason.restored_state: (
        "The database was restored or failed over; this job may have been paid before that."
    ),
    AttentionReason.release_contradicted: (
        "The provider refused the job and later reported on it; it may have been paid."
    ),
    AttentionReason.provider_job_gone: (
        "The provider accepted the job and now says that it does not know it."
    ),
    AttentionReason.provider_state_unrecognised: (
        "The provider answers with a state that is not understood."
    ),
    AttentionReason.result_refused_by_config: (
        "A result is there, but the endpoint's own settings refuse it; an operator can change them."
    ),
    AttentionReason.check_budget_spent: (
        "The job's time at the provider is over and no end was reported."
    ),
    AttentionReason.capture_budget_spent: (
        "The result could not be copied in the time allowed for it."
    ),
}

ATTENTION_ACTIONS = ("resubmit", "abandon", "cancel")
