"""Runpod's queue endpoints.

Owns the adapter: its capabilities, its settings, and the pure functions that read its answers.
Runpod knows no idempotency key, no id of ours and no lookup, so a lost create can be found again
only through its callback. Limits and life of results as documented by Runpod on 2026-08-20.
Must never use its SDKs: they retry creates and give up after seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.domain.provider import (
    CreateOutcome,
    Exchange,
    FoundArtifact,
    Json,
    StatusReading,
)
from shared.kit.http import HttpTransport
from shared.kit.settings import CoatcheckSettings
from shared.providers.found_artifacts import find_artifacts
from shared.providers.lenient_json import read_json, top_level_id
from shared.providers.runpod.client import MAX_REQUEST_BYTES, MAX_STATUS_BYTES, RunpodClient
from shared.providers.runpod.create_answers import classify
from shared.providers.runpod.settings import RunpodSettings
from shared.providers.runpod.status_answers import read_status


@dataclass(frozen=True)
class RunpodAdapter:
    """See `shared.providers.adapter.ProviderAdapter`."""

    name: str = "runpod"
    settings_type: type[CoatcheckSettings] = RunpodSettings
    may_cancel: bool = True
    lookup_by_client_id: bool = False
    webhook_scheme: str | None = "token"
    retention_seconds: float = 1800.0
    max_request_bytes: int = MAX_REQUEST_BYTES
    max_status_bytes: int = MAX_STATUS_BYTES

    def open(self, settings: CoatcheckSettings, transport: HttpTransport) -> RunpodClient:
        """A client with the operator's key. Raises TypeError for another adapter's settings."""
        if not isinstance(settings, RunpodSettings):
            raise TypeError(f"{self.name} takes RunpodSettings")
        return RunpodClient(settings, transport)

    def classify(self, exchange: Exchange, switched_on: frozenset[str]) -> CreateOutcome:
        """What a create call came to; ambiguous unless proven otherwise."""
        return classify(exchange, switched_on)

    def read_status(
        self, http_status: int, headers: Mapping[str, str], body: bytes
    ) -> StatusReading:
        """What one whole status answer says."""
        return read_status(http_status, headers, body)

    def find_artifacts(self, output: Json) -> tuple[FoundArtifact, ...]:
        """The usable references in an output, in its order."""
        return find_artifacts(output)

    def webhook_job_id(self, body: bytes) -> str | None:
        """The top-level `id`; the body echoes our input and token, so nothing else is read."""
        return top_level_id(body, read_json(body))


ADAPTER = RunpodAdapter()
