"""Turns scripted answers into wire answers, and holds them back for as long as scripted.

Owns: gates (an answer waits until a test opens its gate), delays, JSON and scripted bodies.
Promises: a gate tells how many answers wait at it, so that a test can order two parties
without a sleep.
Never: decides which script applies, and never writes the journal.
"""

import asyncio
import json
from collections import Counter

from pydantic import JsonValue

from tests.fakes.runpod.jobs import replaced
from tests.fakes.runpod.scripts import AnswerPlan, StatusStep
from tests.fakes.runpod.wire import Answer


class Gates:
    """Named gates, shut until opened; opened for good unless shut again."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Event] = {}
        self._waiting: Counter[str] = Counter()

    async def hold(self, plan: AnswerPlan | StatusStep) -> None:
        """Returns once the plan's delay has passed and its gate stands open."""
        if plan.delay_s:
            await asyncio.sleep(plan.delay_s)
        if plan.gate is not None:
            self._waiting[plan.gate] += 1
            try:
                await self._gate(plan.gate).wait()
            finally:
                self._waiting[plan.gate] -= 1

    def open(self, name: str) -> None:
        self._gate(name).set()

    def shut(self, name: str) -> None:
        self._gate(name).clear()

    def listed(self) -> dict[str, JsonValue]:
        """Every gate ever named, whether it is open, how many answers wait at it."""
        return {
            name: {"open": gate.is_set(), "waiting": self._waiting[name]}
            for name, gate in self._open.items()
        }

    def _gate(self, name: str) -> asyncio.Event:
        return self._open.setdefault(name, asyncio.Event())


def json_answer(status: int, value: JsonValue, headers: dict[str, str] | None = None) -> Answer:
    """An ordinary JSON answer."""
    body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return Answer(status, {"Content-Type": "application/json"} | (headers or {}), body)


def empty_answer(status: int) -> Answer:
    """An answer without a body."""
    return Answer(status)


def scripted_answer(
    plan: AnswerPlan | StatusStep, status: int, texts: dict[str, str], ordinary: JsonValue = None
) -> Answer:
    """The plan's body and headers under `status`; `ordinary` where it names no body.

    A body that is a string goes out as it is; anything else as JSON; `texts` are put in.
    A refusal without a body is empty.
    """
    if not plan.has("body"):
        if status < 300:
            return json_answer(status, ordinary, plan.headers)
        return Answer(status, plan.headers)
    body = replaced(plan.body, texts)
    if not isinstance(body, str):
        return json_answer(status, body, plan.headers)
    media_type = "text/html" if body.startswith("<") else "text/plain"
    return Answer(status, {"Content-Type": media_type} | plan.headers, body.encode())
