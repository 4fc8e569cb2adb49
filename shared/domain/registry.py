"""The endpoint registry as values: what an operator writes in TOML, checked.

Owns the shapes and their rules. Durations stand here as written, in seconds; whoever uses one
scales it with `TimeScale`. `revision` names the pinned part: a job keeps the paths and limits
of time and money it was bought under, while `hosts`, `media_types` and `max_bytes` are read
from today's registry. Reading files is `shared.kit.registry`'s work.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

EndpointName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
ArtifactName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
Seconds = Annotated[float, Field(gt=0, le=31_536_000)]

_HOST = re.compile(r"^(\*|(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z][a-z0-9-]{0,62})$")
_UNPINNED_ARTIFACT_KEYS = {"hosts", "media_types", "max_bytes"}


class ArtifactKind(StrEnum):
    """In which shape a declared artifact may come; `auto` is the first three."""

    auto = "auto"
    url = "url"
    data_uri = "data_uri"
    base64 = "base64"
    json = "json"


class ArtifactSpec(BaseModel):
    """One declared artifact of an endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ArtifactName
    path: str = Field(min_length=1, max_length=500)
    required: bool = True
    media_types: tuple[str, ...] = ()
    max_bytes: int = Field(default=2_000_000_000, gt=0)
    hosts: tuple[str, ...] = ()
    kind: ArtifactKind = ArtifactKind.auto

    @field_validator("hosts")
    @classmethod
    def _hosts_are_names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.match(host):
                raise ValueError(f"host {host!r} must be a name, '*.suffix' or '*'")
        return hosts

    @model_validator(mode="after")
    def _a_url_needs_hosts(self) -> "ArtifactSpec":
        if self.kind in (ArtifactKind.auto, ArtifactKind.url) and not self.hosts:
            raise ValueError(f"artifact {self.name!r}: `hosts` is required where a URL may come")
        return self


class PollSpec(BaseModel):
    """When a running job is looked at: first after `first_s`, then between min and max."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first_s: Seconds = 2
    min_s: Seconds = 2
    max_s: Seconds = 60

    @model_validator(mode="after")
    def _ordered(self) -> "PollSpec":
        if self.min_s > self.max_s:
            raise ValueError("poll.min_s must not exceed poll.max_s")
        return self


class CostSpec(BaseModel):
    """How the settled cost is found: a price per call or second, or a path in the output."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    per_call_usd: Decimal | None = Field(default=None, ge=0)
    per_second_usd: Decimal | None = Field(default=None, ge=0)
    path: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "CostSpec":
        if sum(v is not None for v in (self.per_call_usd, self.per_second_usd, self.path)) != 1:
            raise ValueError("cost takes exactly one of per_call_usd, per_second_usd, path")
        return self


class EndpointSpec(BaseModel):
    """One named endpoint. Durations in seconds, money in USD."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: EndpointName
    provider: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]
    endpoint_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
    input_schema: dict[str, Any]
    execution_timeout_s: Seconds = 600
    ttl_s: Seconds = 3600
    retention_s: Seconds = 1800
    link_life_s: Seconds = 604_800
    submit_within_s: Seconds = 3600
    max_in_flight: int = Field(default=50, gt=0)
    estimated_cost_usd: Decimal = Field(ge=0, max_digits=12, decimal_places=4)
    cost: CostSpec | None = None
    spend_limit_usd_per_month: Decimal | None = Field(default=None, ge=0)
    poll: PollSpec = PollSpec()
    artifacts: tuple[ArtifactSpec, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> "EndpointSpec":
        names = [artifact.name for artifact in self.artifacts]
        if len(names) != len(set(names)):
            raise ValueError("artifact names must differ")
        return self

    def pinned(self) -> dict[str, Any]:
        """The part a job is bought under, as JSON values."""
        body = self.model_dump(mode="json", exclude={"input_schema"})
        for artifact in body["artifacts"]:
            for key in _UNPINNED_ARTIFACT_KEYS:
                artifact.pop(key)
        return body

    @property
    def revision(self) -> str:
        """Sixteen hex digits naming the pinned part; equal parts have equal names."""
        text = json.dumps(self.pinned(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def capture_rules(self) -> str:
        """Sixteen hex digits naming what may be fetched: hosts, media types, sizes of today."""
        rules = {
            artifact.name: artifact.model_dump(mode="json", include=_UNPINNED_ARTIFACT_KEYS)
            for artifact in self.artifacts
        }
        text = json.dumps(rules, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class PinnedArtifact(BaseModel):
    """What a job remembers of a declared artifact."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    path: str
    required: bool
    kind: ArtifactKind


class PinnedEndpoint(BaseModel):
    """What a job remembers of its endpoint, read back from `endpoint_revisions`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    provider: str
    endpoint_id: str
    execution_timeout_s: float
    ttl_s: float
    retention_s: float
    link_life_s: float
    submit_within_s: float
    max_in_flight: int
    estimated_cost_usd: Decimal
    cost: CostSpec | None = None
    poll: PollSpec
    artifacts: tuple[PinnedArtifact, ...]


class Registry(BaseModel):
    """All endpoints by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoints: Mapping[str, EndpointSpec]

    def find(self, name: str) -> EndpointSpec | None:
        """The endpoint of that name, or None."""
        return self.endpoints.get(name)
