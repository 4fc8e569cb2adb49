"""Runpod's settings: checked at start, named when wrong, never showing the key."""

import pytest

from shared.kit.settings import SettingsInvalid, describe, read_settings
from shared.providers.runpod.settings import RunpodSettings
from tests.contract.providers.openings import KEY


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENV", "RUNPOD_API_KEY", "RUNPOD_BASE_URL", "RUNPOD_NON_ACCEPTANCE"):
        monkeypatch.delenv(f"COATCHECK_{name}", raising=False)
    monkeypatch.setenv("COATCHECK_RUNPOD_API_KEY", KEY)


def test_the_defaults() -> None:
    settings = read_settings(RunpodSettings)
    assert settings.runpod_base_url == "https://api.runpod.ai/v2"
    assert settings.runpod_non_acceptance == frozenset()
    assert KEY not in repr(describe(settings)) + repr(settings)


def test_there_is_no_default_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COATCHECK_RUNPOD_API_KEY")
    with pytest.raises(SettingsInvalid, match="COATCHECK_RUNPOD_API_KEY"):
        read_settings(RunpodSettings)


@pytest.mark.parametrize("key", [f"{KEY} ", f"{KEY}\nX: y", "schlüssel"])
def test_a_key_that_fits_no_header_is_refused_unseen(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COATCHECK_RUNPOD_API_KEY", key)
    with pytest.raises(SettingsInvalid, match="COATCHECK_RUNPOD_API_KEY") as raised:
        read_settings(RunpodSettings)
    assert key not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.net/v2",
        "https://api.runpod.io/v2",
        "https://rest.runpod.io",
        "https://runpod.io/v2",
        "https://user:pw@api.runpod.ai/v2",
        "https://api.runpod.ai/v2?x=1",
        "ftp://api.runpod.ai",
        "api.runpod.ai",
    ],
)
def test_a_wrong_address_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COATCHECK_RUNPOD_BASE_URL", url)
    with pytest.raises(SettingsInvalid, match="COATCHECK_RUNPOD_BASE_URL"):
        read_settings(RunpodSettings)


def test_a_plain_address_is_for_development_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COATCHECK_ENV", "dev")
    monkeypatch.setenv("COATCHECK_RUNPOD_BASE_URL", "http://127.0.0.1:9/v2/")
    assert read_settings(RunpodSettings).runpod_base_url == "http://127.0.0.1:9/v2"


def test_the_refusals_that_may_be_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COATCHECK_RUNPOD_NON_ACCEPTANCE", " 401, 429,")
    assert read_settings(RunpodSettings).runpod_non_acceptance == {"401", "429"}
    monkeypatch.setenv("COATCHECK_RUNPOD_NON_ACCEPTANCE", "401,500")
    with pytest.raises(SettingsInvalid, match="COATCHECK_RUNPOD_NON_ACCEPTANCE"):
        read_settings(RunpodSettings)
    assert RunpodSettings(runpod_non_acceptance=frozenset(("404",))).runpod_non_acceptance
