"""Every public Runpod status answer, asked again and again, comes to what its label says.

The row between two looks is moved as the store's statement does it; the clock jumps from one
look to the next. The expectations are the corpus's own.
"""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.reconciler.mapping import (
    Cancelled,
    Capture,
    Decision,
    Failed,
    Judge,
    Look,
    LookAgain,
    OpenReview,
    TimedOut,
)
from services.reconciler.pacing import Pacing
from services.reconciler.survey import NOTHING, survey
from shared.domain.durations import TimeScale
from shared.domain.job import Job
from shared.domain.provider import ProviderState
from shared.domain.registry import PinnedEndpoint
from shared.providers import ADAPTERS
from tests.unit.some_rows import START, a_job, a_pinned

CORPUS = Path(__file__).parents[2] / "corpora" / "provider-bodies.jsonl"
LOOKS = 6


def _lines() -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    return [
        line
        for line in lines
        if line["call"] == "status" and line["provider"] in ADAPTERS and _wanted(line)
    ]


def _wanted(line: dict[str, Any]) -> set[str]:
    expect = line["expect"]
    found = {*expect.get("job_outcome_any", ())}
    if "job_outcome" in expect:
        found.add(expect["job_outcome"])
    return found


def _terms(line: dict[str, Any]) -> PinnedEndpoint:
    """An endpoint that declares what the line lists; without a list it wants some media."""
    declared = [
        {
            "name": f"artifact-{number}",
            "path": item["where"],
            "required": True,
            "kind": "json" if item["kind"] == "json" else "auto",
        }
        for number, item in enumerate(line["expect"].get("artifacts") or ())
    ]
    return a_pinned(artifacts=declared)


def _moved(job: Job, decision: LookAgain, at: Any) -> Job:
    """The row as the reschedule leaves it, as far as a decision looks at it."""
    kind = None if decision.odd_state is None else decision.odd_state.value
    if kind is None:
        if decision.state is None:
            return job
        return replace(job, odd_answers=0, odd_since=None, odd_state=None)
    if job.odd_state == kind:
        return replace(job, odd_answers=job.odd_answers + 1)
    return replace(job, odd_answers=1, odd_since=at, odd_state=kind)


def _outcome(decision: Decision) -> str:
    match decision:
        case LookAgain():
            return "continue"
        case Capture():
            return "capture"
        case Failed() | TimedOut():
            return f"failed:{decision.code.value}"
        case Cancelled():
            return "cancelled"
        case OpenReview():
            return "review"


@pytest.mark.parametrize("line", _lines(), ids=lambda line: str(line["id"]))
def test_every_answer_comes_to_its_label(line: dict[str, Any]) -> None:
    adapter, pinned = ADAPTERS[line["provider"]], _terms(line)
    raw = line["body"] if isinstance(line["body"], str) else json.dumps(line["body"])
    reading = adapter.read_status(line["http_status"], {}, raw.encode())
    held = NOTHING
    if reading.state is ProviderState.completed:
        held = survey(reading, pinned, adapter, frozenset())
    judge = Judge(TimeScale(), Pacing(TimeScale(), lambda: 0.0))
    job, at = a_job(), START
    decision: Decision = LookAgain(timedelta(0))
    for _ in range(LOOKS):
        decision = judge.decide(Look(job, at, pinned, reading, held))
        if not isinstance(decision, LookAgain):
            break
        assert decision.delay is not None
        job, at = _moved(job, decision, at), at + decision.delay
    assert _outcome(decision) in _wanted(line)


def test_the_corpus_is_there() -> None:
    assert len(_lines()) > 30
