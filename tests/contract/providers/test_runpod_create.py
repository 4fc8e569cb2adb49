"""Runpod's create answers, and the body that a create sends."""

import json
from dataclasses import replace
from typing import Any

import pytest

from shared.domain.provider import Accepted, Ambiguous, CreateOutcome, Exchange, NoJob, Phase
from shared.kit.http import HttpTransport, SendDeadline
from shared.providers import ADAPTERS
from shared.providers.runpod.client import MAX_REQUEST_BYTES, encode_create
from shared.providers.runpod.create_answers import REFUSALS, RequestTooLarge, classify
from tests.contract.providers.openings import OPENINGS, create_request

PAUSED = b'{"code":"ENDPOINT_PAUSED","title":"Conflict"}'
REQUEST = create_request("https://api.example.net/v2")


def _classify(
    status: int, body: bytes, switched_on: frozenset[str] = REFUSALS, **headers: str
) -> CreateOutcome:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify(Exchange(Phase.body, status, named, body, complete=True), switched_on)


@pytest.mark.parametrize("status", [401, 403, 404, 429])
@pytest.mark.parametrize(
    "body", [b"", b"{}", b"<html>denied</html>", b'{"message":"Not Found"}', b'{"id":null}']
)
def test_a_switched_on_refusal_made_no_job(status: int, body: bytes) -> None:
    outcome = _classify(status, body)
    assert outcome == NoJob(f"http_{status}")
    assert _classify(status, body, frozenset()) == Ambiguous(f"http_{status}")
    others = REFUSALS - {str(status)}
    assert _classify(status, body, others) == Ambiguous(f"http_{status}")


@pytest.mark.parametrize("status", [400, 402, 408, 413, 422, 500, 502, 503])
def test_no_other_refusal_can_be_switched_on(status: int) -> None:
    outcome = _classify(status, b"{}", frozenset((str(status), *REFUSALS)))
    assert outcome == Ambiguous(f"http_{status}")


@pytest.mark.parametrize(
    "body",
    [
        PAUSED,
        b'{"error":"ENDPOINT_PAUSED"}',
        b'{"error":{"code":"ENDPOINT_PAUSED"}}',
        b'{"message":"refused: ENDPOINT_PAUSED."}',
    ],
)
def test_a_conflict_is_a_refusal_only_when_it_says_paused(body: bytes) -> None:
    assert _classify(409, body) == NoJob("http_409")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"ENDPOINT_PAUSED",
        b'{"error":"conflict"}',
        b'{"code":"ENDPOINT_PAUSED_NOT"}',
        b'{"input":"ENDPOINT_PAUSED"}',
        b'["ENDPOINT_PAUSED"]',
    ],
)
def test_any_other_conflict_is_ambiguous(body: bytes) -> None:
    assert isinstance(_classify(409, body), Ambiguous)


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":"job-1","code":"ENDPOINT_PAUSED"}',
        b'{"id":7,"code":"ENDPOINT_PAUSED"}',
        b'{"code":"ENDPOINT_PAUSED","job":{"id":"job-1"}}',
        b'{"code":"ENDPOINT_PAUSED","jobs":[{"jobId":"job-1"}]}',
        b'{"code":"ENDPOINT_PAUSED","id":"job-1","id":"job-2"}',
        b'{"code":"ENDPOINT_PAUSED","id":"job-1","id":null}',
        b'{"code":"ENDPOINT_PAUSED","x":[' + b"[]," * 2_000 + b"[]]}",
        b'{"code":"ENDPOINT_PAUSED","x":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    ],
)
def test_a_refusal_that_may_name_a_job_is_ambiguous(body: bytes) -> None:
    for status in (401, 403, 404, 409, 429):
        assert isinstance(_classify(status, body), Ambiguous)


def test_a_refusal_that_is_no_json_but_names_a_job_is_ambiguous() -> None:
    assert isinstance(_classify(404, b'not found: {"id": "job-1"} <br>'), Ambiguous)
    assert isinstance(_classify(404, b'not found: {"job_id": 17} <br>'), Ambiguous)
    assert isinstance(_classify(404, b'not found: {"id": null} <br>'), NoJob)


def test_a_whole_job_record_under_400_keeps_its_id() -> None:
    body = b'{"id":"sync-1-u1","status":"FAILED","error":"Invalid duration"}'
    assert _classify(400, body) == Ambiguous("http_400", "sync-1-u1")


@pytest.mark.parametrize("status", [201, 202, 203])
def test_only_200_accepts(status: int) -> None:
    assert _classify(status, b'{"id":"job-1"}') == Ambiguous(f"http_{status}", "job-1")


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (b'{"id":"a","status":"IN_QUEUE"}', Accepted("a")),
        (b'\xef\xbb\xbf{"id":"a"}', Accepted("a")),
        (b'{"id":"a","id":"a"}', Accepted("a")),
        (b'{"id":"a","note":"\xff"}', Accepted("a")),
        (b'{"id":"a","id":"b"}', Ambiguous("no_usable_id")),
        (b'{"id":"a/b"}', Ambiguous("no_usable_id")),
        (b'{"id":"."}', Ambiguous("no_usable_id")),
        (b'{"id":"a\\n"}', Ambiguous("no_usable_id")),
        (b'{"data":{"id":"a"}}', Ambiguous("no_usable_id")),
        (b'[{"id":"a"}]', Ambiguous("no_usable_id")),
        (b'{"id":"a","x":' + b"[" * 5_000, Ambiguous("no_usable_id", "a")),
        (b'{"id":"a","status"', Ambiguous("no_usable_id", "a")),
    ],
)
def test_what_a_200_proves(body: bytes, outcome: CreateOutcome) -> None:
    assert _classify(200, body) == outcome


def test_a_refusal_carries_the_wish_to_be_left_alone() -> None:
    outcome = _classify(429, b"", retry_after="30")
    assert outcome == NoJob("http_429", retry_after_seconds=30)


def test_the_body_of_a_create() -> None:
    body = json.loads(encode_create(REQUEST))
    assert body == {
        "input": {"prompt": "a cat"},
        "webhook": "https://gw.example.net/webhooks/x/token",
        "policy": {"executionTimeout": 600_000, "ttl": 3_600_000},
    }
    without = json.loads(encode_create(replace(REQUEST, webhook_url=None)))
    assert "webhook" not in without


def test_text_is_sent_as_it_is_and_not_blown_up() -> None:
    body = encode_create(replace(REQUEST, input={"prompt": "비디오"}))
    assert "비디오".encode() in body


def test_a_request_of_exactly_the_limit_is_sent_and_one_byte_more_is_not() -> None:
    empty = len(encode_create(replace(REQUEST, input={"p": ""})))
    fits = replace(REQUEST, input={"p": "a" * (MAX_REQUEST_BYTES - empty)})
    assert len(encode_create(fits)) == MAX_REQUEST_BYTES
    over = replace(REQUEST, input={"p": "a" * (MAX_REQUEST_BYTES - empty + 1)})
    with pytest.raises(RequestTooLarge):
        encode_create(over)


def _deep() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return {"x": value}


@pytest.mark.parametrize(
    ("unsendable", "error"),
    [
        ({}, "InputUnusable"),
        ([], "InputUnusable"),
        (None, "InputUnusable"),
        ("text", "InputUnusable"),
        ({"x": float("nan")}, "InputUnusable"),
        ({"x": "\ud800"}, "InputUnusable"),
        ({"x": object()}, "InputUnusable"),
        (_deep(), "InputUnusable"),
        ({"x": "a" * MAX_REQUEST_BYTES}, "RequestTooLarge"),
    ],
    ids=range(9),
)
async def test_what_can_never_be_sent_is_refused_for_good_without_a_byte(
    unsendable: Any, error: str
) -> None:
    adapter = ADAPTERS["runpod"]
    client = adapter.open(OPENINGS["runpod"].settings("http://127.0.0.1:1/v2"), HttpTransport())
    exchange = await client.create(replace(REQUEST, input=unsendable), SendDeadline(0.0))
    assert (exchange.phase, exchange.error) == (Phase.dns, error)
    outcome = adapter.classify(exchange, client.switched_on)
    assert outcome == NoJob("unsent_dns", permanent=True)
