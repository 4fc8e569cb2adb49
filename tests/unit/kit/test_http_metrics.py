"""Request metrics: counted under the template, never under the path."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from shared.kit.http_metrics import HttpMetrics
from shared.kit.telemetry import http_request_duration_seconds, http_requests

JOB_ID = "01981c5e-0000-7000-8000-000000000001"


def _app() -> FastAPI:
    app = FastAPI()

    @app.get("/v1/jobs/{job_id}")
    async def get_job(job_id: str) -> dict[str, str]:
        if job_id == "broken":
            raise ValueError("a bug")
        return {"id": job_id}

    return app


def _client(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(HttpMetrics(app, room="test"), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def _count(route: str, status: str) -> float:
    return float(http_requests.labels("test", route, status)._value.get())


@pytest.mark.parametrize(
    ("path", "route", "status"),
    [
        (f"/v1/jobs/{JOB_ID}", "/v1/jobs/{job_id}", "200"),
        ("/v1/jobs/broken", "/v1/jobs/{job_id}", "500"),
        ("/no/such/path", "unmatched", "404"),
    ],
)
async def test_a_request_is_counted_and_timed(path: str, route: str, status: str) -> None:
    before = _count(route, status)
    timed = http_request_duration_seconds.labels("test", route)
    timed_before = timed._sum.get()
    async with _client(_app()) as client:
        answer = await client.get(path)
    assert answer.status_code == int(status)
    assert _count(route, status) == before + 1
    assert timed._sum.get() > timed_before
    assert not any(JOB_ID in str(labels) for labels in http_requests._metrics)


async def test_a_request_without_an_answer_is_counted_too() -> None:
    async def leaves(scope: Any, receive: Any, send: Any) -> None:
        raise ConnectionResetError

    before = _count("unmatched", "none")
    with pytest.raises(ConnectionResetError):
        await HttpMetrics(leaves, room="test")({"type": "http"}, None, None)
    assert _count("unmatched", "none") == before + 1


async def test_other_scopes_pass_through() -> None:
    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    await HttpMetrics(inner, room="test")({"type": "lifespan"}, None, None)
    assert seen == [{"type": "lifespan"}]
