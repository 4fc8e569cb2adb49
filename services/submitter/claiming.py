"""The submitter's stomach: the one way in which a job is claimed, for both of its mouths.

Slots first, then the claim, then at once the calls: a batch never claims more rows than calls
that start now (P3). Promises that a claim whose commit is not clear never leads to a call; its
rows expire. Must never decide by a hint: the row decides.
"""

import random
from collections.abc import Sequence
from uuid import UUID

from services.submitter.flight import FlightLoop
from services.submitter.rests import EndpointRests
from services.submitter.routes import Routes
from services.submitter.slots import Slots
from shared.domain.durations import TimeScale
from shared.domain.errors import Uncertain
from shared.domain.hints import Hint
from shared.domain.stages import Stage
from shared.kit.logs import get_logger
from shared.kit.loops import Pulse
from shared.store.pool import Database
from shared.store.queries import any_job, buyable_endpoints
from shared.store.transitions.submission import Claim, submission_claimed

_log = get_logger()


class Claimer:
    """Claims due jobs and starts their calls."""

    def __init__(
        self,
        database: Database,
        routes: Routes,
        slots: Slots,
        rests: EndpointRests,
        flight: FlightLoop,
        scale: TimeScale,
    ) -> None:
        self._database, self._routes, self._slots = database, routes, slots
        self._rests, self._flight, self._scale = rests, flight, scale

    async def take_hint(self, hint: Hint) -> None:
        """The first mouth: claims the named job if it is due and a slot is free now.

        Returns once the claim's outcome is known, not the call's. Raises Unavailable.
        """
        job = await any_job(self._database, hint.job_id)
        if job is not None and job.stage is Stage.unsubmitted and not job.cancel_requested:
            await self._claim(job.endpoint, 1, [job.id])

    async def sweep_once(self, _: Pulse) -> bool:
        """The second mouth: claims due jobs of every endpoint, as many as calls can start now.

        True when it started some and could start more. Raises Unavailable.
        """
        endpoints = await buyable_endpoints(self._database)
        random.shuffle(endpoints)  # no endpoint is always served first
        started = 0
        for endpoint in endpoints:
            started += await self._claim(endpoint, max(self._slots.free, 1))
        return started > 0 and self._slots.free > 0

    async def _claim(
        self, endpoint: str, wanted: int, job_ids: Sequence[UUID] | None = None
    ) -> int:
        route = self._routes.find(endpoint)
        if route is None or self._rests.is_resting(endpoint):
            return 0
        taken = self._slots.take(wanted)
        if not taken:
            self._slots.want_more()
            return 0
        claims: list[Claim] = []
        try:
            claims = await submission_claimed(
                self._database, route.terms(self._scale), batch=taken, job_ids=job_ids
            )
        except Uncertain as error:
            _log.error("claim_not_clear", endpoint=endpoint, exc_info=error)
        finally:
            self._slots.give_back(taken - len(claims))
        for claim in claims:
            self._flight.start(claim, route)
        if len(claims) == taken and not self._slots.free:
            self._slots.want_more()
        return len(claims)
