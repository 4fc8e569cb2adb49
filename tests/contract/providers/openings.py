"""What the conformance suite needs to know of each adapter to try it.

Owns one entry per adapter: settings that point at a test's server, an answer that accepts a
create, and a status record. A new adapter without an entry fails the suite by name. Must never
hold a real key.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import SecretStr

from shared.domain.provider import CreateRequest, Handle
from shared.kit.settings import CoatcheckSettings
from shared.providers.runpod.settings import RunpodSettings

KEY = "rpa_CANARY0123456789"
JOB_ID = "11111111-2222-4333-8444-000000000001-u1"


@dataclass(frozen=True)
class Opening:
    """How one adapter is tried. `record(word, id)` makes a status body."""

    settings: Callable[[str], CoatcheckSettings]
    accepted: bytes
    record: Callable[[str, str], bytes]
    running_word: str
    every_refusal: frozenset[str]


def _runpod_settings(base_url: str) -> RunpodSettings:
    return RunpodSettings(env="dev", runpod_api_key=SecretStr(KEY), runpod_base_url=base_url)


OPENINGS: dict[str, Opening] = {
    "runpod": Opening(
        settings=_runpod_settings,
        accepted=json.dumps({"id": JOB_ID, "status": "IN_QUEUE"}).encode(),
        record=lambda state, job_id: json.dumps({"id": job_id, "status": state}).encode(),
        running_word="IN_PROGRESS",
        every_refusal=frozenset(("401", "403", "404", "409", "429")),
    ),
}


def create_request(base_url: str) -> CreateRequest:
    """A create as the submitter would make it."""
    return CreateRequest(
        base_url=base_url,
        endpoint_id="demo",
        input={"prompt": "a cat"},
        webhook_url="https://gw.example.net/webhooks/x/token",
        execution_timeout_seconds=600,
        ttl_seconds=3600,
    )


def handle(base_url: str, job_id: str = JOB_ID) -> Handle:
    """A job accepted at that address."""
    return Handle(base_url=base_url, endpoint_id="demo", provider_job_id=job_id)
