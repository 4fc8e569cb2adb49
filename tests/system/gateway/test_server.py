"""The gateway behind its real server, over real sockets."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx

from deploy.local import ports
from services.gateway.app import make_app
from services.gateway.desk import Desk
from shared.kit.admin import HttpServerLoop
from shared.kit.loops import Pulse
from shared.media.objects import ObjectStore
from shared.store.pool import Database
from tests.system.gateway.bench import Caller, assert_problem
from tests.system.gateway.test_artifacts import CONTENT, stored


class _Endless:
    """A bucket whose objects never end; it tells when a reader's stream was closed."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def open_range(
        self, key: str, start: int = 0, end: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Pieces for ever."""
        try:
            while True:
                yield b"x" * 65_536
                await asyncio.sleep(0)
        finally:
            self.closed.set()


@asynccontextmanager
async def served(desk: Desk) -> AsyncIterator[str]:
    """A gateway on a free port, and its address; stopped and drained afterwards."""
    (port,) = ports.free_block(1)
    loop = HttpServerLoop(make_app(desk), "127.0.0.1", port, variable="GATEWAY_PORT")
    pulse = Pulse("gateway.http", 15, asyncio.Event())
    running = asyncio.create_task(loop.run(pulse))
    await pulse.first_beat.wait()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        pulse.stopping.set()
        await running


def client(url: str, owner: Caller) -> httpx.AsyncClient:
    """The caller, over a real connection."""
    authorization = {"Authorization": owner.http.headers["authorization"]}
    return httpx.AsyncClient(base_url=url, headers=authorization, trust_env=False, timeout=60)


async def test_bytes_and_refusals_over_a_real_connection(
    desk: Desk, owner: Caller, database: Database, object_store: ObjectStore
) -> None:
    href = f"/v1/jobs/{await stored(database, object_store)}/artifacts/master"
    async with served(desk) as url, client(url, owner) as http:
        whole = await http.get(href)
        assert (whole.status_code, whole.content) == (200, CONTENT)
        head = await http.head(href)
        assert (head.status_code, head.headers["content-length"]) == (200, str(len(CONTENT)))
        headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
        for size in (10_000_001, 33_000_000, 50_000_000):
            answer = await http.post("/v1/jobs", content=b" " * size, headers=headers)
            assert_problem(answer, 413, "payload_too_large")


async def test_a_caller_who_hangs_up_ends_the_transfer_from_the_bucket(
    desk: Desk, owner: Caller, database: Database
) -> None:
    href = f"/v1/jobs/{await stored(database, None, size=10**12)}/artifacts/master"
    endless = _Endless()
    gateway = replace(desk, store=endless)  # type: ignore[arg-type]
    async with served(gateway) as url, client(url, owner) as http:
        async with http.stream("GET", href) as answer:
            assert answer.status_code == 200
            await anext(answer.aiter_raw())
        await endless.closed.wait()
