"""A scene for the archiver: a database, a bucket and a fake Runpod."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.kit.settings import StorageSettings
from shared.store.pool import Database
from tests.system.watchers import KEY, Scene, fake_runpod


@pytest.fixture
async def scene(
    database: Database,
    database_url: str,
    storage_settings: StorageSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Scene]:
    """All parts of a capture, and the key to the provider."""
    async with fake_runpod(tmp_path) as fake:
        monkeypatch.setenv("COATCHECK_ENV", "dev")
        monkeypatch.setenv("COATCHECK_RUNPOD_API_KEY", KEY)
        monkeypatch.setenv("COATCHECK_RUNPOD_BASE_URL", fake.base_url)
        yield Scene(database, database_url, fake, tmp_path, storage_settings)
