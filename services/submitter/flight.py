"""The calls in flight: started here, counted here, waited for at a stop.

Owns the tasks of paid calls. Promises that a slot comes back however its call ends, and that a
stop waits for every call and cancels none: a cancelled call would be an `unknown` of our making.
"""

import asyncio

from structlog.contextvars import bound_contextvars

from services.submitter.calling import CallTools, PaidCall
from services.submitter.routes import Route
from services.submitter.slots import Slots
from shared.kit import telemetry
from shared.kit.logs import get_logger
from shared.kit.loops import Pulse, wait_any
from shared.kit.tracing import continued_trace
from shared.store.transitions.submission import Claim

LOOK_SECONDS = 1.0

_log = get_logger()


class FlightLoop:
    """Carries paid calls; as a loop it only lives until the last one has ended."""

    name = "submitter.calls"
    beat_bound_seconds = 60.0

    def __init__(self, slots: Slots, tools: CallTools) -> None:
        self._slots = slots
        self._tools = tools
        self._tasks: set[asyncio.Task[None]] = set()
        self._most_calls = 0

    def start(self, claim: Claim, route: Route) -> None:
        """Starts the call of one claim, whose slot is taken. Never waits."""
        call = PaidCall(claim, route, self._tools)
        task = asyncio.create_task(self._carry(call, claim))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self, pulse: Pulse) -> None:
        """Beats until stopped, then until no slot is taken any more."""
        await pulse.sleep(float("inf"))
        while not self._slots.all_back.is_set():
            pulse.beat()
            await wait_any(self._slots.all_back, seconds=LOOK_SECONDS)

    async def _carry(self, call: PaidCall, claim: Claim) -> None:
        job = claim.job
        named = {"job_id": str(job.id), "endpoint": job.endpoint, "provider": job.provider}
        try:
            with continued_trace(job.traceparent), bound_contextvars(**named):
                await self._to_its_end(call)
        finally:
            self._most_calls = max(self._most_calls, call.calls)
            telemetry.paid_calls_per_claim_max.set(self._most_calls)
            self._slots.give_back(1)

    async def _to_its_end(self, call: PaidCall) -> None:
        try:
            await call.run()
        except Exception as error:  # noqa: BLE001  # the claim's expiry is what is left
            _log.error("claim_left_to_expiry", exc_info=error)
