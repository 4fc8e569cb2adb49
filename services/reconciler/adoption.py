"""Jobs whose paid call has no known outcome, and ids that somebody says came of it.

Owns the examination of evidence. Promises that an id is taken over only after the provider
itself answered for that very id, under our key and with a state we know, and only while no other
row holds it. A missing answer proves nothing (a job may not be visible yet): the id is asked for
again until the provider could no longer know it. Must never resubmit, end or give up a job.
"""

import time
from datetime import datetime, timedelta

from services.reconciler.asking import Asker
from services.reconciler.pacing import Pacing
from shared.domain.durations import TimeScale
from shared.domain.job import Job
from shared.domain.provider import Handle, ProviderState, StatusReading
from shared.domain.registry import PinnedEndpoint, Registry
from shared.kit.logs import get_logger
from shared.providers.opening import OpenProvider
from shared.store.pool import Database
from shared.store.transitions.evidence import Evidence, evidence_examined, submission_adopted
from shared.store.transitions.record import Landed, Landing

_NO_ANSWER = (ProviderState.gone, ProviderState.unrecognised, ProviderState.retry_later)

_log = get_logger()


class Adopter:
    """Examines evidence. `is_automatic` False: a confirmed id is reported, not taken over."""

    def __init__(
        self,
        database: Database,
        asker: Asker,
        pacing: Pacing,
        scale: TimeScale,
        registry: Registry,
        *,
        is_automatic: bool,
    ) -> None:
        self._database = database
        self._asker = asker
        self._pacing = pacing
        self._scale = scale
        self._registry = registry
        self._is_automatic = is_automatic

    async def examine(
        self,
        job: Job,
        provider: OpenProvider,
        pinned: PinnedEndpoint,
        evidence: list[Evidence],
        *,
        leased_at: datetime,
        ask_until: float,
    ) -> Landing | timedelta | None:
        """Asks for each id in turn, beginning no call after `ask_until` (monotonic).

        The landing of an adoption; else the delay to the next look, None where nothing is left.
        """
        left: list[Evidence] = []
        held_seconds = 0.0
        for item in _rotated(evidence, job.check_attempts):
            handle = self._handle(job, provider, pinned, item)
            held_seconds = max(held_seconds, self._asker.held_seconds(provider, handle))
            if held_seconds or time.monotonic() >= ask_until:
                left.append(item)
                continue
            reading = await self._asker.status(provider, handle)
            if _is_proper(reading, item):
                landing = await self._confirmed(job, item, handle)
                if isinstance(landing, Landed):
                    return landing
                if landing is None:
                    left.append(item)
            elif leased_at >= self._forgotten_at(pinned, item):
                _log.error("evidence_given_up", job_id=job.id, provider_job_id=item.provider_job_id)
                await evidence_examined(self._database, item)
            else:
                left.append(item)
        if not left:
            return None
        age = leased_at - max(item.received_at for item in left)
        return max(self._pacing.gap(pinned, age), timedelta(seconds=held_seconds))

    async def _confirmed(self, job: Job, item: Evidence, handle: Handle) -> Landing | None:
        if not self._is_automatic:
            _log.error(
                "adoption_waits_for_operator",
                job_id=job.id,
                provider=job.provider,
                provider_job_id=item.provider_job_id,
            )
            return None
        if job.lease_token is None:
            raise ValueError("only a leased row is examined")
        landing = await submission_adopted(self._database, job, job.lease_token, item, handle)
        if not isinstance(landing, Landed):
            # The lease is gone, or another row holds this id: then it was never this job's.
            _log.error(
                "adoption_refused",
                job_id=job.id,
                provider=job.provider,
                provider_job_id=item.provider_job_id,
            )
        return landing

    def _handle(
        self, job: Job, provider: OpenProvider, pinned: PinnedEndpoint, item: Evidence
    ) -> Handle:
        """Where the claim was sent; a claim that a restore took away went where jobs go today."""
        spec = self._registry.find(job.endpoint)
        endpoint_id = pinned.endpoint_id if spec is None else spec.endpoint_id
        return Handle(
            item.sent_to.get("base_url", provider.client.base_url),
            item.sent_to.get("endpoint_id", endpoint_id),
            item.provider_job_id,
        )

    def _forgotten_at(self, pinned: PinnedEndpoint, item: Evidence) -> datetime:
        begun_at = item.claimed_at or item.received_at
        return begun_at + self._scale.span(pinned.ttl_s + pinned.retention_s)


def _is_proper(reading: StatusReading, item: Evidence) -> bool:
    """Whether the provider answered for that very id, with a state we know."""
    is_that_one = reading.provider_job_id == item.provider_job_id
    return is_that_one and reading.state not in _NO_ANSWER


def _rotated(evidence: list[Evidence], turns: int) -> list[Evidence]:
    """Another one first each time, so that a slow answer cannot keep the rest waiting."""
    start = turns % len(evidence) if evidence else 0
    return evidence[start:] + evidence[:start]
