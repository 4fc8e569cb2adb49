"""The provider's API: run, status, cancel, health.

Owns: what each call does to the jobs, which script plays, what is written to the journal.
Promises: the journal holds the call, and the job it created, before the first byte of the
answer leaves and before any scripted delay begins.
Never: checks who may see results, and never creates a job on any call but run.
"""

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections import Counter
from dataclasses import replace

from pydantic import JsonValue

from tests.fakes.runpod.answers import Gates, empty_answer, json_answer, scripted_answer
from tests.fakes.runpod.book import JobBook
from tests.fakes.runpod.deliveries import Deliverer
from tests.fakes.runpod.jobs import (
    Job,
    Record,
    Rules,
    life_of,
    record_of,
    replaced,
    result_url,
    token_of,
)
from tests.fakes.runpod.journal import Entry, Journal
from tests.fakes.runpod.requests import BadCreateBody, CreateBody, read_create_body
from tests.fakes.runpod.scripts import ORDINARY, Script, StatusStep
from tests.fakes.runpod.settings import FakeSettings
from tests.fakes.runpod.shelf import CHUNK_BYTES, Shelf
from tests.fakes.runpod.wire import Answer, Call, Cut, CutStyle

BASE64_PLACE = "{result_base64}"


class Provider:
    """Plays the four calls over one book of jobs."""

    def __init__(
        self, settings: FakeSettings, book: JobBook, journal: Journal, shelf: Shelf, gates: Gates
    ) -> None:
        self._settings = settings
        self._book = book
        self._journal = journal
        self._shelf = shelf
        self._gates = gates
        self.deliverer = Deliverer(
            book, self.write, self.complete, settings.webhook_timeout_seconds
        )

    @property
    def rules(self) -> Rules:
        return self._book.rules

    async def write(self, entry: Entry) -> None:
        """Applies the entry and returns once it is durable."""
        durable = self._journal.append(entry)
        self._book.apply(entry)
        await durable

    async def refused(self, kind: str, call: Call, endpoint: str | None) -> Answer | None:
        """The outage that plays for this call, or 401; None lets the call through."""
        outage = self._book.scripts.for_call(kind, endpoint)
        if outage is not None:
            script_id, plan = outage
            status = None if plan.cut else plan.status or 503
            entry = entry_of(kind, call, endpoint, status) | {"script_id": script_id}
            await self.write(entry)
            await self._gates.hold(plan)
            if status is None:
                return cut_answer(plan.how)
            return scripted_answer(plan, status, {})
        if kind == "result" or self._authorized(call):
            return None
        await self.write(entry_of(kind, call, endpoint, 401))
        return empty_answer(401)

    async def run(self, call: Call, endpoint: str) -> Answer:
        """POST /v2/{endpoint}/run."""
        try:
            body = read_create_body(call.body, self._settings.scripts_in_input)
        except BadCreateBody as error:
            await self.write(entry_of("run", call, endpoint, 400))
            return json_answer(400, {"error": str(error)})
        script_id, script = None, body.script
        if script is None:
            found = self._book.scripts.for_create(endpoint, body.input)
            script_id, script = found if found is not None else (None, ORDINARY)
        plan = script.create
        status = plan.status if plan.status is not None else 200
        job_id = f"{uuid.uuid4()}-u1"
        entry = entry_of("run", call, endpoint, None if plan.cut else status)
        entry |= {"webhook_token": token_of(body.webhook)}
        if script_id is not None:
            entry["script_id"] = script_id
        if plan.cut is not None:
            entry["cut"] = plan.cut
        if plan.creates:
            entry |= self._created(job_id, body, script)
        await self.write(entry)
        if plan.creates:
            await self._begin(self._book.jobs[job_id])
        await self._gates.hold(plan)
        if plan.cut in ("before_create", "after_create"):
            return cut_answer(plan.how)
        answer = scripted_answer(
            plan, status, {"{job_id}": job_id}, {"id": job_id, "status": "IN_QUEUE"}
        )
        if plan.cut == "in_answer":
            return replace(answer, cut=Cut(plan.how, len(answer.body) // 2))
        return answer

    async def status(self, call: Call, endpoint: str, job_id: str) -> Answer:
        """GET or POST /v2/{endpoint}/status/{id}."""
        job = self._book.jobs.get(job_id)
        now = time.time()
        record = self._visible(job, endpoint, now)
        entry = entry_of("status", call, endpoint, 404) | {"job_id": job_id}
        if job is None or job.endpoint != endpoint:
            await self.write(entry)
            return empty_answer(404)
        step, index = self._next_step(job, now)
        if index is not None:
            entry["step"] = index
        status = step.http if step.http is not None else (404 if record is None else 200)
        entry["status"] = None if step.cut else status
        entry["state"] = None if record is None else record["status"]
        await self.write(entry)
        await self._gates.hold(step)
        if step.cut:
            return cut_answer(step.how)
        texts = {"{job_id}": job.id, "{result_url}": result_url(job, self.rules)}
        if step.http is not None or step.has("body") or record is None:
            return scripted_answer(step, status, texts, record)
        shown = record | {name: replaced(value, texts) for name, value in step.fields.items()}
        for name in step.drop:
            shown.pop(name, None)
        return json_answer(200, await self.complete(job, shown), step.headers)

    async def cancel(self, call: Call, endpoint: str, job_id: str) -> Answer:
        """POST /v2/{endpoint}/cancel/{id}: says CANCELLED at once, whatever becomes of the job."""
        now = time.time()
        job = self._book.jobs.get(job_id)
        entry = entry_of("cancel", call, endpoint, 404) | {"job_id": job_id}
        if job is None or self._visible(job, endpoint, now) is None:
            await self.write(entry)
            return empty_answer(404)
        plan = job.script.cancel
        status = plan.status if plan.status is not None else 200
        entry["status"] = status
        if status < 300 and not life_of(job, self.rules).ended(now):
            entry["cancelled_at"] = now
        await self.write(entry)
        self.deliverer.changed(job)
        await self._gates.hold(plan)
        return scripted_answer(
            plan, status, {"{job_id}": job_id}, {"id": job_id, "status": "CANCELLED"}
        )

    async def health(self, call: Call, endpoint: str) -> Answer:
        """GET /v2/{endpoint}/health."""
        now = time.time()
        states: Counter[str] = Counter()
        for job in self._book.jobs.values():
            record = self._visible(job, endpoint, now)
            if record is not None:
                states[str(record["status"])] += 1
        await self.write(entry_of("health", call, endpoint, 200))
        running = states["IN_PROGRESS"]
        jobs: Record = {
            "completed": states["COMPLETED"],
            "failed": states["FAILED"],
            "inProgress": running,
            "inQueue": states["IN_QUEUE"],
            "retried": 0,
        }
        workers: Record = dict.fromkeys(("initializing", "throttled", "unhealthy"), 0)
        workers |= {"idle": 1, "ready": 1, "running": running}
        return json_answer(200, {"jobs": jobs, "workers": workers})

    async def complete(self, job: Job, record: Record) -> Record:
        """The record with the result's base64 where its output asks for it."""
        output: JsonValue = record.get("output")
        if BASE64_PLACE not in json.dumps(output):
            return record
        content = await self._shelf.content(job.id, job.script.result.bytes)
        film = b"".join(content.pieces(0, content.size, CHUNK_BYTES))
        text = base64.b64encode(film).decode()
        return record | {"output": replaced(output, {BASE64_PLACE: text})}

    def _authorized(self, call: Call) -> bool:
        # The real API takes the bare key as well.
        shown = call.headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(shown.encode(), self._settings.api_key.encode())

    def _visible(self, job: Job | None, endpoint: str, now: float) -> Record | None:
        if job is None or job.endpoint != endpoint:
            return None
        return record_of(job, self.rules, now)

    def _created(self, job_id: str, body: CreateBody, script: Script) -> Entry:
        price = script.job.price_usd
        return {
            "job_id": job_id,
            "created": True,
            "price_usd": price if price is not None else self._settings.price_usd,
            "record": {
                "created_at": time.time(),
                "input": body.input,
                "webhook": body.webhook,
                "execution_timeout_seconds": body.execution_timeout_seconds,
                "ttl_seconds": body.ttl_seconds,
                "script": script.model_dump(mode="json", exclude_unset=True),
            },
        }

    async def _begin(self, job: Job) -> None:
        plan = job.script.webhook
        if plan.before_answer and plan.send and job.webhook is not None:
            await self.deliverer.attempt(job, plan)
        self.deliverer.follow(job)

    def _next_step(self, job: Job, now: float) -> tuple[StatusStep, int | None]:
        """The scripted step for this status call and its index if it is used up by it."""
        plan = job.script.status
        if plan is None or (plan.when == "ended" and not life_of(job, self.rules).ended(now)):
            return StatusStep(), None
        if job.steps_used < len(plan.sequence):
            return plan.sequence[job.steps_used], job.steps_used
        return (plan.sequence[-1] if plan.repeat_last else StatusStep()), None


def entry_of(kind: str, call: Call, endpoint: str | None, status: int | None) -> Entry:
    """A journal entry for a call, before anything is known but how it will be answered."""
    return {
        "kind": kind,
        "method": call.method,
        "path": call.path,
        "endpoint": endpoint,
        "peer": call.peer,
        "job_id": None,
        "created": False,
        "price_usd": None,
        "request_sha256": hashlib.sha256(call.body).hexdigest(),
        "request_bytes": len(call.body),
        "status": status,
    }


def cut_answer(how: CutStyle) -> Answer:
    """No answer at all: the connection ends."""
    return Answer(0, cut=Cut(how))
