"""What an adapter is: the only shape in which rooms know a provider.

Owns the two protocols. The adapter reads answers with pure functions, which recorded exchanges
can test; its client makes the calls. Promises for both: no answer, however hostile, raises; no
text of a provider leaves in a reason or a message. Must never decide what becomes of a job.
"""

from collections.abc import Mapping
from typing import Protocol

from shared.domain.provider import (
    CreateOutcome,
    CreateRequest,
    Exchange,
    FoundArtifact,
    Handle,
    Json,
    StatusReading,
)
from shared.kit.http import HttpTransport, PhaseRecorder, SendDeadline
from shared.kit.settings import CoatcheckSettings


class ProviderClient(Protocol):
    """An adapter with the operator's key: the calls of one provider."""

    @property
    def base_url(self) -> str:
        """What a new job's `CreateRequest` and `Handle` carry as their base."""

    @property
    def switched_on(self) -> frozenset[str]:
        """The refusals that the operator takes as "no job was created"."""

    async def create(
        self,
        request: CreateRequest,
        deadline: SendDeadline,
        recorder: PhaseRecorder | None = None,
    ) -> Exchange:
        """The paid call, sent at most once. Raises only CancelledError."""

    async def status(self, handle: Handle) -> StatusReading:
        """What the provider says of a job. Raises only CancelledError.

        No answer reads as `retry_later`, another job's answer as `unrecognised`.
        """

    async def cancel(self, handle: Handle) -> bool:
        """Whether the provider took the wish; only a later status says what came of it."""

    async def is_well(self, base_url: str, endpoint_id: str) -> bool:
        """Asks a free call whether the endpoint answers our key with 200."""


class ProviderAdapter(Protocol):
    """A provider's ways. Sizes in bytes, times in seconds."""

    @property
    def name(self) -> str:
        """The provider's name in the registry, the rows and the webhook path."""

    @property
    def settings_type(self) -> type[CoatcheckSettings]:
        """The settings that `open` takes."""

    @property
    def may_cancel(self) -> bool:
        """A running job can be asked to stop."""

    @property
    def lookup_by_client_id(self) -> bool:
        """A lost create can be found again by an id of ours."""

    @property
    def webhook_scheme(self) -> str | None:
        """How callbacks prove themselves: `token` = our path token alone; None = no callbacks."""

    @property
    def retention_seconds(self) -> float:
        """How long a result can be asked for after the end."""

    @property
    def max_request_bytes(self) -> int:
        """The largest body of a create call."""

    @property
    def max_status_bytes(self) -> int:
        """The largest status answer that is read."""

    def open(self, settings: CoatcheckSettings, transport: HttpTransport) -> ProviderClient:
        """A client with the key of `settings`, which must be of `settings_type`."""

    def classify(self, exchange: Exchange, switched_on: frozenset[str]) -> CreateOutcome:
        """What a create call came to. Pure; ambiguous unless proven otherwise."""

    def read_status(
        self, http_status: int, headers: Mapping[str, str], body: bytes
    ) -> StatusReading:
        """What one whole status answer says. Pure. Header names in lower case."""

    def find_artifacts(self, output: Json) -> tuple[FoundArtifact, ...]:
        """The usable references in an output, in its order: the search without a declared path."""

    def webhook_job_id(self, body: bytes) -> str | None:
        """The provider's job id that a callback names; nothing else of it is read."""
