"""One job of the fake and what can be said about it at any moment.

Owns: the job's life as a pure function of time, and the status record made from it.
Promises: nothing has to happen for a job to move on; asked again after a restart, it is where
its times say. All times are seconds of the wall clock, floats.
Never: waits, writes, or knows who asks.
"""

import hashlib
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pydantic import JsonValue

from tests.fakes.runpod.scripts import ORDINARY, Forever, JobPlan, Script, laid_over

RETENTION_SECONDS: Final = 1800.0
DEFAULT_EXECUTION_TIMEOUT_SECONDS: Final = 600.0
DEFAULT_TTL_SECONDS: Final = 86400.0
EMPTY_INPUT_SECONDS: Final = 40.0
EMPTY_INPUT_ERROR: Final = "job timed out after 1 retries"
EXECUTION_TIMEOUT_ERROR: Final = "executionTimeout exceeded"
NO_OUTPUT: Final = "none"

Record = dict[str, JsonValue]


@dataclass(frozen=True)
class Rules:
    """What holds for every job: ordinary times, and the scale of the provider's own waits."""

    queue_seconds: float
    run_seconds: float
    time_scale: float
    public_url: str

    @property
    def retention_seconds(self) -> float:
        return RETENTION_SECONDS / self.time_scale


@dataclass
class Job:
    """A paid job: what was asked, and what has happened to it since."""

    id: str
    endpoint: str
    created_at: float
    input: JsonValue
    webhook: str | None
    execution_timeout_seconds: float
    ttl_seconds: float
    price_usd: str
    script: Script = ORDINARY
    cancelled_at: float | None = None
    forced_end_at: float | None = None
    steps_used: int = 0
    deliveries: list[int | None] = field(default_factory=list)

    @property
    def webhook_token(self) -> str | None:
        return token_of(self.webhook)

    def take_script(self, script: Script) -> None:
        """Lays `script` over the one the job was created with; steps start anew where given."""
        if script.has("status"):
            self.steps_used = 0
        self.script = laid_over(self.script, script)


class Ending(StrEnum):
    """Why a job stops."""

    planned = "planned"
    empty_input = "empty_input"
    execution_timeout = "execution_timeout"
    ttl_in_queue = "ttl_in_queue"
    ttl_deleted = "ttl_deleted"
    cancelled = "cancelled"


@dataclass(frozen=True)
class Life:
    """The moments of a job as known now; infinity where nothing ends it."""

    started_at: float
    ends_at: float
    ending: Ending
    gone_at: float

    def ended(self, now: float) -> bool:
        return now >= self.ends_at

    def gone(self, now: float) -> bool:
        return now >= self.gone_at


def token_of(webhook: str | None) -> str | None:
    """The last path part of a webhook URL, without query."""
    return webhook.partition("?")[0].rsplit("/", 1)[-1] if webhook else None


def life_of(job: Job, rules: Rules) -> Life:
    """When the job starts, ends and is forgotten, by its plan, limits and cancellation."""
    plan = job.script.job
    started_at = job.created_at + _seconds(plan.queue_s, rules.queue_seconds)
    empty = not job.input and not plan.has("outcome")
    run_seconds = _seconds(plan.run_s, rules.run_seconds)
    planned_at = started_at + run_seconds
    if empty:
        planned_at = started_at + EMPTY_INPUT_SECONDS / rules.time_scale
    if job.forced_end_at is not None:
        planned_at = job.forced_end_at
        started_at = min(started_at, planned_at)
    ttl_at = job.created_at + job.ttl_seconds
    ttl_ending = Ending.ttl_deleted
    if ttl_at <= started_at and plan.queue_expiry == "TIMED_OUT":
        ttl_ending = Ending.ttl_in_queue
    ends = [
        (planned_at, Ending.empty_input if empty else Ending.planned),
        (started_at + job.execution_timeout_seconds, Ending.execution_timeout),
        (ttl_at, ttl_ending),
    ]
    if job.cancelled_at is not None and not plan.ignore_cancel:
        ends.append((job.cancelled_at, Ending.cancelled))
    ends_at, ending = min(ends, key=lambda end: end[0])
    kept = 0.0 if ending is Ending.ttl_deleted else rules.retention_seconds
    return Life(started_at, ends_at, ending, ends_at + kept)


def result_url(job: Job, rules: Rules) -> str:
    """Where the job's result is served."""
    query = job.script.result.query
    return f"{rules.public_url}/results/{job.id}.mp4" + (f"?{query}" if query else "")


def record_of(job: Job, rules: Rules, now: float) -> Record | None:
    """The status record as the provider would show it; None once it is gone."""
    life = life_of(job, rules)
    if life.gone(now):
        return None
    plan = job.script.job
    record: Record
    if life.ended(now):
        record = _ended_record(job, life, rules)
    elif now >= life.started_at:
        record = _timed(job, life, now) | {"status": "IN_PROGRESS"}
        progress = plan.progress if plan.has("progress") else _progress(life, now)
        if progress is not None:
            record["output"] = progress
    else:
        record = {"id": job.id, "status": "IN_QUEUE"}
    return record | filled(plan.fields, job, rules)


def filled(fields: Record, job: Job, rules: Rules) -> Record:
    """The fields with {job_id} and {result_url} put in wherever a string names them."""
    texts = {"{job_id}": job.id, "{result_url}": result_url(job, rules)}
    return {name: replaced(value, texts) for name, value in fields.items()}


def replaced(value: JsonValue, texts: dict[str, str]) -> JsonValue:
    """`value` with every key of `texts` replaced in every string."""
    if isinstance(value, str):
        for name, text in texts.items():
            value = value.replace(name, text)
        return value
    if isinstance(value, list):
        return [replaced(item, texts) for item in value]
    if isinstance(value, dict):
        return {name: replaced(item, texts) for name, item in value.items()}
    return value


def _seconds(planned: float | Forever | None, ordinary: float) -> float:
    if planned == "forever":
        return math.inf
    return ordinary if planned is None else float(planned)


def _progress(life: Life, now: float) -> JsonValue:
    whole = life.ends_at - life.started_at
    return {"progress": min(95, int(100 * (now - life.started_at) / whole))}


def _timed(job: Job, life: Life, now: float) -> Record:
    started_at = min(life.started_at, now)
    return {
        "delayTime": int((started_at - job.created_at) * 1000),
        "executionTime": int((now - started_at) * 1000),
        "id": job.id,
        "workerId": hashlib.sha256(job.id.encode()).hexdigest()[:14],
    }


def _ended_record(job: Job, life: Life, rules: Rules) -> Record:
    record = _timed(job, life, life.ends_at)
    match life.ending:
        case Ending.planned:
            return record | _planned(job.script.job, job, rules)
        case Ending.empty_input:
            return record | {"status": "FAILED", "error": EMPTY_INPUT_ERROR, "retries": 1}
        case Ending.execution_timeout:
            return record | {"status": "FAILED", "error": EXECUTION_TIMEOUT_ERROR}
        case Ending.cancelled:
            return {"id": job.id, "status": "CANCELLED"}
        case Ending.ttl_in_queue | Ending.ttl_deleted:
            return {"id": job.id, "status": "TIMED_OUT"}


def _planned(plan: JobPlan, job: Job, rules: Rules) -> Record:
    shown: Record = {"status": plan.outcome}
    if plan.has("output"):
        if plan.output != NO_OUTPUT:
            shown["output"] = plan.output
    elif plan.outcome == "COMPLETED":
        shown["output"] = {"video_url": "{result_url}", "cost": float(job.price_usd)}
    if plan.has("error"):
        shown["error"] = plan.error
    elif plan.outcome == "FAILED":
        shown["error"] = "the job failed"
    return filled(shown, job, rules)
