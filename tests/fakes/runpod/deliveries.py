"""Webhooks: when a job's webhook is sent, with what body, and how often.

Owns: one waiting task per job with a webhook, the retry rule (two more tries, 10 s apart).
Promises: every attempt is in the journal with its answer before the next step is taken; after a
restart the rounds go on where the journal left them.
Never: changes a job, and never logs a body or URL.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

from tests.fakes.runpod.book import JobBook
from tests.fakes.runpod.courier import post_json
from tests.fakes.runpod.jobs import Ending, Job, Record, filled, life_of, record_of
from tests.fakes.runpod.journal import Entry
from tests.fakes.runpod.scripts import WebhookPlan

TRIES: Final = 3
RETRY_SECONDS: Final = 10.0
LONGEST_WAIT_SECONDS: Final = 3600.0

Write = Callable[[Entry], Awaitable[None]]
Complete = Callable[[Job, Record], Awaitable[Record]]


def rounds_done(deliveries: list[int | None]) -> tuple[int, int]:
    """Rounds finished and tries already made in the open one: 200 or three misses end a round."""
    rounds = tries = 0
    for status in deliveries:
        tries += 1
        if status == 200 or tries == TRIES:
            rounds += 1
            tries = 0
    return rounds, tries


class Deliverer:
    """Follows jobs to their end and tells their webhooks."""

    def __init__(
        self, book: JobBook, write: Write, complete: Complete, timeout_seconds: float
    ) -> None:
        self._book = book
        self._write = write
        self._complete = complete
        self._timeout_seconds = timeout_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed: dict[str, asyncio.Event] = {}

    def follow(self, job: Job) -> None:
        """Starts to follow the job, unless it has no webhook or is followed already."""
        if job.webhook is None or job.id in self._tasks:
            return
        if life_of(job, self._book.rules).gone(time.time()):
            return
        self._changed[job.id] = asyncio.Event()
        task = asyncio.create_task(self._deliver(job))
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._forget(job.id))

    def changed(self, job: Job) -> None:
        """The job's end may have moved: look again."""
        if job.id in self._changed:
            self._changed[job.id].set()
        else:
            self.follow(job)

    async def attempt(self, job: Job, plan: WebhookPlan, *, extra: bool = False) -> int | None:
        """Sends the webhook once, now, whatever the job's state; the answer's status or None.

        `extra` attempts do not count towards the job's own rounds.
        """
        target = self._target(job, plan)
        status = None
        if target is not None:
            status = await post_json(target, await self._body(job, plan), self._timeout_seconds)
        await self._write(
            {
                "kind": "webhook-delivery",
                "endpoint": job.endpoint,
                "job_id": job.id,
                "status": status,
                "extra": extra,
            }
        )
        return status

    async def stop(self) -> None:
        """Drops everything that waits."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, job_id: str) -> None:
        self._tasks.pop(job_id, None)
        self._changed.pop(job_id, None)

    async def _deliver(self, job: Job) -> None:
        ending = await self._end_of(job)
        plan = job.script.webhook
        if not plan.send or ending is Ending.ttl_deleted:
            return
        if ending is Ending.cancelled and not plan.on_cancel:
            return
        await asyncio.sleep(plan.delay_s)
        rounds, tries = rounds_done(job.deliveries)
        while rounds < plan.times:
            if tries:
                await asyncio.sleep(RETRY_SECONDS / self._book.rules.time_scale)
            await self.attempt(job, plan)
            rounds, tries = rounds_done(job.deliveries)

    async def _end_of(self, job: Job) -> Ending:
        changed = self._changed[job.id]
        while True:
            changed.clear()
            life = life_of(job, self._book.rules)
            left = life.ends_at - time.time()
            if left <= 0:
                return life.ending
            try:
                async with asyncio.timeout(min(left, LONGEST_WAIT_SECONDS)):
                    await changed.wait()
            except TimeoutError:
                continue

    def _target(self, job: Job, plan: WebhookPlan) -> str | None:
        if plan.as_job is not None:
            other = self._book.jobs.get(plan.as_job)
            return other.webhook if other is not None else None
        return plan.url if plan.url is not None else job.webhook

    async def _body(self, job: Job, plan: WebhookPlan) -> bytes:
        rules = self._book.rules
        if plan.has("body"):
            body = filled({"body": plan.body}, job, rules)["body"]
            return body.encode() if isinstance(body, str) else json.dumps(body).encode()
        # The final record even where retention has passed: a late retry still carries it.
        at = min(time.time(), life_of(job, rules).ends_at)
        record = record_of(job, rules, at) or {"id": job.id}
        record = await self._complete(job, record)
        # The real sender echoes the whole input and the webhook URL itself.
        record |= {"input": job.input, "webhook": job.webhook}
        record |= filled(plan.fields, job, rules)
        for name in plan.drop:
            record.pop(name, None)
        if plan.pad_bytes:
            record["padding"] = "x" * plan.pad_bytes
        return json.dumps(record, separators=(",", ":")).encode()
