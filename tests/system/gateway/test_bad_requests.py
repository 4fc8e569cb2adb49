"""Whatever is sent: a problem document, and no row."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.gateway.app import make_app
from services.gateway.desk import Desk
from shared.store.pool import Database
from tests.system.gateway.bench import BODY, Caller, assert_problem, caller, http_client, jobs_in

HEAD = b'{"endpoint":"demo-video","input":{"prompt":"a","x":'

NOT_USABLE_JSON = {
    "nothing": b"",
    "cut off": b'{"endpoint":',
    "two values": b"{}{}",
    "nan": HEAD + b"NaN}}",
    "infinity": HEAD + b"-Infinity}}",
    "overflowing float": HEAD + b"1e999}}",
    "integer beyond 64 bits": HEAD + b"18446744073709551616}}",
    "integer of 5000 digits": HEAD + b"9" * 5000 + b"}}",
    "member twice": HEAD + b'{"a":1,"a":1}}}',
    "not utf-8": HEAD + b'"\xff"}}',
    "utf-16": json.dumps(BODY).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + json.dumps(BODY).encode(),
    "lone surrogate": HEAD + b'"\\ud800"}}',
    "lone surrogate as a name": HEAD + b'{"\\udc00":1}}}',
    "65 deep": HEAD + b"[" * 63 + b"]" * 63 + b"}}",
    "nesting bomb": HEAD + b"[" * 400_000,
    "nesting bomb of objects": HEAD + b'{"a":' * 400_000,
    "too many values": HEAD + b"[" + b"{}," * 600_000 + b"1]}}",
    "too many numbers": HEAD + b"[" + b"1," * 600_000 + b"1]}}",
    "control character in a text": HEAD + b'"\x01"}}',
}

INVALID_INPUT: dict[str, tuple[Any, set[str]]] = {
    "no object": ([], {"#"}),
    "a text": ("demo-video", {"#"}),
    "nothing given": ({}, {"#/endpoint", "#/input"}),
    "endpoint is a number": ({**BODY, "endpoint": 7}, {"#/endpoint"}),
    "input is a list": ({**BODY, "input": ["a lake"]}, {"#/input"}),
    "input is null": ({**BODY, "input": None}, {"#/input"}),
    "input is empty": ({**BODY, "input": {}}, {"#/input"}),
    "metadata is a list": ({**BODY, "metadata": []}, {"#/metadata"}),
    "metadata too large": ({**BODY, "metadata": {"a": "é" * 40_000}}, {"#/metadata"}),
    "retention unknown": ({**BODY, "retention": ["keep"]}, {"#/retention"}),
    "unknown member": ({**BODY, "webhook": 1, "a/b~é": 1}, {"#/webhook", "#/a~1b~0%C3%A9"}),
    "an upload, which nobody can have made": (
        {**BODY, "input": {"prompt": "a", "frames": [{"$upload": "u"}]}},
        {"#/input/frames/0/$upload"},
    ),
    "schema: required": ({**BODY, "input": {"seed": 1}}, {"#/input/prompt"}),
    "schema: type": ({**BODY, "input": {"prompt": 7}}, {"#/input/prompt"}),
    "schema: length": ({**BODY, "input": {"prompt": "x" * 9000}}, {"#/input/prompt"}),
    "schema: deep": (
        {**BODY, "input": {"prompt": "a", "frames": [{}, 7, {}, "b"]}},
        {"#/input/frames/1", "#/input/frames/3"},
    ),
}

URLS = [
    "https://evil.example.com/a.png",
    "http://images.example.com/a.png",
    "https://images.example.com:8443/a.png",
    "https://user@images.example.com/a.png",
    "https://cdn.example.com/a.png",
    "https://169.254.169.254/latest/meta-data",
    "https://images.example.com\\@evil.example.com/",
]
HIDDEN_URLS = [
    *("ftp://a.example/x", "file:///etc/passwd", "s3://bucket/key", "//evil.example/x"),
    *(" https://evil.example/", "\u00a0https://evil.example/", "\x00http://evil.example/"),
    *(
        "ht\ntps://evil.example/",
        "https:\\\\evil.example",
        "HTTP:evil.example",
        "\x00" * 600 + "//e",
    ),
]


@pytest.fixture(autouse=True)
async def no_row_is_written(database: Database) -> AsyncIterator[None]:
    """Holds for every test here."""
    yield
    assert await jobs_in(database) == 0


# One database serves all cases of a test: what is wrong with a case shows in its name.


async def test_bodies_that_are_no_usable_json(owner: Caller) -> None:
    answers = {name: await owner.post(body) for name, body in NOT_USABLE_JSON.items()}
    codes = {name: answer.json()["code"] for name, answer in answers.items()}
    assert codes == dict.fromkeys(NOT_USABLE_JSON, "invalid_json")
    for answer in answers.values():
        assert_problem(answer, 400, "invalid_json")


async def test_bodies_that_do_not_fit(owner: Caller) -> None:
    found = {}
    for name, (body, _) in INVALID_INPUT.items():
        document = assert_problem(await owner.post(body), 422, "invalid_input")
        assert all(error["detail"] for error in document["errors"])
        found[name] = {error["pointer"] for error in document["errors"]}
    assert found == {name: pointers for name, (_, pointers) in INVALID_INPUT.items()}


async def test_findings_never_echo_and_are_few(owner: Caller) -> None:
    secret = "marzipan" * 2000
    answer = await owner.post(
        {**BODY, "input": {"prompt": "a", "frames": [secret] * 500, secret: 1, "seed": secret}}
    )
    document = assert_problem(answer, 422, "invalid_input")
    assert len(document["errors"]) == 20
    assert "marzipan" not in answer.text
    answer = await owner.post({**BODY, secret: 1})
    assert len(answer.content) < 2000


async def test_an_endpoint_that_does_not_exist(owner: Caller) -> None:
    assert_problem(await owner.post({**BODY, "endpoint": "nope"}), 422, "unknown_endpoint")


async def test_urls_where_the_schema_lets_other_hosts_through(owner: Caller) -> None:
    for url in [*URLS, *HIDDEN_URLS]:
        answer = await owner.post({**BODY, "input": {"prompt": "a", "image": url}})
        document = assert_problem(answer, 422, "input_url_refused")
        assert [error["pointer"] for error in document["errors"]] == ["#/input/image"]
        assert "evil" not in answer.text


async def test_urls_where_the_schema_lets_none_through(owner: Caller) -> None:
    for url in ["https://images.example.com/a.png", *HIDDEN_URLS]:
        body = {**BODY, "input": {"prompt": url, "frames": [{"at": [0, url]}]}}
        document = assert_problem(await owner.post(body), 422, "input_url_refused")
        pointers = {error["pointer"] for error in document["errors"]}
        assert pointers == {"#/input/prompt", "#/input/frames/0/at/1"}


async def test_keys_that_are_missing_or_no_keys(owner: Caller) -> None:
    for key in (None, "", '""', "two words", "a\x7f", "k" * 256, '"open', '"a"b', '"a b"'):
        assert_problem(await owner.post(BODY, key), 400, "idempotency_key_required")
    headers = [
        *(("Content-Type", "application/json"), ("Idempotency-Key", "a")),
        ("Idempotency-Key", "a"),
    ]
    answer = await owner.http.post("/v1/jobs", content=json.dumps(BODY), headers=headers)
    assert_problem(answer, 400, "idempotency_key_required")


async def test_other_types_than_json(owner: Caller) -> None:
    cases: list[dict[str, str]] = [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json; charset=utf-8; version=1"},
        {"Content-Type": "application/problem+json"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": ""},
        {"Content-Encoding": "gzip"},
    ]
    for headers in cases:
        assert_problem(await owner.post(BODY, **headers), 415, "unsupported_media_type")


async def test_a_body_above_the_cap_by_its_declared_length(owner: Caller) -> None:
    for size in (10_000_001, 40_000_000):
        assert_problem(await owner.post(b" " * size), 413, "payload_too_large")


@pytest.mark.parametrize("chunks", [11, 40])
async def test_a_body_above_the_cap_without_a_declared_length(owner: Caller, chunks: int) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(chunks):
            read += 1
            yield b" " * 1_000_000

    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    answer = await owner.http.post("/v1/jobs", content=endless(), headers=headers)
    assert_problem(answer, 413, "payload_too_large")
    assert read == min(chunks, 34)  # read on for a while, so that the answer is not lost


async def test_an_input_above_the_providers_own_limit(owner: Caller) -> None:
    body = {**BODY, "input": {"prompt": "a", "mask": "x" * 9_996_000}}
    answer = await owner.post(body)
    assert len(answer.request.content) <= 10_000_000
    assert_problem(answer, 413, "payload_too_large")


async def test_a_caller_without_a_valid_key(desk: Desk) -> None:
    other = await caller(desk)
    valid = other.http.headers["authorization"]
    for given in ([], ["Bearer nope"], ["Basic YTpi"], ["Bearer"], [valid, valid], [valid + "x"]):
        headers = [("Authorization", value) for value in given]
        headers += [("Content-Type", "application/json"), ("Idempotency-Key", "k")]
        answer = await http_client(desk).post("/v1/jobs", json=BODY, headers=headers)
        assert_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == 'Bearer realm="coatcheck"'


async def test_a_key_without_the_scope(desk: Desk) -> None:
    reader = await caller(desk, scopes=("jobs:read",))
    answer = await reader.post(BODY)
    assert_problem(answer, 403, "insufficient_scope")
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    writer = await caller(desk, scopes=("jobs:write",))
    assert_problem(
        await writer.http.get(f"/v1/jobs/{'0' * 8}-0000-0000-0000-{'0' * 12}"),
        403,
        "insufficient_scope",
    )


async def test_other_methods(owner: Caller) -> None:
    cases = [
        ("PUT", "/v1/jobs", "POST"),
        ("DELETE", "/v1/endpoints", "GET, HEAD"),
        ("GET", "/v1/jobs/x/cancel", "POST"),
        ("POST", "/docs", "GET, HEAD"),
    ]
    for method, path, allow in cases:
        answer = await owner.http.request(method, path)
        assert_problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == allow


async def test_routes_that_do_not_exist(owner: Caller) -> None:
    for path in ("/", "/v1", "/v1/jobs/", "/v2/jobs", "/v1/jobs/a%2Fb", "/%00%ff"):
        assert_problem(await owner.http.get(path), 404, "not_found")


async def half_sent(owner: Caller, desk: Desk, end: dict[str, Any] | None) -> dict[str, Any]:
    """The beginning of the answer to half a body, followed by `end`, or by nothing at all."""
    sent: list[Any] = []
    begun = {"type": "http.request", "body": b'{"endpoint"', "more_body": True}
    messages = iter([begun, end])

    async def receive() -> Any:
        message = next(messages)
        if message is None:
            await asyncio.Event().wait()
        return message

    async def send(message: Any) -> None:
        sent.append(message)

    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    request = owner.http.build_request("POST", "/v1/jobs", headers=headers)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/jobs",
        "query_string": b"",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
    }
    await make_app(desk)(scope, receive, send)
    started: dict[str, Any] = sent[0]
    return started


async def test_a_caller_that_leaves_in_the_middle_of_its_body(owner: Caller, desk: Desk) -> None:
    assert (await half_sent(owner, desk, {"type": "http.disconnect"}))["status"] == 499


async def test_a_caller_that_stalls_in_the_middle_of_its_body(
    owner: Caller, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.bodies.BODY_SECONDS_MAX", 0.0)
    started = await half_sent(owner, desk, None)
    assert started["status"] == 408
    assert (b"connection", b"close") in started["headers"]
