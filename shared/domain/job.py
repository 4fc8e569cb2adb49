"""A job row as a value, read-only.

Mirrors the columns of `jobs` that the rooms read. It promises nothing about now: a row is
what one statement saw; only a fenced write can tell what still holds.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from shared.domain.stages import Stage


@dataclass(frozen=True)
class Job:
    """One row of `jobs`. Times are aware UTC; money in USD."""

    id: UUID
    owner_id: str
    epoch: int
    endpoint: str
    endpoint_revision: str
    provider: str
    provider_handle: dict[str, str] | None
    provider_job_id: str | None
    stage: Stage
    provider_status: str | None
    progress: int | None
    public_version: int
    claim_token: UUID | None
    claimed_at: datetime | None
    lease_token: UUID | None
    lease_owner: str | None
    lease_expires_at: datetime | None
    check_attempts: int
    capture_attempts: int
    odd_answers: int
    odd_since: datetime | None
    odd_state: str | None
    next_check_at: datetime | None
    unfinished_since: datetime | None
    capture_deadline: datetime | None
    cancel_requested: bool
    cancel_sent_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    accepted_at: datetime | None
    finished_at: datetime | None
    purged_at: datetime | None
    expires_at: datetime | None
    manifest_key: str | None
    estimated_cost_usd: Decimal
    settled_cost_usd: Decimal | None
    retention: str
    verdict: str | None
    resubmits: UUID | None
    resubmitted_as: UUID | None
    error_code: str | None
    attention_reason: str | None
    attention_since: datetime | None
    request_id: str | None
    traceparent: str | None

    @classmethod
    def from_row(cls, row: Any) -> "Job":
        """Builds a job from a record that has at least these columns."""
        values = {name: row[name] for name in JOB_COLUMNS}
        values["stage"] = Stage(values["stage"])
        return cls(**values)


JOB_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Job))
