"""Endpoints, adapters, clients, the address for callbacks."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from services.submitter.routes import open_routes
from services.submitter.webhooks import WebhookAddresses
from shared.domain.durations import TimeScale
from shared.domain.errors import Refused
from shared.domain.registry import EndpointSpec, Registry
from shared.domain.webhook_token import NamedClaim, WebhookKeys, verify
from shared.kit.http import HttpTransport
from shared.kit.settings import SettingsInvalid
from shared.providers import ADAPTERS
from shared.providers.runpod import RunpodAdapter

KEYS = WebhookKeys.parse("k1:0123456789abcdef")


def registry(*names: str, **changes: Any) -> Registry:
    """A registry of like endpoints."""
    return Registry(
        endpoints={
            name: EndpointSpec.model_validate(
                {
                    "name": name,
                    "provider": "runpod",
                    "endpoint_id": "remote",
                    "input_schema": {},
                    "estimated_cost_usd": "0.05",
                    **changes,
                }
            )
            for name in names
        }
    )


@pytest.fixture
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COATCHECK_RUNPOD_API_KEY", "rp_secret")
    monkeypatch.setenv("COATCHECK_RUNPOD_BASE_URL", "https://api.runpod.example/v2")


@pytest.mark.usefixtures("_key")
def test_claim_terms_are_scaled_and_say_where_the_call_goes() -> None:
    routes = open_routes(registry("a", max_in_flight=7), HttpTransport())
    route = routes.find("a")
    assert route is not None
    terms = route.terms(TimeScale(60.0))
    assert terms.max_in_flight == 7
    assert terms.counts_for == timedelta(seconds=(3600 + 1800) / 60)
    assert terms.claim_life == timedelta(seconds=9)
    assert terms.sent_to == {
        "base_url": "https://api.runpod.example/v2",
        "endpoint_id": "remote",
    }


@pytest.mark.usefixtures("_key")
def test_one_client_serves_all_endpoints_of_a_provider(
    capsys: pytest.CaptureFixture[str],
) -> None:
    routes = list(open_routes(registry("a", "b"), HttpTransport()))
    assert [route.spec.name for route in routes] == ["a", "b"]
    assert routes[0].client is routes[1].client
    assert "rp_secret" not in capsys.readouterr().out


@pytest.mark.usefixtures("_key")
def test_an_endpoint_that_left_the_registry_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    routes = open_routes(registry("a"), HttpTransport())
    capsys.readouterr()
    assert routes.find("gone") is routes.find("gone") is None
    assert capsys.readouterr().out.count("endpoint_not_in_registry") == 1


def test_a_provider_without_an_adapter_is_refused_by_name() -> None:
    with pytest.raises(Refused, match=r"the provider 'teleport'; there is: .*runpod"):
        open_routes(registry("a", provider="teleport"), HttpTransport())


def test_a_missing_provider_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COATCHECK_RUNPOD_API_KEY", raising=False)
    with pytest.raises(SettingsInvalid, match="COATCHECK_RUNPOD_API_KEY is missing"):
        open_routes(registry("a"), HttpTransport())


def test_a_callback_address_holds_a_token_of_the_claim() -> None:
    job_id, token = UUID(int=1), UUID(int=2)
    url = WebhookAddresses("https://hooks.example", KEYS).url(ADAPTERS["runpod"], job_id, token)
    assert url is not None
    start, _, spelled = url.rpartition("/")
    assert start == "https://hooks.example/webhooks/runpod"
    assert verify(KEYS, "runpod", spelled.encode()) == NamedClaim(job_id, token)


def test_there_is_no_address_where_nobody_listens_or_calls() -> None:
    job_id, token = UUID(int=1), UUID(int=2)
    assert WebhookAddresses().url(ADAPTERS["runpod"], job_id, token) is None
    silent = RunpodAdapter(webhook_scheme=None)
    assert WebhookAddresses("https://hooks.example", KEYS).url(silent, job_id, token) is None
