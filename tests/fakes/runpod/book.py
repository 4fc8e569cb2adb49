"""All jobs the fake was ever paid for, rebuilt from the journal and moved on by its entries.

Owns: the one place where an entry changes state, the same for a live call and for a replay.
Promises: a book that has applied the journal's entries equals the one that wrote them.
Never: writes the journal itself, and never forgets a paid job's id or price.
"""

from collections import Counter
from decimal import Decimal

from pydantic import JsonValue

from tests.fakes.runpod.jobs import Job, Record, Rules, life_of, record_of
from tests.fakes.runpod.journal import Entry
from tests.fakes.runpod.scripts import Script, ScriptBook


class JobBook:
    """Jobs by id, scripts in force, and the counts that /control/stats shows."""

    def __init__(self, rules: Rules, scripts: ScriptBook) -> None:
        self.rules = rules
        self.scripts = scripts
        self.jobs: dict[str, Job] = {}
        self.last_script_id = 0
        self._calls: Counter[str] = Counter()
        self._creates_by_token: Counter[str] = Counter()
        self._served_bytes = 0
        self._paid_usd = Decimal(0)

    def apply(self, entry: Entry) -> None:
        """Moves the state on by one entry of the journal, live or replayed."""
        kind = str(entry["kind"])
        self._calls[kind] += 1
        script_id = entry.get("script_id")
        if isinstance(script_id, int):
            self.scripts.used(script_id)
        job = self.jobs.get(str(entry.get("job_id")))
        match kind:
            case "run":
                self._apply_run(entry)
            case "control":
                self._apply_control(entry, job)
            case "cancel" if job is not None and entry.get("cancelled_at") is not None:
                if job.cancelled_at is None:
                    job.cancelled_at = float(str(entry["cancelled_at"]))
            case "status" if job is not None and entry.get("step") is not None:
                job.steps_used += 1
            case "result" if entry.get("bytes") is not None:
                self._served_bytes += int(str(entry["bytes"]))
            case "webhook-delivery" if job is not None and not entry.get("extra"):
                status = entry["status"]
                job.deliveries.append(status if isinstance(status, int) else None)
            case _:
                pass

    def summary(self, job: Job, now: float) -> Record:
        """What /control/jobs shows of a job; no input."""
        life = life_of(job, self.rules)
        record = record_of(job, self.rules, now)
        return {
            "id": job.id,
            "endpoint": job.endpoint,
            "state": None if record is None else record["status"],
            "created_at": job.created_at,
            "ended": life.ended(now),
            "gone": life.gone(now),
            "ending": life.ending.value if life.ended(now) else None,
            "cancelled_at": job.cancelled_at,
            "price_usd": job.price_usd,
            "webhook_token": job.webhook_token,
            "webhook_answers": list(job.deliveries),
            "status_steps_used": job.steps_used,
        }

    def stats(self) -> Record:
        """Counts over the whole journal."""
        tokens = self._creates_by_token
        twice: list[JsonValue] = [*sorted(token for token in tokens if tokens[token] > 1)]
        return {
            "calls": dict(self._calls),
            "creates": self._calls["run"],
            "jobs_created": len(self.jobs),
            "paid_usd": str(self._paid_usd),
            "served_bytes": self._served_bytes,
            "tokens_sent_twice": twice,
        }

    def _apply_run(self, entry: Entry) -> None:
        token = entry.get("webhook_token")
        if isinstance(token, str):
            self._creates_by_token[token] += 1
        record = entry.get("record")
        if not entry["created"] or not isinstance(record, dict):
            return
        webhook = record["webhook"]
        job = Job(
            id=str(entry["job_id"]),
            endpoint=str(entry["endpoint"]),
            created_at=float(str(record["created_at"])),
            input=record["input"],
            webhook=webhook if isinstance(webhook, str) else None,
            execution_timeout_seconds=float(str(record["execution_timeout_seconds"])),
            ttl_seconds=float(str(record["ttl_seconds"])),
            price_usd=str(entry["price_usd"]),
            script=Script.model_validate(record["script"]),
        )
        self.jobs[job.id] = job
        self._paid_usd += Decimal(job.price_usd)

    def _apply_control(self, entry: Entry, job: Job | None) -> None:
        script: JsonValue = entry.get("script")
        match entry["action"]:
            case "script-added":
                self.last_script_id = int(str(entry["added_script_id"]))
                self.scripts.add(self.last_script_id, Script.model_validate(script))
            case "scripts-cleared":
                self.scripts.clear()
            case "job-scripted" if job is not None:
                job.take_script(Script.model_validate(script))
            case "job-ended" if job is not None:
                job.forced_end_at = float(str(entry["ended_at"]))
            case _:
                pass
