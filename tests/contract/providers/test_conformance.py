"""What every adapter must hold. The suite finds the adapters itself; none is listed here."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shared.providers
from shared.domain.provider import (
    Accepted,
    Ambiguous,
    Exchange,
    NoJob,
    Phase,
    ProviderState,
)
from shared.providers import ADAPTERS
from tests.contract.providers.openings import JOB_ID, OPENINGS

UNSENT = [phase for phase in Phase if phase.is_provably_unsent]
SENT = [phase for phase in Phase if not phase.is_provably_unsent]
DEEP = b'{"id":"x","status":"COMPLETED","output":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
HOSTILE_BODIES = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b"<html><body>502 Bad Gateway</body></html>",
    b'{"id":',
    b'{"id":null,"status":null}',
    b'{"id":7,"status":8}',
    b'{"id":"","status":""}',
    b'{"id":"../../x","status":"done"}',
    b'{"id":{"id":"x"},"status":["COMPLETED"]}',
    b'{"id":"' + b"a" * 10_000 + b'","status":"' + b"b" * 10_000 + b'"}',
    b'{"status":NaN,"x":-Infinity,"y":1e999,"z":' + b"9" * 10_000 + b"}",
    b'{"status":"A","status":"COMPLETED"}',
    b"\xff\xfe\x00{",
    b'{"error":"\\ud800\\u0000"}',
    DEEP,
    b"[" * 100_000,
    b'{"output":[' + b"1," * 600_000 + b"1]}",
    b'{"output":[' + b"{}," * 600_000 + b"{}]}",
]

adapters = pytest.mark.parametrize("name", sorted(ADAPTERS))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_every_provider_file_is_found() -> None:
    folder = Path(shared.providers.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    exposing = {
        path.parent.name if path.stem == "__init__" else path.stem
        for path, text in texts.items()
        if "\nADAPTER = " in text
    }
    assert exposing == set(ADAPTERS)
    assert set(ADAPTERS) == set(OPENINGS), "each adapter needs an entry in openings.py"


@adapters
def test_the_capabilities_make_sense(name: str) -> None:
    adapter = ADAPTERS[name]
    assert adapter.name == name
    assert adapter.retention_seconds > 0
    assert adapter.max_request_bytes > 0
    assert adapter.max_status_bytes > 0
    assert adapter.webhook_scheme is None or adapter.webhook_scheme


@adapters
@pytest.mark.parametrize("phase", UNSENT)
def test_a_call_of_which_no_byte_left_made_no_job(name: str, phase: Phase) -> None:
    outcome = ADAPTERS[name].classify(Exchange(phase, error="OSError"), frozenset())
    assert isinstance(outcome, NoJob)
    assert not outcome.permanent


@adapters
@pytest.mark.parametrize("phase", SENT)
def test_a_call_without_an_answer_is_ambiguous(name: str, phase: Phase) -> None:
    every = OPENINGS[name].every_refusal
    outcome = ADAPTERS[name].classify(Exchange(phase, error="TotalDeadlinePassed"), every)
    assert isinstance(outcome, Ambiguous)


@adapters
def test_an_accepted_answer_gives_the_id(name: str) -> None:
    exchange = Exchange(Phase.body, 200, {}, OPENINGS[name].accepted, complete=True)
    assert ADAPTERS[name].classify(exchange, frozenset()) == Accepted(JOB_ID)


@adapters
@pytest.mark.parametrize("status", [*range(100, 105), *range(200, 227), *range(300, 600)])
def test_no_answer_without_a_usable_id_is_accepted(name: str, status: int) -> None:
    for body in (b"", b"{}", b"<html></html>", b'{"id":7}', b'{"id":"a b"}'):
        exchange = Exchange(Phase.body, status, {}, body, complete=True)
        outcome = ADAPTERS[name].classify(exchange, frozenset())
        assert not isinstance(outcome, Accepted)


@adapters
@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 520, 522, 524])
def test_a_trouble_in_between_is_ambiguous_whatever_is_switched_on(name: str, status: int) -> None:
    for body in (b"", b"<html></html>", b'{"error":"ENDPOINT_PAUSED"}'):
        exchange = Exchange(Phase.body, status, {}, body, complete=True)
        outcome = ADAPTERS[name].classify(exchange, OPENINGS[name].every_refusal)
        assert isinstance(outcome, Ambiguous)


@adapters
@pytest.mark.parametrize("status", [200, 201, 400, 401, 403, 404, 409, 422, 429, 500, 503])
def test_a_cut_answer_proves_nothing(name: str, status: int) -> None:
    for body in (OPENINGS[name].accepted, b"", b'{"error":"ENDPOINT_PAUSED"}'):
        exchange = Exchange(Phase.body, status, {}, body, complete=False, error="X")
        outcome = ADAPTERS[name].classify(exchange, OPENINGS[name].every_refusal)
        assert isinstance(outcome, Ambiguous)


@adapters
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429])
def test_a_refusal_that_names_the_job_is_ambiguous_and_keeps_the_id(name: str, status: int) -> None:
    body = OPENINGS[name].accepted
    exchange = Exchange(Phase.body, status, {}, body, complete=True)
    outcome = ADAPTERS[name].classify(exchange, OPENINGS[name].every_refusal)
    assert isinstance(outcome, Ambiguous)
    assert outcome.evidence_id == JOB_ID


@adapters
@pytest.mark.parametrize("body", HOSTILE_BODIES, ids=range(len(HOSTILE_BODIES)))
def test_no_hostile_body_raises_or_becomes_a_success(name: str, body: bytes) -> None:
    adapter, every = ADAPTERS[name], OPENINGS[name].every_refusal
    for status in (200, 202, 400, 401, 404, 409, 429, 500):
        for headers in ({}, {"retry-after": "soon"}):
            exchange = Exchange(Phase.body, status, headers, body, complete=True)
            assert not isinstance(adapter.classify(exchange, every), Accepted)
            reading = adapter.read_status(status, headers, body)
            assert reading.state in (
                ProviderState.gone,
                ProviderState.unrecognised,
                ProviderState.retry_later,
            )
    assert adapter.webhook_job_id(body) in (None, "x")


@adapters
@given(body=st.binary(max_size=300) | json_values.map(lambda v: json.dumps(v).encode()))
def test_no_body_at_all_raises(name: str, body: bytes) -> None:
    adapter = ADAPTERS[name]
    for status in (200, 404, 429, 503):
        adapter.classify(Exchange(Phase.body, status, {}, body, complete=True), frozenset())
        adapter.read_status(status, {}, body)
    adapter.webhook_job_id(body)


@adapters
@given(output=json_values, error=json_values)
def test_no_output_at_all_raises(name: str, output: Any, error: Any) -> None:
    adapter = ADAPTERS[name]
    record = json.loads(OPENINGS[name].record(OPENINGS[name].running_word, JOB_ID))
    for state in ("COMPLETED", "FAILED", "IN_PROGRESS", "completed", "failed"):
        body = json.dumps({**record, "status": state, "output": output, "error": error})
        reading = adapter.read_status(200, {}, body.encode())
        adapter.find_artifacts(reading.output)
        if reading.state is not ProviderState.completed:
            assert reading.output is None


@adapters
@given(word=st.text())
def test_an_unknown_word_never_becomes_an_end(name: str, word: str) -> None:
    reading = ADAPTERS[name].read_status(200, {}, OPENINGS[name].record(f"?{word}", JOB_ID))
    assert reading.state is ProviderState.unrecognised


@adapters
@pytest.mark.parametrize("status", [301, 400, 401, 403, 408, 429, 500, 502, 503, 504, 524])
def test_an_answer_that_is_no_status_says_nothing_of_the_job(name: str, status: int) -> None:
    adapter = ADAPTERS[name]
    for body in (b"", b"<html></html>", b'{"message":"try later"}'):
        reading = adapter.read_status(status, {"retry-after": "7"}, body)
        assert reading.state is ProviderState.retry_later
        assert reading.retry_after_seconds == 7


@adapters
def test_a_job_that_is_not_known_is_gone_and_not_failed(name: str) -> None:
    reading = ADAPTERS[name].read_status(404, {}, b"")
    assert reading.state is ProviderState.gone
    assert reading.failure_class is None
