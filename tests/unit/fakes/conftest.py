"""A fake Runpod in this process on a real port, a client with its key, a webhook receiver.

Owns: starting and stopping one fake per test on a journal of its own.
Promises: nothing listens and no task runs once a test is over.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.runpod.app import FakeRunpod
from tests.fakes.runpod.journal import Journal
from tests.fakes.runpod.settings import FakeSettings
from tests.fakes.runpod.wire import Answer, Call, HttpServer

KEY = "rp_test_key"
NOW = {"queue_s": 0, "run_s": 0}


@dataclass
class Running:
    """A started fake: `http` has the key, the address and no retries."""

    http: httpx.AsyncClient
    url: str
    settings: FakeSettings
    app: FakeRunpod

    async def create(self, endpoint: str = "demo", **body: Any) -> str:
        """Creates a job that is expected to be accepted; its id."""
        body.setdefault("input", {"prompt": "a red fox"})
        answer = await self.http.post(f"/v2/{endpoint}/run", json=body)
        assert answer.status_code == 200, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    async def scripted(self, webhook: str | None = None, **script: Any) -> str:
        """Creates a job with a script of its own; its id."""
        body: dict[str, Any] = {"input": {"prompt": "a red fox", "fake": script}}
        if webhook is not None:
            body["webhook"] = webhook
        return await self.create(**body)

    async def record(self, job_id: str) -> dict[str, Any]:
        """The status record, expected to exist."""
        answer = await self.http.get(f"/v2/demo/status/{job_id}")
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        """A control call that is expected to succeed; its JSON."""
        answer = await self.http.request(method, f"/control/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    async def entries(self, kind: str) -> list[dict[str, Any]]:
        """The journal's entries of one kind."""
        page = await self.control("GET", f"journal?kind={kind}")
        found: list[dict[str, Any]] = page["entries"]
        return found


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Returns once `check` says so; the test's own time limit is the only one."""
    while True:
        if await check():
            return
        await asyncio.sleep(0.005)


def fail_loudly(error: OSError) -> None:
    raise AssertionError(f"the journal broke: {error}")


@asynccontextmanager
async def running(settings: FakeSettings) -> AsyncIterator[Running]:
    fake = FakeRunpod(settings, Journal(settings.journal, fail_loudly))
    headers = {"Authorization": f"Bearer {KEY}"}
    try:
        url = f"http://127.0.0.1:{await fake.start()}"
        async with httpx.AsyncClient(
            base_url=url, headers=headers, trust_env=False, timeout=30
        ) as http:
            yield Running(http, url, settings, fake)
    finally:
        await fake.stop()


@pytest.fixture
def settings(tmp_path: Path) -> FakeSettings:
    return FakeSettings("127.0.0.1", 0, tmp_path / "journal.jsonl", tmp_path / "media", KEY)


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def start(settings: FakeSettings) -> AsyncIterator[Start]:
    """Starts a fake with some settings changed; stopped at the end of the test."""
    async with AsyncExitStack() as stack:

        async def started(**changed: Any) -> Running:
            return await stack.enter_async_context(running(replace(settings, **changed)))

        yield started


@pytest.fixture
async def fake(start: Start) -> Running:
    return await start()


@dataclass
class Receiver:
    """Takes webhooks; answers with `statuses` in order, then 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    taken: asyncio.Queue[Call] = field(default_factory=asyncio.Queue)

    async def take(self, call: Call) -> Answer:
        self.taken.put_nowait(call)
        return Answer(self.statuses.pop(0) if self.statuses else 200)

    async def body(self) -> dict[str, Any]:
        """The body of the next webhook, waited for."""
        call = await self.taken.get()
        found: dict[str, Any] = json.loads(call.body)
        return found


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    server = HttpServer(found.take)
    port = server.bind("127.0.0.1", 0)
    await server.start()
    found.url = f"http://127.0.0.1:{port}/webhooks/runpod"
    yield found
    await server.stop()
