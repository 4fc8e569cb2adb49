"""Lifetimes of results by class, read from one setting."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from services.archiver.settings import ArchiverSettings
from shared.domain.durations import TimeScale


def settings(**changes: Any) -> ArchiverSettings:
    return ArchiverSettings(
        database_url=SecretStr("postgresql://db"),
        s3_bucket="bucket",
        s3_access_key_id="id",
        s3_secret_access_key=SecretStr("secret"),
        endpoints_file=Path("endpoints.toml"),
        **changes,
    )


def test_previews_live_a_week_and_the_rest_for_ever() -> None:
    usual = settings()
    assert usual.lifetime("preview", TimeScale()) == timedelta(days=7)
    assert usual.lifetime("keep", TimeScale()) is None
    assert usual.lifetime("archive", TimeScale()) is None


def test_lifetimes_are_scaled() -> None:
    assert settings().lifetime("preview", TimeScale(60)) == timedelta(days=7) / 60


def test_classes_come_from_the_setting() -> None:
    named = settings(retention_days="preview=1, archive=365")
    assert named.lifetime("preview", TimeScale()) == timedelta(days=1)
    assert named.lifetime("archive", TimeScale()) == timedelta(days=365)


@pytest.mark.parametrize("value", ["", "keep=1", "preview", "preview=0", "preview=-1", "a=99999"])
def test_a_wrong_lifetime_is_refused(value: str) -> None:
    with pytest.raises(ValidationError):
        settings(retention_days=value)
