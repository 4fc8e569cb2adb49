"""The submitter as a process: signals, kills, pauses and outages around calls in flight."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from shared.domain.job import Job
from shared.domain.stages import Stage
from shared.store.pool import Database
from shared.store.queries import claims_of
from tests.store import rows
from tests.system.postgres_gate import PostgresGate
from tests.system.room_process import RoomProcess, started
from tests.system.submitter.bench import KEY, Provider, aged, until

REGISTRY = """
[endpoints.demo-video]
provider = "runpod"
endpoint_id = "demo"
input_schema = "any.json"
estimated_cost_usd = "0.05"
"""

Start = Callable[..., AbstractAsyncContextManager[RoomProcess]]


@pytest.fixture
def start(database_url: str, provider: Provider, tmp_path: Path) -> Start:
    """Starts a submitter that buys from the fake."""
    (tmp_path / "endpoints.toml").write_text(REGISTRY)
    (tmp_path / "any.json").write_text("{}")
    usual = {
        "DATABASE_URL": database_url,
        "ENDPOINTS_FILE": str(tmp_path / "endpoints.toml"),
        "RUNPOD_BASE_URL": f"{provider.url}/v2",
        "RUNPOD_API_KEY": KEY,
        "TIME_SCALE": "60",
    }

    @asynccontextmanager
    async def start(**changes: str) -> AsyncIterator[RoomProcess]:
        async with started("submitter", tmp_path / "log", **{**usual, **changes}) as room:
            yield room

    return start


async def is_in(database: Database, job: Job, stage: Stage) -> Job:
    """The job, once it stands in that stage."""

    async def has_come() -> bool:
        return (await rows.now(database, job)).stage is stage

    await until(has_come)
    return await rows.now(database, job)


async def test_a_stop_waits_for_the_call_in_flight_and_claims_nothing_more(
    database: Database, provider: Provider, start: Start
) -> None:
    await provider.script(create={"gate": "answer"}, webhook={"send": False})
    job = await rows.requested(database)
    async with start() as room:
        await room.is_ready()
        await provider.held("answer")
        room.process.send_signal(signal.SIGTERM)
        await room.is_ready(False)
        later = await rows.requested(database)
        assert room.process.returncode is None
        await provider.control("POST", "gates/answer/open")
        assert await room.ended() == 0
        assert room.log("drain_overran") == []
    assert (await rows.now(database, job)).stage is Stage.accepted
    assert (await rows.now(database, later)).stage is Stage.unsubmitted
    assert len(await provider.creates()) == 1


async def test_a_kill_between_claim_and_accept_leaves_an_unknown_that_nobody_buys(
    database: Database, provider: Provider, start: Start
) -> None:
    await provider.script(create={"gate": "answer"}, webhook={"send": False})
    job = await rows.requested(database)
    async with start() as room:
        await provider.held("answer")
        assert await room.ended(signal.SIGKILL) == -signal.SIGKILL
    assert (await rows.now(database, job)).stage is Stage.submitting
    await aged(database, job)
    async with start() as room:
        await is_in(database, job, Stage.unknown)
        other = await rows.requested(database)
        await provider.control("POST", "gates/answer/open")
        await is_in(database, other, Stage.accepted)
        assert await room.ended(signal.SIGTERM) == 0
    assert len(await provider.creates()) == 2
    assert len(await claims_of(database, job.id)) == 1


def is_pending(pid: int, number: int) -> bool:
    """Whether the signal waits for the process to go on."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


async def test_a_process_paused_before_its_first_byte_dies_instead_of_sending_late(
    database: Database, provider: Provider, start: Start
) -> None:
    """It is stopped while it waits for a TLS greeting, so nothing of the request has left."""
    rooms: asyncio.Queue[RoomProcess] = asyncio.Queue()
    stopped, left = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Here and not in the test's own body: the call waits three seconds for its greeting.
        (await rooms.get()).process.send_signal(signal.SIGSTOP)
        stopped.set()
        await reader.read()
        writer.transport.abort()
        left.set()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    job = await rows.requested(database)
    async with server, start(RUNPOD_BASE_URL=f"https://127.0.0.1:{port}/v2") as room:
        rooms.put_nowait(room)
        await stopped.wait()

        async def has_struck() -> bool:
            return is_pending(room.process.pid, signal.SIGALRM)

        await until(has_struck)
        assert await room.ended(signal.SIGCONT) == -signal.SIGALRM
        await left.wait()
    assert (await rows.now(database, job)).stage is Stage.submitting


async def test_an_outage_of_the_database_ends_nothing(
    database: Database, database_url: str, provider: Provider, start: Start
) -> None:
    async with (
        PostgresGate(database_url).listening() as gate,
        start(DATABASE_URL=gate.url) as room,
    ):
        await room.is_ready()
        gate.shut()
        await room.is_ready(False)
        answer = await room.get("/livez")
        assert answer is not None
        assert answer.status_code == 200
        job = await rows.requested(database)
        gate.reopen()
        await is_in(database, job, Stage.accepted)
        await room.is_ready()
        lost = [entry["part"] for entry in room.log("part_lost")]
        assert lost == sorted(set(lost), key=lost.index), "said once per outage"
    assert len(await provider.creates()) == 1


async def test_zeros_are_exported_and_a_call_is_counted(
    database: Database, provider: Provider, start: Start
) -> None:
    async with start() as room:
        await room.is_ready()
        attempts = 'coatcheck_submit_attempts_total{outcome="%s",provider="runpod"}'
        before = await room.metrics()
        assert [before[attempts % word] for word in ("accepted", "no_job", "ambiguous")] == [0] * 3
        assert before["coatcheck_paid_calls_per_claim_max"] == 0
        await is_in(database, await rows.requested(database), Stage.accepted)

        async def is_counted() -> bool:
            now = await room.metrics()
            return (now[attempts % "accepted"], now["coatcheck_paid_calls_per_claim_max"]) == (1, 1)

        await until(is_counted)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ENDPOINTS_FILE": "/nowhere/endpoints.toml"}, "/nowhere/endpoints.toml"),
        ({"RUNPOD_API_KEY": ""}, "COATCHECK_RUNPOD_API_KEY is missing"),
        ({"WEBHOOK_BASE_URL": "http://127.0.0.1:1"}, "COATCHECK_WEBHOOK_KEYS"),
    ],
)
async def test_a_wrong_setting_names_itself_and_exits_2(
    start: Start, tmp_path: Path, changes: dict[str, str], text: str
) -> None:
    async with start(**changes) as room:
        assert await room.ended() == 2
    assert text in (tmp_path / "log").read_text()
