"""One capture under one lease: the room's stomach, where both mouths end.

Owns leasing, the heartbeat around the work, and the measure of how long transfers take. Promises
that a lease that was lost stops its work and is counted, and that a part of ours that is away
(the bucket, the database) ends the lease early, with a growing pause. Must never hold more rows
than it is working on.
"""

import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from statistics import median

from services.archiver.attempt import Attempter
from services.archiver.leases import Lease, LeaseLost
from services.archiver.problems import Trouble
from services.archiver.settling import Leased, Settler
from shared.domain.durations import TimeScale
from shared.domain.errors import Unavailable
from shared.domain.job import Job
from shared.domain.registry import PinnedEndpoint
from shared.domain.stages import Stage
from shared.kit import telemetry
from shared.kit.loops import Outage
from shared.kit.parallel import Work
from shared.kit.tracing import continued_trace
from shared.store.pool import Database
from shared.store.queries import pinned_endpoint
from shared.store.transitions.capture import capture_leased

LEASE_SECONDS = 30.0
TRANSFERS_REMEMBERED = 64


class Archiver:
    """Captures due rows under the name of `holder`."""

    def __init__(
        self,
        database: Database,
        attempter: Attempter,
        settler: Settler,
        scale: TimeScale,
        *,
        holder: str,
    ) -> None:
        self._database = database
        self._attempter = attempter
        self._settler = settler
        self._holder = holder
        self._life = timedelta(seconds=scale.transport_seconds(LEASE_SECONDS))
        self._part = Outage("archiver: the bucket")
        self._revisions: dict[str, PinnedEndpoint] = {}
        self._transfer_seconds: deque[float] = deque(maxlen=TRANSFERS_REMEMBERED)

    async def lease(self, most: int) -> Sequence[Work]:
        """Leases up to `most` due captures; the work on each. Raises Unavailable."""
        leased_from = time.monotonic()
        usual_seconds = median(self._transfer_seconds) if self._transfer_seconds else 0.0
        jobs = await capture_leased(
            self._database,
            holder=self._holder,
            life=self._life,
            batch=most,
            transfer=timedelta(seconds=usual_seconds),
        )
        return [self._capture(job, leased_from) for job in jobs]

    async def _capture(self, job: Job, leased_from: float) -> None:
        lease = Lease(self._database, job, self._life, leased_from)
        with continued_trace(job.traceparent):
            try:
                await lease.hold(lambda: self._work(job, lease))
            except LeaseLost:
                telemetry.lease_lost.labels(Stage.capturing.value).inc()
                telemetry.capture_attempts.labels("lease_lost").inc()

    async def _work(self, job: Job, lease: Lease) -> None:
        if job.lease_expires_at is None:
            raise ValueError("only a leased row is captured")
        pinned = await self._pinned(job)
        leased = Leased(job, pinned, lease, job.lease_expires_at - self._life)
        self._settler.watch_deadline(leased)
        try:
            attempt = await self._attempter.make(job, pinned)
            await self._settler.settle(leased, attempt)
        except Unavailable as error:
            self._part.failed(error)
            await self._settler.give_up_for_now(leased, Trouble("part_away"))
            return
        self._part.worked()
        fresh = [item.seconds for item in attempt.artifacts if not item.is_adopted]
        if fresh and attempt.problem is None:
            self._transfer_seconds.append(sum(fresh))

    async def _pinned(self, job: Job) -> PinnedEndpoint:
        """The terms the job was bought under; a revision never changes."""
        revision = job.endpoint_revision
        if revision not in self._revisions:
            self._revisions[revision] = await pinned_endpoint(self._database, revision)
        return self._revisions[revision]
