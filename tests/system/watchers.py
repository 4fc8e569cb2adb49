"""Reconciler and archiver as they run, on real parts, in the test's own process.

Owns a scene: a fresh database, a fake Runpod, a registry file, and jobs that were really bought
from the fake. The rooms are opened through their own `ROOM` and run by their own loops; scale 60
makes a minute a second. Everything waits for states, never for time.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from services.archiver.settings import ArchiverSettings
from services.archiver.work import ROOM as ARCHIVER
from services.reconciler.settings import ReconcilerSettings
from services.reconciler.work import ROOM as RECONCILER
from shared.domain.job import Job
from shared.domain.provider import Handle
from shared.domain.stages import Stage
from shared.kit.exporting import DECLARED
from shared.kit.loops import Pulse
from shared.kit.service import Room, RoomContext
from shared.kit.settings import StorageSettings
from shared.store.pool import Database
from shared.store.queries import TimelineEntry, timeline
from shared.store.transitions import submission
from tests.fakes.runpod.app import FakeRunpod
from tests.fakes.runpod.journal import Journal
from tests.fakes.runpod.settings import FakeSettings
from tests.store import rows

KEY = "rp_test_key"
SCALE = 60.0
AT_ONCE = {"queue_s": 0, "run_s": 0}
VIDEO = {
    "name": "master",
    "path": "$.video_url",
    "media_types": ["video/mp4"],
    "max_bytes": 2_000_000_000,
    "hosts": ["files.example.com"],
}


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Returns once `check` says so; the test's own time limit is the only one."""
    while True:
        if await check():
            return
        await asyncio.sleep(0.01)


def counted(name: str, **labels: str) -> float:
    """A metric's value now; 0 where it was never touched."""
    samples = [item for family in DECLARED[name].metric.collect() for item in family.samples]
    found = [item.value for item in samples if item.name == name and item.labels == labels]
    return sum(found)


@dataclass
class Fake:
    """A running fake Runpod and its control API."""

    app: FakeRunpod
    url: str
    http: httpx.AsyncClient

    @property
    def base_url(self) -> str:
        """What a handle's base is."""
        return f"{self.url}/v2"

    @property
    def place(self) -> str:
        """The host:port of its results."""
        return self.url.removeprefix("http://")

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        """A control call that is expected to succeed; its JSON."""
        answer = await self.http.request(method, f"{self.url}/control/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    async def buy(self, script: Mapping[str, Any] | None = None) -> str:
        """Makes a job at the provider that plays `script`; its id."""
        answer = await self.http.post(
            f"{self.base_url}/demo/run",
            json={"input": {"prompt": "a lake", "fake": {"job": AT_ONCE, **(script or {})}}},
            headers={"Authorization": f"Bearer {KEY}"},
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def calls(self, kind: str, job_id: str | None = None) -> list[dict[str, Any]]:
        """The journal's calls of a kind, of one job or of all."""
        asked = f"journal?kind={kind}" + (f"&job_id={job_id}" if job_id else "")
        entries: list[dict[str, Any]] = (await self.control("GET", asked))["entries"]
        return entries

    async def result(self, job_id: str) -> dict[str, Any]:
        """Digest and size of what the job's link serves."""
        shown: dict[str, Any] = (await self.control("GET", f"jobs/{job_id}"))["result"]
        return shown

    async def is_held(self, gate: str) -> bool:
        """Whether an answer waits at the gate."""
        gates = await self.control("GET", "gates")
        return bool(gates.get(gate, {}).get("waiting"))


def _fail_loudly(error: OSError) -> None:
    raise AssertionError(f"the journal broke: {error}")


@asynccontextmanager
async def fake_runpod(folder: Path) -> AsyncIterator[Fake]:
    """A fake Runpod on a port of its own; it forgets results after half a scaled hour."""
    journal = folder / "journal.jsonl"
    settings = FakeSettings("127.0.0.1", 0, journal, folder / "media", KEY, time_scale=SCALE)
    app = FakeRunpod(settings, Journal(journal, _fail_loudly))
    try:
        port = await app.start()
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            yield Fake(app, f"http://127.0.0.1:{port}", http)
    finally:
        await app.stop()


@dataclass
class Scene:
    """The parts of a test."""

    database: Database
    database_url: str
    fake: Fake
    folder: Path
    storage: StorageSettings | None = None
    kafka: str | None = None
    terms: dict[str, Any] = field(default_factory=dict)

    def write_registry(self, *artifacts: Mapping[str, Any]) -> Path:
        """The registry of today, with these artifacts."""
        (self.folder / "schema.json").write_text("{}")
        lines = ["[endpoints.demo-video]", 'provider = "runpod"', 'endpoint_id = "demo"']
        lines += ['input_schema = "schema.json"', 'estimated_cost_usd = "0.05"']
        for artifact in artifacts or (VIDEO,):
            lines.append("[[endpoints.demo-video.artifacts]]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in artifact.items()]
        path = self.folder / "endpoints.toml"
        path.write_text("\n".join(lines))
        return path

    async def bought(self, script: Mapping[str, Any] | None = None, **changes: Any) -> Job:
        """An accepted job, really bought from the fake, whose first check is due."""
        return await self.accepted(await self.fake.buy(script), **changes)

    async def accepted(self, provider_job_id: str, **changes: Any) -> Job:
        """An accepted job under that provider id. Terms other than the usual make a revision."""
        if self.terms:
            pinned = {**rows.PINNED, **self.terms}
            changes |= {"endpoint_pinned": pinned, "endpoint_revision": f"revision-{uuid4()}"}
        claim = await rows.claimed(self.database, await rows.requested(self.database, **changes))
        handle = Handle(self.fake.base_url, "demo", provider_job_id)
        return rows.landed(
            await submission.submission_accepted(self.database, claim, handle, first_check=rows.NOW)
        )

    async def job(self, job: Job) -> Job:
        """The row as it is now."""
        return await rows.now(self.database, job)

    async def settled(self, job: Job, *stages: Stage) -> Job:
        """The row once it stands in one of these stages."""

        async def is_there() -> bool:
            return (await self.job(job)).stage in stages

        await until(is_there)
        return await self.job(job)

    async def told(self, job: Job) -> list[TimelineEntry]:
        """The audit rows of the job."""
        return await timeline(self.database, job.id)

    async def run(self, statement: str, *arguments: Any) -> None:
        """A statement of the test's own: what only time or an operator would do."""
        async with self.database.connection() as connection:
            await connection.execute(statement, *arguments)

    async def lose_lease(self, job: Job) -> None:
        """Ends whatever lease the job is under, as its time would."""
        await self.run(
            "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
            " WHERE id = $1",
            job.id,
        )

    @asynccontextmanager
    async def reconciler(self, **changes: Any) -> AsyncIterator[None]:
        """The reconciler at work."""
        settings = ReconcilerSettings(**{**self._common(), **changes})
        async with _at_work(RECONCILER, settings):
            yield

    @asynccontextmanager
    async def archiver(self, **changes: Any) -> AsyncIterator[None]:
        """The archiver at work."""
        assert self.storage is not None
        settings = ArchiverSettings(**{**self._common(), **self.storage.model_dump(), **changes})
        async with _at_work(ARCHIVER, settings):
            yield

    def environment(self) -> dict[str, str]:
        """The same settings for a room that is a process of its own."""
        assert self.storage is not None
        registry = self._common()["endpoints_file"]
        return {
            "TIME_SCALE": str(SCALE),
            "DATABASE_URL": self.database_url,
            "ENDPOINTS_FILE": str(registry),
            "FETCH_ALLOW_PRIVATE": self.fake.place,
            "RUNPOD_API_KEY": KEY,
            "RUNPOD_BASE_URL": self.fake.base_url,
            "S3_ENDPOINT_URL": str(self.storage.s3_endpoint_url),
            "S3_BUCKET": self.storage.s3_bucket,
            "S3_REGION": self.storage.s3_region,
            "S3_ACCESS_KEY_ID": self.storage.s3_access_key_id,
            "S3_SECRET_ACCESS_KEY": self.storage.s3_secret_access_key.get_secret_value(),
        }

    def _common(self) -> dict[str, Any]:
        registry = self.folder / "endpoints.toml"
        return {
            "env": "dev",
            "time_scale": SCALE,
            "database_url": self.database_url,
            "kafka_bootstrap_servers": self.kafka,
            "endpoints_file": registry if registry.exists() else self.write_registry(),
            "fetch_allow_private": frozenset({self.fake.place}),
        }


@asynccontextmanager
async def _at_work(room: Room[Any], settings: Any) -> AsyncIterator[None]:
    """Opens the room and runs its loops; a crash of one fails the test."""
    stopping = asyncio.Event()
    context = RoomContext(room.name, settings, stopping)
    async with room.open(context) as loops, asyncio.TaskGroup() as tasks:
        for loop in loops:
            tasks.create_task(loop.run(Pulse(loop.name, loop.beat_bound_seconds, stopping)))
        try:
            yield
        finally:
            stopping.set()
