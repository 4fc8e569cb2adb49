"""Sweeps that end what nobody works on any more: old claims, old jobs, standing cancels.

An expired claim goes to `unknown` and never back; a job that waited longer than its endpoint
allows fails unpaid; a cancel that came while claims were stopped is honoured. Must never touch
a row that somebody may still hold: every statement is fenced by age and stage.
"""

from datetime import timedelta

from services.submitter.routes import Routes
from shared.domain.durations import TimeScale
from shared.kit.loops import Pulse
from shared.store.pool import Database
from shared.store.queries import buyable_endpoints
from shared.store.transitions.admission import standing_cancels_honoured
from shared.store.transitions.submission import never_submitted, submission_claims_expired

BATCH = 100
SUBMIT_WITHIN_SECONDS = 3600.0
"""For jobs whose endpoint left the registry."""


class Housekeeping:
    """One bounded pass each; True when a full batch was moved and more may wait."""

    def __init__(self, database: Database, routes: Routes, scale: TimeScale) -> None:
        self._database, self._routes, self._scale = database, routes, scale

    async def expire_claims(self, _: Pulse) -> bool:
        """Moves rows whose claim outlived its life to `unknown`. Raises Unavailable."""
        life = timedelta(seconds=self._scale.claim_life_seconds)
        moved = await submission_claims_expired(self._database, claim_life=life, batch=BATCH)
        return len(moved) == BATCH

    async def end_waiting(self, _: Pulse) -> bool:
        """Honours standing cancels, then fails jobs that waited too long. Raises Unavailable."""
        moved = [len(await standing_cancels_honoured(self._database, batch=BATCH))]
        allowed = {route.spec.name: route.spec.submit_within_s for route in self._routes}
        for endpoint in await buyable_endpoints(self._database):
            allowed.setdefault(endpoint, SUBMIT_WITHIN_SECONDS)
        for endpoint, seconds in allowed.items():
            within = self._scale.span(seconds)
            old = await never_submitted(self._database, endpoint, within=within, batch=BATCH)
            moved.append(len(old))
        return BATCH in moved
