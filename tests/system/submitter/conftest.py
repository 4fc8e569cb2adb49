"""A fake Runpod per test, and a submitter that buys from it."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from shared.store.pool import Database
from tests.fakes.runpod.app import FakeRunpod
from tests.fakes.runpod.journal import Journal
from tests.fakes.runpod.settings import FakeSettings
from tests.system.submitter.bench import KEY, Bench, Provider, bench


def _fail_loudly(error: OSError) -> None:
    raise AssertionError(f"the journal broke: {error}")


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    """A fake Runpod on a port of its own."""
    journal = tmp_path / "journal.jsonl"
    settings = FakeSettings("127.0.0.1", 0, journal, tmp_path / "media", KEY)
    app = FakeRunpod(settings, Journal(journal, _fail_loudly))
    try:
        port = await app.start()
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            yield Provider(app, f"http://127.0.0.1:{port}", http)
    finally:
        await app.stop()


@pytest.fixture
def submitter(database: Database, provider: Provider) -> Bench:
    """The parts of a submitter that buys from the fake."""
    return bench(database, f"{provider.url}/v2")
