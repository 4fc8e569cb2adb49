"""Clients at the start: one for each provider of the registry, or a clear refusal."""

import os
from dataclasses import dataclass
from decimal import Decimal

import pytest

from shared.domain.errors import Refused
from shared.domain.registry import Registry
from shared.kit.http import HttpTransport
from shared.kit.settings import CoatcheckSettings, SettingsInvalid
from shared.providers import ADAPTERS, opening
from shared.providers.opening import open_providers


class OtherSettings(CoatcheckSettings):
    """The settings of a provider that this machine may have no key for."""

    other_api_key: str


@dataclass
class OtherAdapter:
    """As much of an adapter as opening looks at."""

    name: str = "other"
    settings_type: type[CoatcheckSettings] = OtherSettings

    def open(self, settings: CoatcheckSettings, transport: HttpTransport) -> str:
        """A client that says that it was opened."""
        return "opened"


def registry(*providers: str) -> Registry:
    specs = {
        f"endpoint-{provider}": {
            "name": f"endpoint-{provider}",
            "provider": provider,
            "endpoint_id": "demo",
            "input_schema": {},
            "estimated_cost_usd": Decimal("0.05"),
        }
        for provider in providers
    }
    return Registry.model_validate({"endpoints": specs})


@pytest.fixture(autouse=True)
def _two_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("COATCHECK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COATCHECK_RUNPOD_API_KEY", "rp_key")
    monkeypatch.setattr(opening, "ADAPTERS", {**ADAPTERS, "other": OtherAdapter()})


def test_each_provider_of_the_registry_is_opened() -> None:
    opened = open_providers(registry("runpod"), HttpTransport())
    assert set(opened) == {"runpod"}
    assert opened["runpod"].client.base_url == "https://api.runpod.ai/v2"


def test_a_provider_that_left_the_registry_is_opened_where_its_key_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COATCHECK_OTHER_API_KEY", "key")
    assert set(open_providers(registry("runpod"), HttpTransport())) == {"runpod", "other"}


def test_a_provider_of_the_registry_needs_its_key() -> None:
    with pytest.raises(SettingsInvalid, match="COATCHECK_OTHER_API_KEY"):
        open_providers(registry("runpod", "other"), HttpTransport())


def test_a_provider_without_an_adapter_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="'nobody'"):
        open_providers(registry("nobody"), HttpTransport())
