"""The words in which adapters speak of a provider's answers. Pure values.

A create call ends in exactly one of Accepted, NoJob, Ambiguous; a status call in a
StatusReading. Nothing here carries raw provider text that a user could see: messages are
made from `FailureClass` by the gateway.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = Any


class Phase(StrEnum):
    """How far an exchange came before it ended; the last phase that was begun."""

    dns = "dns"
    connect = "connect"
    tls = "tls"
    request_partly_written = "request_partly_written"
    request_written = "request_written"
    headers = "headers"
    body = "body"

    @property
    def is_provably_unsent(self) -> bool:
        """True when no byte of the request can have left."""
        return self in (Phase.dns, Phase.connect, Phase.tls)


@dataclass(frozen=True)
class Exchange:
    """One create call as the transport saw it.

    `error` is an exception's class name only; `complete` says the whole answer was read.
    """

    phase: Phase
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False
    error: str | None = None


@dataclass(frozen=True)
class Accepted:
    """The provider took the job under this id."""

    provider_job_id: str


@dataclass(frozen=True)
class NoJob:
    """It is proven that no job was created. `permanent`: the same request can never succeed."""

    reason: str
    retry_after_seconds: float | None = None
    permanent: bool = False


@dataclass(frozen=True)
class Ambiguous:
    """A job may or may not exist. `evidence_id`: an id that the answer named."""

    reason: str
    evidence_id: str | None = None


CreateOutcome = Accepted | NoJob | Ambiguous


class ProviderState(StrEnum):
    """What one status answer says. `retry_later` says nothing about the job."""

    queued = "queued"
    running = "running"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"
    timed_out = "timed_out"
    gone = "gone"
    unrecognised = "unrecognised"
    retry_later = "retry_later"


class FailureClass(StrEnum):
    """Why a job failed, as far as its words can be classed."""

    input = "input"
    content_policy = "content_policy"
    oom = "oom"
    worker_infra = "worker_infra"
    platform = "platform"
    exec_timeout = "exec_timeout"
    queue_timeout = "queue_timeout"
    cancelled = "cancelled"
    unknown = "unknown"


@dataclass(frozen=True)
class StatusReading:
    """One status answer, read. `output` is set only when completed; progress in percent."""

    state: ProviderState
    provider_job_id: str | None = None
    progress: int | None = None
    output: Json = None
    has_output: bool = False
    failure_class: FailureClass | None = None
    retry_after_seconds: float | None = None
    execution_seconds: float | None = None
    queue_seconds: float | None = None
    cost_usd: str | None = None


@dataclass(frozen=True)
class CreateRequest:
    """What is sent in a create call. Durations in seconds; `input` is the caller's JSON."""

    base_url: str
    endpoint_id: str
    input: Json
    webhook_url: str | None
    execution_timeout_seconds: float
    ttl_seconds: float


@dataclass(frozen=True)
class Handle:
    """Where one accepted job lives: stored whole, never rebuilt from today's settings."""

    base_url: str
    endpoint_id: str
    provider_job_id: str

    def as_json(self) -> dict[str, str]:
        """The handle as the row stores it."""
        return {
            "base_url": self.base_url,
            "endpoint_id": self.endpoint_id,
            "provider_job_id": self.provider_job_id,
        }


class FoundKind(StrEnum):
    """In what shape an artifact was found in an output."""

    url = "url"
    data_uri = "data_uri"
    base64 = "base64"
    json = "json"


@dataclass(frozen=True)
class FoundArtifact:
    """One usable reference: its kind, its RFC 9535 path into the output, its value."""

    kind: FoundKind
    where: str
    value: Json
