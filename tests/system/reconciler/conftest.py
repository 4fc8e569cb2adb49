"""A scene for the reconciler: no bucket is needed to ask."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.store.pool import Database
from tests.system.watchers import KEY, Scene, fake_runpod


@pytest.fixture
async def scene(
    database: Database,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Scene]:
    """A database, a fake Runpod and the key to it."""
    async with fake_runpod(tmp_path) as fake:
        monkeypatch.setenv("COATCHECK_ENV", "dev")
        monkeypatch.setenv("COATCHECK_RUNPOD_API_KEY", KEY)
        monkeypatch.setenv("COATCHECK_RUNPOD_BASE_URL", fake.base_url)
        yield Scene(database, database_url, fake, tmp_path)
