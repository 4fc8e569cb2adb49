"""The job resource, and the resource of an endpoint: what callers see of rows and registry.

Promises the shape of the contract, every field always present, and never a provider's address,
a bucket key or anything a provider said. Owns no shapes; those are in `resources`.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal
from uuid import UUID

from services.gateway.bodies import BODY_BYTES_MAX
from services.gateway.resources import (
    ArtifactResource,
    AttentionResource,
    DeclaredArtifactResource,
    EndpointResource,
    ErrorResource,
    JobResource,
    LimitsResource,
    LinksResource,
    ResultResource,
)
from shared.domain.job import Job
from shared.domain.registry import EndpointSpec
from shared.domain.stages import AttentionReason, ErrorCode, Stage
from shared.domain.status import ATTENTION_ACTIONS, ATTENTION_TEXTS, ERROR_TEXTS, public_status
from shared.store.queries import OwnedJob, StoredArtifact

_CENT_FRACTION = Decimal("0.0001")


def job_resource(owned: OwnedJob, declared: Sequence[str]) -> JobResource:
    """The job as its owner sees it. `declared`: the endpoint's artifact names in their order."""
    job = owned.job
    return JobResource(
        id=job.id,
        status=public_status(job.stage, job.provider_status),
        endpoint=job.endpoint,
        progress=job.progress,
        created_at=job.created_at,
        updated_at=job.updated_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        result=_result(job, in_declared_order(owned.artifacts, declared)),
        error=error_resource(job),
        attention=_attention(job),
        estimated_cost_usd=_money(job.estimated_cost_usd),
        retention="keep" if job.retention == "keep" else "preview",
        expires_at=job.expires_at,
        verdict=_verdict(job.verdict),
        cancel_requested=job.cancel_requested,
        resubmits=job.resubmits,
        resubmitted_as=job.resubmitted_as,
        metadata=json.loads(owned.metadata_json) if owned.metadata_json is not None else {},
        purged_at=job.purged_at,
        links=_links(job.id),
    )


def job_path(job_id: UUID) -> str:
    """The path of the job resource."""
    return f"/v1/jobs/{job_id}"


def artifact_path(job_id: UUID, name: str) -> str:
    """The path of an artifact's bytes."""
    return f"/v1/jobs/{job_id}/artifacts/{name}"


def in_declared_order(
    artifacts: Sequence[StoredArtifact], declared: Sequence[str]
) -> list[StoredArtifact]:
    """Artifacts in the order of the registry; further values of one path follow the first."""

    def place(artifact: StoredArtifact) -> tuple[int, int, str]:
        base, _, number = artifact.name.rpartition("-")
        if artifact.name in declared or not number.isdecimal():
            base, number = artifact.name, "1"
        at = declared.index(base) if base in declared else len(declared)
        return at, int(number), artifact.name

    return sorted(artifacts, key=place)


def error_resource(job: Job) -> ErrorResource | None:
    """The error of a failed job, else None."""
    if job.stage is not Stage.failed or job.error_code is None:
        return None
    code = ErrorCode(job.error_code)
    text = ERROR_TEXTS[code]
    return ErrorResource.model_validate(
        {
            "code": code,
            "message": text.message,
            "retryable": text.retryable,
            "actions": list(text.actions),
        }
    )


def endpoint_resource(spec: EndpointSpec) -> EndpointResource:
    """The endpoint without anything of its provider."""
    return EndpointResource(
        name=spec.name,
        input_schema=spec.input_schema,
        estimated_cost_usd=_money(spec.estimated_cost_usd),
        limits=LimitsResource(
            execution_timeout_s=spec.execution_timeout_s,
            ttl_s=spec.ttl_s,
            submit_within_s=spec.submit_within_s,
            max_in_flight=spec.max_in_flight,
            max_body_bytes=BODY_BYTES_MAX,
        ),
        artifacts=[
            DeclaredArtifactResource(
                name=artifact.name,
                required=artifact.required,
                media_types=list(artifact.media_types),
                max_bytes=artifact.max_bytes,
            )
            for artifact in spec.artifacts
        ],
    )


def _result(job: Job, artifacts: Sequence[StoredArtifact]) -> ResultResource | None:
    if job.stage is not Stage.succeeded:
        return None
    return ResultResource(
        artifacts=[
            ArtifactResource(
                name=artifact.name,
                media_type=artifact.media_type,
                bytes=artifact.bytes,
                sha256=artifact.sha256,
                href=artifact_path(job.id, artifact.name),
            )
            for artifact in artifacts
        ]
    )


def _attention(job: Job) -> AttentionResource | None:
    if job.stage not in (Stage.unknown, Stage.review) or job.attention_reason is None:
        return None
    reason = AttentionReason(job.attention_reason)
    closed = {
        "resubmit": job.resubmitted_as is not None,
        "cancel": job.cancel_requested,
    }
    actions = [action for action in ATTENTION_ACTIONS if not closed.get(action)]
    return AttentionResource.model_validate(
        {
            "reason": reason,
            "since": job.attention_since or job.updated_at,
            "explanation": ATTENTION_TEXTS[reason],
            "max_extra_cost_usd": _money(job.estimated_cost_usd),
            "actions": actions,
        }
    )


def _links(job_id: UUID) -> LinksResource:
    path = job_path(job_id)
    return LinksResource.model_validate(
        {
            "self": path,
            "events": f"{path}/events",
            "cancel": f"{path}/cancel",
            "result": f"{path}/result",
        }
    )


def _money(amount: Decimal) -> Decimal:
    return amount.quantize(_CENT_FRACTION)


def _verdict(verdict: str | None) -> Literal["accepted", "rejected"] | None:
    match verdict:
        case "accepted" | "rejected":
            return verdict
        case _:
            return None


def etag_of(job: Job) -> str:
    """The entity tag of a job: its public version."""
    return f'"{job.public_version}"'
