"""One check of one job: leased, asked, judged, written.

Owns the room's stomach: both mouths end in `lease`, which leases due rows and commits before
anybody is asked. Promises at most one status call on a held job per lease, a wish to cancel
before it where one stands, and one fenced write after it; a lease that was lost meanwhile is
counted and changes nothing. Must never keep an output longer than it takes to look at it.
"""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from services.reconciler.adoption import Adopter
from services.reconciler.asking import Asker
from services.reconciler.mapping import ARCHIVERS_REASONS, Judge, Look
from services.reconciler.pacing import Pacing
from services.reconciler.survey import NOTHING, survey
from services.reconciler.writing import write
from shared.domain.durations import TimeScale
from shared.domain.job import Job
from shared.domain.provider import Handle, ProviderState
from shared.domain.registry import PinnedEndpoint, Registry
from shared.domain.stages import Stage
from shared.kit import telemetry
from shared.kit.parallel import Work
from shared.kit.tracing import continued_trace
from shared.providers.opening import OpenProvider
from shared.store.pool import Database
from shared.store.queries import pinned_endpoint, reviewed_under
from shared.store.transitions import checks
from shared.store.transitions.evidence import Evidence, unexamined_evidence
from shared.store.transitions.record import FenceLost, Landing

STATUS_SECONDS = 30.0
CANCEL_SECONDS = 10.0
WRITE_SECONDS = 5.0
NOBODY_TO_ASK_SECONDS = 60.0


class Checker:
    """Checks due rows under the name of `holder`."""

    def __init__(
        self,
        database: Database,
        asker: Asker,
        adopter: Adopter,
        registry: Registry,
        pacing: Pacing,
        scale: TimeScale,
        *,
        holder: str,
        private_targets: frozenset[str],
    ) -> None:
        self._database = database
        self._asker = asker
        self._adopter = adopter
        self._registry = registry
        self._pacing = pacing
        self._scale = scale
        self._judge = Judge(scale, pacing)
        self._holder = holder
        self._private_targets = private_targets
        self._revisions: dict[str, PinnedEndpoint] = {}
        self._status_seconds = scale.transport_seconds(STATUS_SECONDS)
        self._lease_life = timedelta(
            seconds=self._status_seconds
            + scale.transport_seconds(CANCEL_SECONDS)
            + scale.transport_seconds(WRITE_SECONDS)
        )

    async def lease(self, most: int) -> Sequence[Work]:
        """Leases up to `most` due rows; the check of each. Raises Unavailable."""
        jobs = await checks.check_leased(
            self._database, holder=self._holder, life=self._lease_life, batch=most
        )
        unknown = [job.id for job in jobs if job.stage is Stage.unknown]
        evidence = await unexamined_evidence(self._database, unknown) if unknown else []
        ask_until = time.monotonic() + self._lease_life.total_seconds() - self._status_seconds
        works: list[Work] = []
        for job in jobs:
            if job.stage is Stage.unknown:
                own = [item for item in evidence if item.job_id == job.id]
                works.append(self._examine(job, own, ask_until))
            else:
                works.append(self._check(job))
        return works

    async def _check(self, job: Job) -> None:
        with continued_trace(job.traceparent):
            leased_at = self._leased_at(job)
            provider = self._asker.find(job.provider)
            if provider is None:
                await self._look_again(job, self._scale.span(NOBODY_TO_ASK_SECONDS))
                return
            handle = Handle(**(job.provider_handle or {}))
            if held_seconds := self._asker.held_seconds(provider, handle):
                await self._look_again(job, timedelta(seconds=held_seconds))
                return
            if job.cancel_requested:
                await self._ask_to_stop(job, provider, handle, leased_at)
            look = await self._look(job, provider, handle, leased_at)
            landing = await write(
                self._database,
                self._scale,
                look,
                self._judge.decide(look),
            )
            _note(job, landing)

    async def _look(
        self, job: Job, provider: OpenProvider, handle: Handle, leased_at: datetime
    ) -> Look:
        pinned = await self._pinned(job)
        reading = await self._asker.status(provider, handle)
        if reading.state is not ProviderState.completed:
            return Look(job, leased_at, pinned, reading, NOTHING)
        held = survey(reading, pinned, provider.adapter, self._private_targets)
        return Look(job, leased_at, pinned, reading, held, await self._rules_changed(job))

    async def _ask_to_stop(
        self, job: Job, provider: OpenProvider, handle: Handle, leased_at: datetime
    ) -> None:
        """Sends the standing wish; the status call that follows tells what came of it."""
        sent_at = job.cancel_sent_at
        if not provider.adapter.may_cancel:
            return
        if sent_at is not None and leased_at < sent_at + self._pacing.cancel_gap():
            return
        if await self._asker.cancel(provider, handle):
            await checks.cancel_sent(self._database, job)

    async def _examine(self, job: Job, evidence: list[Evidence], ask_until: float) -> None:
        with continued_trace(job.traceparent):
            provider = self._asker.find(job.provider)
            if provider is None:
                await self._look_again(job, self._scale.span(NOBODY_TO_ASK_SECONDS))
                return
            found = await self._adopter.examine(
                job,
                provider,
                await self._pinned(job),
                evidence,
                leased_at=self._leased_at(job),
                ask_until=ask_until,
            )
            if found is None or isinstance(found, timedelta):
                await self._look_again(job, found)
            else:
                _note(job, found)

    async def _look_again(self, job: Job, delay: timedelta | None) -> None:
        _note(job, await checks.check_rescheduled(self._database, job, delay=delay))

    async def _pinned(self, job: Job) -> PinnedEndpoint:
        """The terms the job was bought under; a revision never changes."""
        revision = job.endpoint_revision
        if revision not in self._revisions:
            self._revisions[revision] = await pinned_endpoint(self._database, revision)
        return self._revisions[revision]

    async def _rules_changed(self, job: Job) -> bool:
        """Whether the registry is another than when the archiver gave the job to review."""
        spec = self._registry.find(job.endpoint)
        if spec is None or job.attention_reason not in ARCHIVERS_REASONS:
            return False
        return await reviewed_under(self._database, job.id) not in (None, spec.capture_rules)

    def _leased_at(self, job: Job) -> datetime:
        """The database's time of the lease, and the delay of the check behind its due time."""
        if job.lease_expires_at is None:
            raise ValueError("only a leased row is checked")
        leased_at = job.lease_expires_at - self._lease_life
        if job.next_check_at is not None:
            lag = (leased_at - job.next_check_at).total_seconds()
            telemetry.check_lag_seconds.observe(max(0.0, lag))
        return leased_at


def _note(job: Job, landing: Landing) -> None:
    if isinstance(landing, FenceLost):
        telemetry.lease_lost.labels(job.stage.value).inc()
