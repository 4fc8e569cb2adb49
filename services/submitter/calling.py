"""One claim, from its commit to its written outcome: at most one call, and always an outcome.

Owns the only use of `ProviderClient.create`. Promises: no byte of a request later than the
claim's deadline; an id is logged before it is first written; whatever breaks before the call
gives the claim back, whatever breaks from the call on ends in `unknown`. Must never call twice,
never call for a claim whose commit is not clear, and never be cancelled by us.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never

from services.submitter.deadman import Watch
from services.submitter.rests import EndpointRests
from services.submitter.routes import Route
from services.submitter.webhooks import WebhookAddresses
from services.submitter.writing import PatientWriter
from shared.domain.durations import TimeScale
from shared.domain.errors import Refused, Unavailable
from shared.domain.provider import (
    Accepted,
    Ambiguous,
    CreateOutcome,
    CreateRequest,
    Handle,
    NoJob,
)
from shared.domain.registry import PinnedEndpoint
from shared.kit import telemetry
from shared.kit.http import PhaseRecorder, SendDeadline, boottime_seconds
from shared.kit.logs import get_logger
from shared.store.pool import Database
from shared.store.queries import claims_of, pinned_endpoint
from shared.store.transitions.record import FenceLost
from shared.store.transitions.submission import (
    Claim,
    evidence_kept,
    submission_accepted,
    submission_refused,
    submission_released,
    submission_uncertain,
)

GATE_MARGIN_SECONDS = 0.5
"""The transport refuses to begin this long before the dead man's timer would end the process."""

RELEASE_FIRST_SECONDS = 2.0
RELEASE_CAP_SECONDS = 60.0
LONGEST_ID = 255
FOREVER = float("inf")
TOO_MANY_REQUESTS = 429

_log = get_logger()


@dataclass(frozen=True)
class CallTools:
    """What every call of the process shares."""

    database: Database
    writer: PatientWriter
    watch: Watch
    webhooks: WebhookAddresses
    rests: EndpointRests
    scale: TimeScale
    revisions: dict[str, PinnedEndpoint] = field(default_factory=dict)

    async def pinned(self, revision: str) -> PinnedEndpoint:
        """A revision's terms, read once per process. Raises Unavailable."""
        if revision not in self.revisions:
            self.revisions[revision] = await pinned_endpoint(self.database, revision)
        return self.revisions[revision]


class PaidCall:
    """The holder of one claim. `run` is called once."""

    def __init__(self, claim: Claim, route: Route, tools: CallTools) -> None:
        self.calls = 0
        self._claim, self._route, self._tools = claim, route, tools
        self._expires_at = claim.begun_at_boottime + tools.scale.claim_life_seconds
        last_moment = claim.begun_at_boottime + tools.scale.first_byte_seconds
        self._deadline = SendDeadline(last_moment - GATE_MARGIN_SECONDS)
        # A claim that took too long is given back by us; the timer is for what still may be sent.
        if not self._is_too_late():
            tools.watch.arm(claim.token, last_moment)

    async def run(self) -> None:
        """Calls, judges, writes. Raises only what kept even `unknown` from being written."""
        outcome = await self._outcome()
        self._count(outcome)
        try:
            await self._write(outcome)
        except Exception as error:  # noqa: BLE001  # no claim may be left behind in silence
            _log.error("outcome_not_written", outcome=_word(outcome), exc_info=error)
            await self._write_uncertain("outcome_not_written", _keepable_id(outcome))

    async def _outcome(self) -> CreateOutcome:
        gate = self._watch_the_gate()
        try:
            request = await self._request()
            if self._is_too_late():
                return NoJob("claim_too_old")
            return await self._call(request)
        except Exception as error:  # noqa: BLE001  # a claim always comes to an outcome
            if self.calls:
                _log.error("paid_call_broken", exc_info=error)
                return Ambiguous("paid_call_broken")
            _log.error("request_not_made", exc_info=error)
            return NoJob("request_not_made")
        finally:
            gate.cancel()
            self._tools.watch.disarm(self._claim.token)

    def _watch_the_gate(self) -> asyncio.TimerHandle:
        """Takes the timer off once the transport's own gate is shut: nothing can leave then."""
        left_seconds = self._deadline.not_after_boottime - boottime_seconds()
        return asyncio.get_running_loop().call_later(
            max(left_seconds, 0.0), self._tools.watch.disarm, self._claim.token
        )

    def _is_too_late(self) -> bool:
        return boottime_seconds() >= self._deadline.not_after_boottime

    async def _request(self) -> CreateRequest:
        """What is to be sent. Raises Unavailable, Refused, and whatever a bad input breaks."""
        claim, route, scale = self._claim, self._route, self._tools.scale
        if claim.job.provider != route.adapter.name:
            raise Refused("the endpoint has another provider than when the job was requested")
        pinned = await self._tools.pinned(claim.job.endpoint_revision)
        return CreateRequest(
            base_url=route.client.base_url,
            endpoint_id=route.spec.endpoint_id,
            input=json.loads(claim.input_json),
            webhook_url=self._tools.webhooks.url(route.adapter, claim.job.id, claim.token),
            execution_timeout_seconds=scale.seconds(pinned.execution_timeout_s),
            ttl_seconds=scale.seconds(pinned.ttl_s),
        )

    async def _call(self, request: CreateRequest) -> CreateOutcome:
        if self.calls:
            raise AssertionError("a claim is good for one call")
        self.calls += 1
        watch, token = self._tools.watch, self._claim.token
        recorder = PhaseRecorder(on_first_byte=lambda: watch.disarm(token))
        client = self._route.client
        exchange = await client.create(request, self._deadline, recorder)
        outcome = self._route.adapter.classify(exchange, client.switched_on)
        if exchange.status == TOO_MANY_REQUESTS:
            telemetry.provider_throttled.labels(
                provider=self._route.adapter.name, operation="create"
            ).inc()
        _log.info(
            "paid_call_ended",
            outcome=_word(outcome),
            reason=None if isinstance(outcome, Accepted) else outcome.reason,
            phase=exchange.phase.value,
            status=exchange.status,
            error=exchange.error,
        )
        return outcome

    def _count(self, outcome: CreateOutcome) -> None:
        if self.calls:
            telemetry.submit_attempts.labels(
                provider=self._route.adapter.name, outcome=_word(outcome)
            ).inc()
        match outcome:
            case Accepted():
                self._tools.rests.accepted(self._route.spec.name)
            case NoJob(permanent=False):
                self._tools.rests.refused(self._route.spec.name, outcome.retry_after_seconds)
            case NoJob() | Ambiguous():
                pass
            case _:
                assert_never(outcome)

    async def _write(self, outcome: CreateOutcome) -> None:
        match outcome:
            case Accepted():
                await self._write_accepted(outcome.provider_job_id)
            case NoJob(permanent=True):
                await self._write_in_time(
                    lambda: submission_refused(
                        self._tools.database, self._claim, reason=outcome.reason
                    )
                )
            case NoJob():
                await self._write_in_time(lambda: self._release(outcome))
            case Ambiguous():
                await self._write_uncertain(outcome.reason, outcome.evidence_id)
            case _:
                assert_never(outcome)

    async def _write_accepted(self, provider_job_id: str) -> None:
        """Writes the accept until the claim's life is over, then the id as evidence."""
        tools, claim = self._tools, self._claim
        # First of all into the log (P5): from here on the id survives the database.
        _log.info("provider_accepted", provider_job_id=provider_job_id)
        handle = Handle(self._route.client.base_url, self._route.spec.endpoint_id, provider_job_id)
        pinned = await tools.pinned(claim.job.endpoint_revision)
        first_check = tools.scale.span(pinned.poll.first_s)
        try:
            landing = await tools.writer.write(
                lambda: submission_accepted(tools.database, claim, handle, first_check=first_check),
                until_boottime=self._expires_at,
            )
        except Unavailable:
            _log.error("accept_not_written_in_time", provider_job_id=provider_job_id)
            await tools.writer.write(
                lambda: evidence_kept(tools.database, claim, provider_job_id),
                until_boottime=FOREVER,
            )
            return
        if isinstance(landing, FenceLost):
            _log.error("accept_became_evidence", provider_job_id=provider_job_id)

    async def _write_uncertain(self, reason: str, evidence_id: str | None) -> None:
        await self._write_in_time(
            lambda: submission_uncertain(
                self._tools.database, self._claim, reason=reason, evidence_id=evidence_id
            )
        )

    async def _release(self, outcome: NoJob) -> object:
        again_seconds = outcome.retry_after_seconds
        if again_seconds is None:
            claims = await claims_of(self._tools.database, self._claim.job.id)
            doubled = RELEASE_FIRST_SECONDS * 2.0 ** min(len(claims) - 1, 30)
            again_seconds = self._tools.scale.seconds(min(doubled, RELEASE_CAP_SECONDS))
        return await submission_released(
            self._tools.database,
            self._claim,
            reason=outcome.reason,
            again_after=timedelta(seconds=again_seconds),
        )

    async def _write_in_time(self, attempt: Callable[[], Awaitable[object]]) -> None:
        try:
            await self._tools.writer.write(attempt, until_boottime=self._expires_at)
        except Unavailable:
            # The sweep moves the row to `unknown`, which is where it belongs by now.
            _log.error("outcome_left_to_expiry")


def _word(outcome: CreateOutcome) -> str:
    """The metric's word for an outcome."""
    match outcome:
        case Accepted():
            return "accepted"
        case NoJob():
            return "no_job"
        case Ambiguous():
            return "ambiguous"
        case _:
            assert_never(outcome)


def _keepable_id(outcome: CreateOutcome) -> str | None:
    """The id that an outcome names, where the table can hold it."""
    match outcome:
        case Accepted(provider_job_id=named) | Ambiguous(evidence_id=named):
            can_be_kept = named and len(named) <= LONGEST_ID and "\0" not in named
            return named if can_be_kept else None
        case NoJob():
            return None
        case _:
            assert_never(outcome)
