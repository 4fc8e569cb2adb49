"""The control API under /control: scripts, jobs, gates, the journal, counts.

Owns: everything a test or a demo may ask of the fake beside what the real provider offers.
Promises: a change is in the journal before it is answered, so scripts survive a kill as well;
an unknown field of a script is a 422 that names it.
Never: answers a caller that is not on this machine's loopback address.
"""

import asyncio
import ipaddress
import json
import time
from urllib.parse import parse_qs

from pydantic import JsonValue, ValidationError

from tests.fakes.runpod.answers import Gates, json_answer
from tests.fakes.runpod.book import JobBook
from tests.fakes.runpod.jobs import Job
from tests.fakes.runpod.journal import Entry, Journal
from tests.fakes.runpod.provider import Provider, entry_of
from tests.fakes.runpod.results import Results
from tests.fakes.runpod.scripts import Script, WebhookPlan
from tests.fakes.runpod.shelf import Shelf
from tests.fakes.runpod.wire import Answer, Call

NOT_FOUND = json_answer(404, {"error": "no such control call"})
DEFAULT_LIMIT = "10000"


class Control:
    """Answers calls under /control."""

    def __init__(
        self,
        book: JobBook,
        journal: Journal,
        gates: Gates,
        provider: Provider,
        results: Results,
        shelf: Shelf,
    ) -> None:
        self._book = book
        self._journal = journal
        self._gates = gates
        self._provider = provider
        self._results = results
        self._shelf = shelf

    async def answer(self, call: Call, parts: list[str]) -> Answer:
        """`parts` are the path parts behind /control."""
        try:
            if not ipaddress.ip_address(call.peer.rpartition(":")[0]).is_loopback:
                return json_answer(403, {"error": "control is for this machine only"})
            return await self._routed(call, parts)
        except ValidationError as error:
            return json_answer(422, {"error": json.loads(error.json(include_url=False))})
        except ValueError as error:
            return json_answer(400, {"error": str(error)})

    async def _routed(self, call: Call, parts: list[str]) -> Answer:
        match call.method, parts:
            case "GET", ["ready"]:
                return json_answer(200, {"ready": True})
            case "GET", ["stats"]:
                counts = self._book.stats() | {"films_encoded": self._shelf.encoded}
                return json_answer(200, counts)
            case "GET", ["journal"]:
                return await self._journal_page(call)
            case _, ["scripts"]:
                return await self._scripts(call)
            case _, ["jobs", *rest]:
                return await self._jobs(call, rest)
            case "GET", ["gates"]:
                return json_answer(200, self._gates.listed())
            case "POST", ["gates", name, "open"]:
                self._gates.open(name)
                return json_answer(200, self._gates.listed())
            case "POST", ["gates", name, "shut"]:
                self._gates.shut(name)
                return json_answer(200, self._gates.listed())
            case _:
                return NOT_FOUND

    async def _scripts(self, call: Call) -> Answer:
        match call.method:
            case "GET":
                listed: list[JsonValue] = [*self._book.scripts.listed()]
                return json_answer(200, {"scripts": listed})
            case "POST":
                script = Script.model_validate(_body(call))
                script_id = self._book.last_script_id + 1
                await self._changed(call, "script-added", script=script, added_script_id=script_id)
                return json_answer(201, {"id": script_id})
            case "DELETE":
                await self._changed(call, "scripts-cleared")
                return json_answer(200, {"scripts": []})
            case _:
                return NOT_FOUND

    async def _jobs(self, call: Call, rest: list[str]) -> Answer:
        if not rest and call.method == "GET":
            now = time.time()
            jobs: list[JsonValue] = [
                self._book.summary(job, now) for job in self._book.jobs.values()
            ]
            return json_answer(200, {"jobs": jobs})
        job = self._book.jobs.get(rest[0]) if rest else None
        if job is None:
            return json_answer(404, {"error": "no such job"})
        match call.method, rest[1:]:
            case "GET", []:
                return json_answer(200, await self._shown(job))
            case "POST", ["script"]:
                script = Script.model_validate(_body(call))
                await self._changed(call, "job-scripted", job=job, script=script)
            case "POST", ["end"]:
                script = Script.model_validate({"job": _body(call)})
                if script.job.model_fields_set:
                    await self._changed(call, "job-scripted", job=job, script=script)
                await self._changed(call, "job-ended", job=job, ended_at=time.time())
            case "POST", ["webhook"]:
                plan = WebhookPlan.model_validate(_body(call))
                answers: list[JsonValue] = [
                    await self._provider.deliverer.attempt(job, plan, extra=True)
                    for _ in range(plan.times)
                ]
                return json_answer(200, {"answers": answers})
            case _:
                return NOT_FOUND
        self._provider.deliverer.changed(job)
        return json_answer(200, await self._shown(job))

    async def _shown(self, job: Job) -> dict[str, JsonValue]:
        result = await self._results.digest(job)
        return self._book.summary(job, time.time()) | {
            "input": job.input,
            "webhook": job.webhook,
            "script": job.script.model_dump(mode="json", exclude_unset=True),
            "result": None if result is None else {**result},
        }

    async def _changed(
        self,
        call: Call,
        action: str,
        job: Job | None = None,
        script: Script | None = None,
        **more: JsonValue,
    ) -> None:
        entry = entry_of("control", call, None, 200) | {"action": action, **more}
        entry["job_id"] = job.id if job is not None else None
        if script is not None:
            entry["script"] = script.model_dump(mode="json", exclude_unset=True)
        await self._provider.write(entry)

    async def _journal_page(self, call: Call) -> Answer:
        asked = {name: values[-1] for name, values in parse_qs(call.query).items()}
        after, limit = int(asked.get("after", "0")), int(asked.get("limit", DEFAULT_LIMIT))
        full = asked.get("full") == "1"

        def wanted(entry: Entry) -> bool:
            return all(
                name not in asked or entry.get(name) == asked[name]
                for name in ("kind", "job_id", "endpoint", "webhook_token")
            )

        entries = await asyncio.to_thread(self._journal.read, after, limit, wanted)
        shown: list[JsonValue] = [
            entry if full else {name: entry[name] for name in entry if name != "record"}
            for entry in entries
        ]
        return json_answer(200, {"entries": shown, "last_seq": self._journal.last_seq})


def _body(call: Call) -> JsonValue:
    """The JSON body; an empty one counts as {}."""
    value: JsonValue = json.loads(call.body) if call.body.strip() else {}
    return value
