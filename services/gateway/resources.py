"""The shapes of answers: the job resource and its parts, endpoints, the problem document.

These models make the answers and are their schema in the OpenAPI text as well, so text and
truth cannot part. Times are RFC 3339 in UTC; money is a decimal string in USD. They hold no
rules; what goes into them is decided in `views`.
"""

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from shared.domain.stages import AttentionReason, ErrorCode
from shared.domain.status import PublicStatus

JsonObject = dict[str, Any]
Money = Decimal


class ArtifactResource(BaseModel):
    """One stored result file."""

    name: str
    media_type: str
    bytes: int
    sha256: str = Field(description="hex")
    href: str


class ResultResource(BaseModel):
    """The result of a job that succeeded."""

    artifacts: list[ArtifactResource]


class ErrorResource(BaseModel):
    """Why a job failed."""

    code: ErrorCode
    message: str
    retryable: bool
    actions: list[Literal["resubmit", "contact_operator"]]


class AttentionResource(BaseModel):
    """Why a job waits for a person, or for evidence."""

    reason: AttentionReason
    since: datetime
    explanation: str
    max_extra_cost_usd: Money
    actions: list[Literal["resubmit", "abandon", "cancel"]]


class LinksResource(BaseModel):
    """Where to go from here."""

    self: str
    events: str
    cancel: str
    result: str


class JobResource(BaseModel):
    """A job. Every field is always present; what is unknown is null."""

    id: UUID
    status: PublicStatus
    endpoint: str
    progress: int | None = Field(description="percent, as the provider says")
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    result: ResultResource | None
    error: ErrorResource | None
    attention: AttentionResource | None
    estimated_cost_usd: Money
    retention: Literal["preview", "keep"]
    expires_at: datetime | None
    verdict: Literal["accepted", "rejected"] | None
    cancel_requested: bool
    resubmits: UUID | None
    resubmitted_as: UUID | None
    metadata: JsonObject
    purged_at: datetime | None
    links: LinksResource


class LimitsResource(BaseModel):
    """What an endpoint allows; durations in seconds."""

    execution_timeout_s: float
    ttl_s: float
    submit_within_s: float
    max_in_flight: int
    max_body_bytes: int


class DeclaredArtifactResource(BaseModel):
    """One artifact that an endpoint's jobs bring."""

    name: str
    required: bool
    media_types: list[str]
    max_bytes: int


class EndpointResource(BaseModel):
    """An endpoint of the registry."""

    name: str
    input_schema: JsonObject
    estimated_cost_usd: Money
    limits: LimitsResource
    artifacts: list[DeclaredArtifactResource]


class EndpointsResource(BaseModel):
    """All endpoints, by name."""

    endpoints: list[EndpointResource]


class FieldErrorResource(BaseModel):
    """One place in the body that is wrong."""

    pointer: str = Field(
        description="JSON Pointer into the request's body, as a URI fragment",
        examples=["#/input/prompt"],
    )
    detail: str


class ProblemResource(BaseModel):
    """A problem document (RFC 9457). `error` stands in the answer about a failed job only."""

    type: str = Field(description="a page that explains the code", examples=["/problems/not_found"])
    title: str
    status: int
    detail: str
    instance: str = Field(
        description="the collection that was addressed; ids are left out, so that a foreign job"
        " looks like one that does not exist"
    )
    code: str
    retryable: bool
    request_id: str
    errors: list[FieldErrorResource] | None = None
    error: ErrorResource | None = None


class JobRequestResource(BaseModel):
    """The body of `POST /v1/jobs`."""

    model_config = {"extra": "forbid"}

    endpoint: str
    input: JsonObject = Field(
        min_length=1,
        description="must fit the endpoint's input schema; a URL may stand only where the schema"
        " has x-allowed-hosts",
    )
    metadata: JsonObject = Field(
        default_factory=dict,
        description="yours, given back with the job; at most 65,536 bytes as canonical JSON",
    )
    retention: Literal["preview", "keep"] = "preview"
