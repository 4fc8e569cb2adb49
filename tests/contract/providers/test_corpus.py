"""Every recorded exchange leads where its label says."""

from dataclasses import replace

import pytest

from shared.domain.provider import (
    Accepted,
    Ambiguous,
    CreateOutcome,
    Exchange,
    NoJob,
    Phase,
    ProviderState,
    StatusReading,
)
from shared.providers import ADAPTERS
from tests.contract.providers.openings import OPENINGS
from tests.contract.providers.recorded import Recorded, recorded

RUNS = list(recorded(set(ADAPTERS), "run"))
STATUSES = list(recorded(set(ADAPTERS), "status"))
WEBHOOKS = list(recorded(set(ADAPTERS), "webhook"))

# What a state may come to when every re-check brings the same answer again.
_JOB_OUTCOMES = {
    ProviderState.queued: ("continue",),
    ProviderState.running: ("continue",),
    ProviderState.retry_later: ("continue",),
    ProviderState.completed: ("capture", "failed:result_missing"),
    ProviderState.failed: ("failed:provider_failed", "failed:provider_timed_out"),
    ProviderState.timed_out: ("failed:provider_timed_out", "failed:provider_expired"),
    ProviderState.cancelled: ("cancelled",),
    ProviderState.gone: ("review",),
    ProviderState.unrecognised: ("review",),
}


def _name(line: Recorded) -> str:
    return line.id


def _classified(line: Recorded, switched_on: frozenset[str]) -> CreateOutcome:
    exchange = Exchange(Phase.body, line.http_status, {}, line.body, complete=True)
    return ADAPTERS[line.provider].classify(exchange, switched_on)


def _word(outcome: CreateOutcome) -> str:
    return {Accepted: "accepted", NoJob: "no_job", Ambiguous: "ambiguous"}[type(outcome)]


def _reading(line: Recorded) -> StatusReading:
    assert line.http_status is not None
    return ADAPTERS[line.provider].read_status(line.http_status, {}, line.body)


def test_the_corpus_was_found() -> None:
    assert len(RUNS) >= 6
    assert len(STATUSES) >= 40
    assert WEBHOOKS


@pytest.mark.parametrize("line", RUNS, ids=_name)
def test_a_create_answer(line: Recorded) -> None:
    outcome = _classified(line, frozenset())
    assert _word(outcome) == line.expect["outcome"]
    handle_id = outcome.provider_job_id if isinstance(outcome, Accepted) else None
    assert handle_id == line.expect["handle_id"]
    if "evidence_id" in line.expect:
        assert isinstance(outcome, Ambiguous)
        assert outcome.evidence_id == line.expect["evidence_id"]
    if "permanent" in line.expect:
        assert isinstance(outcome, NoJob)
        assert outcome.permanent == line.expect["permanent"]


@pytest.mark.parametrize(
    "line", [line for line in RUNS if "with_setting" in line.expect], ids=_name
)
def test_a_create_answer_that_the_operator_switched_on(line: Recorded) -> None:
    outcome = _classified(line, OPENINGS[line.provider].every_refusal)
    assert _word(outcome) == line.expect["with_setting"]


@pytest.mark.parametrize("line", STATUSES, ids=_name)
def test_a_status_answer(line: Recorded) -> None:
    reading = _reading(line)
    assert reading.state in line.allowed("state")
    assert reading.failure_class in line.allowed("failure_class")
    assert reading.progress in (None, line.expect.get("progress"))
    outcomes = line.expect.get("job_outcome_any", [line.expect.get("job_outcome")])
    assert set(outcomes) & set(_JOB_OUTCOMES[reading.state])


@pytest.mark.parametrize(
    "line", [line for line in STATUSES if "artifacts" in line.expect], ids=_name
)
def test_the_artifacts_of_a_finished_job(line: Recorded) -> None:
    reading = _reading(line)
    found = ADAPTERS[line.provider].find_artifacts(reading.output)
    expected = [
        (artifact["kind"], artifact["where"])
        for artifact in line.expect["artifacts"]
        if not artifact.get("declared_only")
    ]
    assert [(artifact.kind, artifact.where) for artifact in found] == expected
    if line.expect["artifacts"]:
        assert reading.has_output
    if line.expect.get("job_outcome") == "failed:result_missing":
        assert found == ()


@pytest.mark.parametrize("line", STATUSES, ids=_name)
def test_no_text_of_the_provider_leaves_in_a_reading(line: Recorded) -> None:
    shown = repr(replace(_reading(line), output=None))
    for text in line.expect.get("safe_message_must_not_contain", []):
        assert text not in shown


@pytest.mark.parametrize("line", WEBHOOKS, ids=_name)
def test_the_id_that_a_callback_names(line: Recorded) -> None:
    assert ADAPTERS[line.provider].webhook_job_id(line.body) == line.expect["evidence_id"]
