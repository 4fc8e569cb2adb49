"""The submitter's parts on real PostgreSQL and a fake Runpod, in the test's own process.

Owns putting them together like the room does, with a watch that only notes what it is told: the
real timer would end the test run. Everything waits for events, never for time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx
from pydantic import SecretStr

from services.submitter.calling import CallTools
from services.submitter.claiming import Claimer
from services.submitter.flight import FlightLoop
from services.submitter.housekeeping import Housekeeping
from services.submitter.rests import EndpointRests
from services.submitter.routes import Route, Routes
from services.submitter.slots import Slots
from services.submitter.webhooks import WebhookAddresses
from services.submitter.writing import PatientWriter
from shared.domain.durations import TimeScale
from shared.domain.job import Job
from shared.domain.registry import EndpointSpec
from shared.kit.http import HttpTransport
from shared.kit.loops import Backoff, Pulse
from shared.providers import ADAPTERS, ProviderAdapter
from shared.providers.runpod.settings import RunpodSettings
from shared.store.pool import Database
from tests.fakes.runpod.app import FakeRunpod
from tests.store import rows

KEY = "rp_test_key"
NOW = {"queue_s": 0, "run_s": 0}


@dataclass
class Watch:
    """Notes what the dead man's timer would have been told."""

    armed: dict[UUID, float] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def arm(self, token: UUID, at_boottime: float) -> None:
        """Notes a deadline."""
        self.armed[token] = at_boottime
        self.told.append("armed")

    def disarm(self, token: UUID) -> None:
        """Notes that it is off."""
        if self.armed.pop(token, None) is not None:
            self.told.append("disarmed")


@dataclass
class Provider:
    """A running fake and its control API."""

    app: FakeRunpod
    url: str
    http: httpx.AsyncClient

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        """A control call that is expected to succeed; its JSON."""
        answer = await self.http.request(method, f"{self.url}/control/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    async def script(self, **fields: Any) -> None:
        """Adds a script for the creates to come."""
        await self.control("POST", "scripts", fields)

    async def creates(self) -> list[dict[str, Any]]:
        """Every create call in the journal."""
        page = await self.control("GET", "journal?kind=run&full=1")
        found: list[dict[str, Any]] = page["entries"]
        return found

    async def held(self, gate: str, count: int = 1) -> None:
        """Returns once so many answers wait at the gate."""

        async def are_held() -> bool:
            gates = await self.control("GET", "gates")
            return bool(gates.get(gate, {}).get("waiting") == count)

        await until(are_held)


@dataclass
class Bench:
    """One submitter's parts."""

    database: Database
    claimer: Claimer
    flight: FlightLoop
    slots: Slots
    housekeeping: Housekeeping
    watch: Watch
    tools: CallTools
    stopping: asyncio.Event

    async def sweep(self) -> bool:
        """One pass of the sweep; whether it wants another at once."""
        return await self.claimer.sweep_once(pulse())

    async def landed(self) -> None:
        """Returns once no call is in flight."""
        await self.slots.all_back.wait()

    async def bought(self, job: Job) -> Job:
        """Sweeps once, waits for all calls, and reads the job."""
        await self.sweep()
        await self.landed()
        return await rows.now(self.database, job)


def pulse() -> Pulse:
    """A pulse of a loop that nobody stops."""
    return Pulse("test", 60.0, asyncio.Event())


def endpoint(**changes: Any) -> EndpointSpec:
    """The usual endpoint, as the registry holds it."""
    values = {
        "name": rows.ENDPOINT,
        "provider": "runpod",
        "endpoint_id": "demo",
        "input_schema": {},
        "estimated_cost_usd": Decimal("0.05"),
    }
    return EndpointSpec.model_validate({**values, **changes})


def bench(
    database: Database,
    base_url: str,
    *,
    specs: tuple[EndpointSpec, ...] = (),
    adapter: ProviderAdapter | None = None,
    most_calls: int = 16,
    scale: TimeScale | None = None,
    webhooks: WebhookAddresses | None = None,
    switched_on: frozenset[str] = frozenset(),
) -> Bench:
    """A submitter whose calls go to `base_url`."""
    scale, stopping = scale or TimeScale(), asyncio.Event()
    adapter = adapter or ADAPTERS["runpod"]
    settings = RunpodSettings(
        env="dev",
        runpod_api_key=SecretStr(KEY),
        runpod_base_url=base_url,
        runpod_non_acceptance=switched_on,
    )
    client = adapter.open(settings, HttpTransport(scale))
    routes = Routes(Route(spec, adapter, client) for spec in specs or (endpoint(),))
    slots = Slots(most_calls, stopping)
    rests = EndpointRests(Backoff(60.0, 60.0))
    watch = Watch()
    tools = CallTools(
        database=database,
        writer=PatientWriter(knock_seconds=0.01),
        watch=watch,
        webhooks=webhooks or WebhookAddresses(),
        rests=rests,
        scale=scale,
    )
    flight = FlightLoop(slots, tools)
    claimer = Claimer(database, routes, slots, rests, flight, scale)
    housekeeping = Housekeeping(database, routes, scale)
    return Bench(database, claimer, flight, slots, housekeeping, watch, tools, stopping)


async def made_due(database: Database, job: Job) -> None:
    """Ends a released job's wait."""
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE jobs SET next_check_at = clock_timestamp() WHERE id = $1", job.id
        )


async def aged(database: Database, job: Job, hours: int = 2) -> None:
    """Moves the job's request, and its claim if there is one, into the past."""
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE jobs SET created_at = created_at - $2 * interval '1 hour',"
            " claimed_at = claimed_at - $2 * interval '1 hour' WHERE id = $1",
            job.id,
            hours,
        )


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Returns once `check` says so; the test's own time limit is the only one."""
    while True:
        if await check():
            return
        await asyncio.sleep(0.005)
