"""The admin port and the server loop, over real sockets."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from deploy.local.ports import free_block
from shared.kit.admin import (
    AdminAnswer,
    AdminApp,
    AdminRequest,
    HttpServerLoop,
    PortTaken,
    Readiness,
    bind_port,
)
from shared.kit.loops import Pulse


class Served:
    """An admin application with what it looks at."""

    def __init__(self) -> None:
        self.readiness = Readiness()
        self.pulses: dict[str, Pulse] = {}
        self.requests: list[AdminRequest] = []
        routes = [
            ("POST", "/internal/echo", self._echo),
            ("GET", "/internal/broken", self._broken),
        ]
        self.app = AdminApp(self.readiness, self.pulses, routes)
        transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://admin")

    async def _echo(self, request: AdminRequest) -> AdminAnswer:
        self.requests.append(request)
        return AdminAnswer.of_json(200, {"length": len(request.body)})

    async def _broken(self, _: AdminRequest) -> AdminAnswer:
        raise ValueError("s3cr3t")


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    async with served.client:
        yield served


async def _yes() -> bool:
    return True


async def _no() -> bool:
    return False


async def _raise() -> bool:
    raise OSError("gone")


async def _hang() -> bool:
    await asyncio.Event().wait()
    return True


@pytest.mark.parametrize("state", ["starting", "draining"])
async def test_not_ready_outside_of_work(served: Served, state: str) -> None:
    served.readiness.add("database", _yes)
    served.readiness.state = state
    answer = await served.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "state": state}


async def test_ready_while_every_check_holds(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.kit.admin.CHECK_SECONDS", 0.01)
    served.readiness.state = "ready"
    served.readiness.add("database", _yes)
    answer = await served.client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"ready": True, "state": "ready", "checks": {"database": True}}
    for bad in (_no, _raise, _hang):
        served.readiness.add("kafka", bad)
        answer = await served.client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"] == {"database": True, "kafka": False}


async def test_live_while_every_loop_beats(served: Served) -> None:
    stopping = asyncio.Event()
    served.pulses["a"] = Pulse("a", 3600, stopping)
    assert (await served.client.get("/livez")).status_code == 200
    served.pulses["b"] = Pulse("b", -1, stopping)
    answer = await served.client.get("/livez")
    assert answer.status_code == 503
    assert answer.json()["live"] is False
    assert set(answer.json()["silent_seconds"]) == {"a", "b"}


async def test_metrics_are_text(served: Served) -> None:
    answer = await served.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["cache-control"] == "no-store"


async def test_a_rooms_own_route_gets_method_headers_and_body(served: Served) -> None:
    answer = await served.client.post(
        "/internal/echo", content=b"abc", headers={"Authorization": "Bearer x"}
    )
    assert answer.json() == {"length": 3}
    (request,) = served.requests
    assert (request.method, request.path, request.body) == ("POST", "/internal/echo", b"abc")
    assert request.headers["authorization"] == "Bearer x"


async def test_a_body_over_the_cap_is_refused(served: Served) -> None:
    answer = await served.client.post("/internal/echo", content=b"x" * 65_537)
    assert answer.status_code == 413
    assert not served.requests


async def test_unknown_paths_and_methods(served: Served) -> None:
    assert (await served.client.get("/")).status_code == 404
    answer = await served.client.get("/internal/echo")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    head = await served.client.head("/livez")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0


async def test_a_handler_that_fails_ends_only_its_request(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = await served.client.get("/internal/broken")
    assert answer.status_code == 500
    assert "s3cr3t" not in answer.text
    assert "admin_request_failed" in capsys.readouterr().out


async def test_other_scopes_are_left_alone(served: Served) -> None:
    await served.app({"type": "lifespan"}, None, None)


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.fixture
def port() -> int:
    (port,) = free_block(1)
    return port


async def test_the_server_loop_serves_until_stopped(port: int) -> None:
    stopping = asyncio.Event()
    loop = HttpServerLoop(_hello, "127.0.0.1", port, variable="COATCHECK_GATEWAY_PORT")
    pulse = Pulse(loop.name, loop.beat_bound_seconds, stopping)
    running = asyncio.create_task(loop.run(pulse))
    await pulse.first_beat.wait()
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "hello"
    stopping.set()
    await running
    bind_port("127.0.0.1", port, "X").close()


async def test_an_open_stream_cannot_hold_up_the_stop(port: int) -> None:
    cancelled = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"event\n", "more_body": True})
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    stopping = asyncio.Event()
    loop = HttpServerLoop(endless, "127.0.0.1", port, variable="X", graceful_seconds=0.1)
    pulse = Pulse(loop.name, loop.beat_bound_seconds, stopping)
    running = asyncio.create_task(loop.run(pulse))
    await pulse.first_beat.wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await reader.readuntil(b"event\n")
    stopping.set()
    await running
    assert cancelled.is_set()
    writer.close()


async def test_a_taken_port_names_port_and_variable(port: int) -> None:
    with bind_port("127.0.0.1", port, "X"):
        loop = HttpServerLoop(_hello, "127.0.0.1", port, variable="COATCHECK_GATEWAY_PORT")
        with pytest.raises(PortTaken) as caught:
            await loop.run(Pulse(loop.name, 1, asyncio.Event()))
    assert str(port) in str(caught.value)
    assert "in use" in str(caught.value)
    assert "COATCHECK_GATEWAY_PORT" in str(caught.value)


def test_an_address_that_is_not_ours_is_named(port: int) -> None:
    with pytest.raises(PortTaken, match=re.escape("192.0.2.1")):
        bind_port("192.0.2.1", port, "X")
    with pytest.raises(PortTaken, match="2001:db8::1"):
        bind_port("2001:db8::1", port, "X")


async def test_an_answer_is_json() -> None:
    answer = AdminAnswer.of_json(201, {"a": 1})
    assert (answer.status, json.loads(answer.body)) == (201, {"a": 1})
