"""Rows and terms as values, for judgements that need no database."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from shared.domain.job import JOB_COLUMNS, Job
from shared.domain.registry import PinnedEndpoint
from shared.domain.stages import Stage

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
JOB_ID = UUID("01981c5e-0000-7000-8000-000000000001")
LEASE = UUID("3f0e8a52-6c7e-4a86-9a32-5b1c64a2a001")

_USUAL: dict[str, Any] = {
    "id": JOB_ID,
    "owner_id": "owner-1",
    "epoch": 1,
    "endpoint": "demo-video",
    "endpoint_revision": "revision-1",
    "provider": "runpod",
    "provider_handle": {
        "base_url": "http://provider.test/v2",
        "endpoint_id": "demo",
        "provider_job_id": "job-1-u1",
    },
    "provider_job_id": "job-1-u1",
    "stage": Stage.accepted,
    "provider_status": "queued",
    "public_version": 3,
    "claimed_at": START,
    "lease_token": LEASE,
    "lease_owner": "test",
    "lease_expires_at": START + timedelta(seconds=60),
    "check_attempts": 1,
    "capture_attempts": 1,
    "odd_answers": 0,
    "next_check_at": START,
    "unfinished_since": START,
    "cancel_requested": False,
    "created_at": START,
    "updated_at": START,
    "accepted_at": START,
    "estimated_cost_usd": Decimal("0.0500"),
    "retention": "preview",
}


def a_job(**changes: Any) -> Job:
    """An accepted, leased job; other columns are null unless given."""
    return Job(**{**dict.fromkeys(JOB_COLUMNS), **_USUAL, **changes})


def a_pinned(**changes: Any) -> PinnedEndpoint:
    """The usual terms: one required video, 1 h to live, half an hour of retention."""
    values = {
        "name": "demo-video",
        "provider": "runpod",
        "endpoint_id": "demo",
        "execution_timeout_s": 600,
        "ttl_s": 3600,
        "retention_s": 1800,
        "link_life_s": 604800,
        "submit_within_s": 3600,
        "max_in_flight": 50,
        "estimated_cost_usd": "0.05",
        "poll": {"first_s": 2, "min_s": 2, "max_s": 60},
        "artifacts": [{"name": "master", "path": "$.video_url", "required": True, "kind": "auto"}],
    }
    return PinnedEndpoint.model_validate({**values, **changes})
