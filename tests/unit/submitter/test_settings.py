"""The submitter's settings."""

from typing import Any

import pytest

from services.submitter.settings import SubmitterSettings
from shared.kit.settings import SettingsInvalid, read_settings

KEYS = "k1:0123456789abcdef"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COATCHECK_DATABASE_URL", "postgresql://x@127.0.0.1/x")
    monkeypatch.setenv("COATCHECK_ENDPOINTS_FILE", "endpoints.toml")


def read(monkeypatch: pytest.MonkeyPatch, **values: Any) -> SubmitterSettings:
    """The settings with these variables set."""
    for name, value in values.items():
        monkeypatch.setenv(f"COATCHECK_{name}", value)
    return read_settings(SubmitterSettings)


@pytest.mark.parametrize("base", ["", "off", "OFF"])
def test_polling_only_needs_no_keys(monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    assert read(monkeypatch, WEBHOOK_BASE_URL=base).webhook_origin is None


def test_the_origin_has_no_trailing_slash(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, WEBHOOK_BASE_URL="https://hooks.example/cc/", WEBHOOK_KEYS=KEYS)
    assert settings.webhook_origin == "https://hooks.example/cc"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"WEBHOOK_BASE_URL": "https://hooks.example"}, "COATCHECK_WEBHOOK_KEYS: required"),
        (
            {"WEBHOOK_BASE_URL": "hooks.example", "WEBHOOK_KEYS": KEYS},
            "COATCHECK_WEBHOOK_BASE_URL: must be an http",
        ),
        (
            {"WEBHOOK_BASE_URL": "https://hooks.example", "WEBHOOK_KEYS": "k1:tooshort"},
            "COATCHECK_WEBHOOK_KEYS: the key of k1",
        ),
    ],
)
def test_callbacks_that_could_not_be_trusted_refuse_the_start(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], text: str
) -> None:
    with pytest.raises(SettingsInvalid, match=text) as caught:
        read(monkeypatch, **values)
    assert "tooshort" not in str(caught.value)


def test_a_stop_leaves_time_for_a_whole_paid_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch).drain_seconds > 30
