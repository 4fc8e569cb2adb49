"""What a test may ask of the fake: the script language and the book of scripts in force.

Owns: the shape of a script (README.md lists every field), matching, counting down `times`.
Promises: an unknown field is refused, so a misspelt fault never silently plays as none;
the oldest matching script wins, so scripts added one after the other play in that order.
Never: touches a socket or a job.
"""

import random
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tests.fakes.runpod.wire import CutStyle

Seconds = Annotated[float, Field(ge=0)]
Forever = Literal["forever"]
CallKind = Literal["run", "status", "cancel", "health", "result"]


class Plan(BaseModel):
    """Base of every part of a script: immutable, no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def has(self, name: str) -> bool:
        """Whether the script names the field at all; `null` counts as named."""
        return name in self.model_fields_set


class AnswerPlan(Plan):
    """A scripted answer: wait, then answer so, or cut the connection instead."""

    delay_s: Seconds = 0
    gate: str | None = None
    status: int | None = Field(default=None, ge=200, le=999)
    headers: dict[str, str] = {}
    body: JsonValue = None
    how: CutStyle = CutStyle.reset


class CreatePlan(AnswerPlan):
    """How POST /run is answered. `created` defaults to true where no refusal is scripted."""

    cut: Literal["before_create", "after_create", "in_answer"] | None = None
    created: bool | None = None

    @property
    def creates(self) -> bool:
        if self.created is not None:
            return self.created
        if self.cut is not None:
            return self.cut != "before_create"
        return self.status is None or self.status < 300


class JobPlan(Plan):
    """The life and the end of a job; seconds are real, never divided by the time scale."""

    queue_s: Seconds | Forever | None = None
    run_s: Seconds | Forever | None = None
    outcome: str = "COMPLETED"
    output: JsonValue = None
    error: JsonValue = None
    progress: JsonValue = None
    fields: dict[str, JsonValue] = {}
    price_usd: str | None = Field(default=None, pattern=r"^\d+(\.\d+)?$")
    ignore_cancel: bool = False
    queue_expiry: Literal["TIMED_OUT", "deleted"] = "TIMED_OUT"


class StatusStep(Plan):
    """One answer to /status: an HTTP answer of its own, or the true record with fields laid over.

    `drop` takes fields out. An empty step is the true record.
    """

    delay_s: Seconds = 0
    gate: str | None = None
    cut: bool = False
    how: CutStyle = CutStyle.reset
    http: int | None = Field(default=None, ge=200, le=999)
    headers: dict[str, str] = {}
    body: JsonValue = None
    fields: dict[str, JsonValue] = {}
    drop: list[str] = []


class StatusPlan(Plan):
    """The answers to /status in order; afterwards the true record, or the last step for ever."""

    sequence: list[StatusStep] = Field(min_length=1)
    repeat_last: bool = False
    when: Literal["always", "ended"] = "always"


class ResultPlan(AnswerPlan):
    """How the result file is served."""

    content: Literal["video", "empty", "html"] = "video"
    media_type: str | None = None
    bytes: int | None = Field(default=None, ge=0)
    ranges: bool = True
    query: str | None = None
    redirect_to: str | None = None
    drip_bytes_per_s: int | None = Field(default=None, gt=0)
    length_lie: int = 0
    cut_after_bytes: int | None = Field(default=None, ge=0)


class WebhookPlan(Plan):
    """How the job's webhook is sent; `times` counts accepted deliveries, retries come on top."""

    send: bool = True
    before_answer: bool = False
    delay_s: Seconds = 0
    times: int = Field(default=1, ge=1, le=100)
    on_cancel: bool = False
    url: str | None = None
    as_job: str | None = None
    body: JsonValue = None
    fields: dict[str, JsonValue] = {}
    drop: list[str] = []
    pad_bytes: int = Field(default=0, ge=0, le=64 * 1024 * 1024)


class CallsPlan(AnswerPlan):
    """Faults of whole kinds of calls, whatever the job: an outage. Never creates a job."""

    kinds: list[CallKind] = Field(min_length=1)
    cut: bool = False


class Match(Plan):
    """Which creates a script is for; `input` must be contained in the job's input."""

    endpoint: str | None = None
    input: dict[str, JsonValue] | None = None


class Script(Plan):
    """One scripted behaviour; what it does not name stays ordinary."""

    match: Match | None = None
    times: int | None = Field(default=None, ge=1)
    probability: float | None = Field(default=None, ge=0, le=1)
    create: CreatePlan = CreatePlan()
    job: JobPlan = JobPlan()
    status: StatusPlan | None = None
    result: ResultPlan = ResultPlan()
    webhook: WebhookPlan = WebhookPlan()
    cancel: AnswerPlan = AnswerPlan()
    calls: CallsPlan | None = None


ORDINARY = Script()


class ScriptBook:
    """The scripts in force, oldest first."""

    def __init__(self, seed: int | None = None) -> None:
        # Chance here only picks faults; nothing secret hangs on it.
        self._chance = random.Random(seed)
        self._scripts: dict[int, Script] = {}
        self._left: dict[int, int] = {}

    def add(self, script_id: int, script: Script) -> None:
        self._scripts[script_id] = script
        if script.times is not None:
            self._left[script_id] = script.times

    def clear(self) -> None:
        self._scripts.clear()
        self._left.clear()

    def used(self, script_id: int) -> None:
        """Counts one use; a script used up is forgotten, an unknown one ignored."""
        if script_id in self._left:
            self._left[script_id] -= 1
            if self._left[script_id] == 0:
                del self._left[script_id]
                del self._scripts[script_id]

    def for_create(self, endpoint: str, given: JsonValue) -> tuple[int, Script] | None:
        """The script that plays for this create, if any; the caller counts its use."""
        for script_id, script in self._scripts.items():
            if script.calls is None and self._applies(script, endpoint, given):
                return script_id, script
        return None

    def for_call(self, kind: str, endpoint: str | None) -> tuple[int, CallsPlan] | None:
        """The outage that plays for this call, if any; the caller counts its use."""
        for script_id, script in self._scripts.items():
            calls = script.calls
            if calls is None or kind not in calls.kinds:
                continue
            if self._applies(script, endpoint, None):
                return script_id, calls
        return None

    def listed(self) -> list[dict[str, JsonValue]]:
        """Every script in force with its id and the uses left."""
        return [
            {
                "id": script_id,
                "times_left": self._left.get(script_id),
                "script": script.model_dump(mode="json", exclude_unset=True),
            }
            for script_id, script in self._scripts.items()
        ]

    def _applies(self, script: Script, endpoint: str | None, given: JsonValue) -> bool:
        match = script.match
        if match is not None:
            if match.endpoint is not None and match.endpoint != endpoint:
                return False
            if match.input is not None and not contains(given, match.input):
                return False
        return script.probability is None or self._chance.random() < script.probability


def contains(whole: JsonValue, part: JsonValue) -> bool:
    """Whether `part` is found in `whole`: objects by their named keys, all else by equality."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], value) for key, value in part.items()
        )
    return whole == part


PlanT = TypeVar("PlanT", bound=Plan)


def laid_over(below: PlanT, above: PlanT) -> PlanT:
    """`below` with every field that `above` names."""
    return below.model_copy(
        update={name: getattr(above, name) for name in sorted(above.model_fields_set)}
    )
