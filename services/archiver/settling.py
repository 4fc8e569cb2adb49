"""Writes what an attempt came to: the publish, or what follows from its problem.

Owns the last write of a lease and everything it tells: counters, slack, alarms. Promises that
`result_lost` is written only after a last look into the bucket showed nothing, and that whatever
waits for a person is one error line. Must never decide what a problem means.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never
from uuid import UUID

from services.archiver.attempt import Attempt
from services.archiver.costs import settled_cost_usd
from services.archiver.held import holds_nothing_else
from services.archiver.leases import Lease, LeaseLost
from services.archiver.problems import (
    Again,
    Barred,
    Decision,
    GiveToPerson,
    Judge,
    Problem,
    Refuse,
    Trouble,
)
from services.archiver.publishing import Publication, publish, write_manifest
from services.archiver.settings import ArchiverSettings
from shared.domain.job import Job
from shared.domain.registry import PinnedEndpoint, Registry
from shared.domain.stages import ErrorCode
from shared.kit import telemetry
from shared.kit.logs import get_logger
from shared.media.objects import ObjectStore
from shared.store.pool import Database
from shared.store.transitions.capture import capture_rescheduled, result_refused
from shared.store.transitions.checks import review_opened
from shared.store.transitions.record import FenceLost, Landing

MOST_REMEMBERED = 10_000

_log = get_logger()


@dataclass(frozen=True)
class Leased:
    """A capture under way: the row as leased, its terms, the lease, when it was taken."""

    job: Job
    pinned: PinnedEndpoint
    lease: Lease
    leased_at: datetime

    def now(self) -> datetime:
        """The database's time, as far as this process can tell without asking."""
        return self.leased_at + timedelta(seconds=self.lease.age_seconds)

    def slack_seconds(self) -> float:
        """How much time is left until the provider may forget the result."""
        if self.job.capture_deadline is None:
            raise ValueError("a capturing row has a deadline")
        return (self.job.capture_deadline - self.now()).total_seconds()


class Settler:
    """Ends leases."""

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        registry: Registry,
        settings: ArchiverSettings,
        judge: Judge,
    ) -> None:
        self._database = database
        self._store = store
        self._registry = registry
        self._settings = settings
        self._judge = judge
        self._late: set[UUID] = set()

    async def settle(self, leased: Leased, attempt: Attempt) -> None:
        """Ends the lease with the write that the attempt calls for. Raises Unavailable."""
        if attempt.problem is None:
            await self._publish(leased, attempt)
            return
        decision = await self._decided(leased, attempt, attempt.problem)
        if not isinstance(decision, Again) and attempt.has_required:
            # Only what nobody requires is out of reach, and it will stay so.
            await self._publish(leased, attempt)
            return
        await self._write(leased, attempt.problem, decision)

    async def give_up_for_now(self, leased: Leased, problem: Trouble) -> None:
        """Ends the lease where a part of ours was away; the count of odd answers stays."""
        again = self._judge.after_trouble(leased.job, leased.pinned, problem)
        await self._write(leased, problem, again)

    def watch_deadline(self, leased: Leased) -> None:
        """Tells once of a capture that is past its deadline; it goes on all the same."""
        job_id = leased.job.id
        if leased.slack_seconds() >= 0 or job_id in self._late:
            return
        if len(self._late) >= MOST_REMEMBERED:
            self._late.clear()
        self._late.add(job_id)
        telemetry.capture_deadline_missed.inc()
        _log.error("capture_deadline_missed", job_id=job_id, endpoint=leased.job.endpoint)

    async def _publish(self, leased: Leased, attempt: Attempt) -> None:
        job = leased.job
        publication = Publication(
            job,
            attempt.artifacts,
            attempt.reading,
            settled_cost_usd(leased.pinned, attempt.reading),
            self._settings.lifetime(job.retention, self._settings.scale),
        )
        await write_manifest(self._database, self._store, publication)
        leased.lease.end()
        self._ended(leased, await publish(self._database, publication))

    async def _decided(self, leased: Leased, attempt: Attempt, problem: Problem) -> Decision:
        decision = self._judge.decide(leased.job, leased.pinned, problem, leased.leased_at)
        if decision != Refuse(ErrorCode.result_lost):
            return decision
        if await holds_nothing_else(self._store, leased.job, attempt.held):
            return decision
        _log.error("refused_but_something_is_held", job_id=leased.job.id)
        return self._judge.after_trouble(leased.job, leased.pinned, Trouble("held"))

    async def _write(self, leased: Leased, problem: Problem, decision: Decision) -> None:
        job = leased.job
        leased.lease.end()
        match decision:
            case Again():
                if isinstance(problem, Barred):
                    _log.error("result_refused_by_config", job_id=job.id, reason=problem.reason)
                landing = await capture_rescheduled(
                    self._database,
                    job,
                    delay=decision.delay,
                    odd_state=decision.odd_state,
                    was_silent=decision.was_silent,
                )
                _count(landing, "refused" if isinstance(problem, Barred) else "retried")
            case GiveToPerson():
                spec = self._registry.find(job.endpoint)
                landing = await review_opened(
                    self._database,
                    job,
                    reason=decision.reason,
                    delay=decision.delay,
                    rules=None if spec is None else spec.capture_rules,
                )
                _count(landing, "refused")
                _log.error("job_needs_attention", job_id=job.id, reason=decision.reason.value)
            case Refuse():
                landing = await result_refused(self._database, job, code=decision.code)
                is_lost = decision.code is ErrorCode.result_lost
                _count(landing, "lost" if is_lost else "refused")
                _log.error("result_not_stored", job_id=job.id, code=decision.code.value)
                self._ended(leased, landing)
            case _ as never:
                assert_never(never)

    def _ended(self, leased: Leased, landing: Landing) -> None:
        if isinstance(landing, FenceLost):
            raise LeaseLost
        telemetry.capture_slack_seconds.observe(max(0.0, leased.slack_seconds()))
        self.watch_deadline(leased)
        self._late.discard(leased.job.id)


def _count(landing: Landing, result: str) -> None:
    if isinstance(landing, FenceLost):
        raise LeaseLost
    telemetry.capture_attempts.labels(result).inc()
