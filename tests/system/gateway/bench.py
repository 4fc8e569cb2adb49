"""A gateway in this process, on a real database and a real bucket, and its callers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from services.gateway.app import make_app
from services.gateway.desk import Desk
from services.gateway.sessions import Sessions
from services.gateway.settings import SessionSettings
from services.gateway.validation import compile_rules
from shared.kit.registry import load_registry
from shared.media.objects import ObjectStore
from shared.store.keys import SCOPES, key_created
from shared.store.pool import Database
from tests.store.rows import OWNER

ORIGIN = "https://app.example"
SESSION_SECRET = "a session secret for tests alone, made up"
SCHEMA = {
    "type": "object",
    "required": ["prompt"],
    "properties": {
        "prompt": {"type": "string", "minLength": 1, "maxLength": 4000},
        "seed": {"type": "integer"},
        "image": {"type": "string", "x-allowed-hosts": ["images.example.com", "*.cdn.example.com"]},
        "frames": {"type": "array", "items": {"type": "object"}},
    },
}
REGISTRY = """
[endpoints.demo-video]
provider = "runpod"
endpoint_id = "demo"
input_schema = "demo.json"
estimated_cost_usd = "0.05"
[[endpoints.demo-video.artifacts]]
name = "master"
path = "$.video_url"
hosts = ["results.example.com"]
"""
BODY: dict[str, Any] = {"endpoint": "demo-video", "input": {"prompt": "a lake"}}


def make_desk(database: Database, store: ObjectStore, folder: Path) -> Desk:
    """The gateway's parts with one endpoint."""
    (folder / "demo.json").write_text(json.dumps(SCHEMA))
    (folder / "endpoints.toml").write_text(REGISTRY)
    rules = compile_rules(load_registry(folder / "endpoints.toml"))
    sessions = SessionSettings.model_validate(
        {"session_secret": SESSION_SECRET, "app_origins": ORIGIN}
    )
    return Desk(database, store, rules, Sessions(sessions), sessions.app_origins)


@dataclass(frozen=True)
class Caller:
    """Somebody with a credential; `http` sends it along."""

    http: httpx.AsyncClient
    owner: str

    async def post(self, body: Any, key: str | None = "key-1", **headers: str) -> httpx.Response:
        """Hands in a job; `body` may be raw bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        if key is not None:
            sent["Idempotency-Key"] = key
        return await self.http.post("/v1/jobs", content=content, headers=sent)


def http_client(desk: Desk, **headers: str) -> httpx.AsyncClient:
    """A client of a gateway with this desk."""
    transport = httpx.ASGITransport(make_app(desk))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)


async def caller(desk: Desk, owner: str = OWNER, scopes: tuple[str, ...] = tuple(SCOPES)) -> Caller:
    """A caller with a fresh API key."""
    key = await key_created(desk.database, owner, scopes=scopes)
    return Caller(http_client(desk, Authorization=f"Bearer {key.key}"), owner)


async def jobs_in(database: Database) -> int:
    """How many jobs the table holds."""
    async with database.connection() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM jobs"))


def assert_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The answer must be this problem, in the contract's shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["code"] == code
    assert document["status"] == status
    assert document["type"] == f"/problems/{code}"
    assert document["request_id"] == answer.headers["x-request-id"]
    assert isinstance(document["retryable"], bool)
    assert {"title", "detail", "instance"} <= document.keys()
    return document
