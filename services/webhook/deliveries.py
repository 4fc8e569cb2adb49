"""What becomes of one authentic delivery: evidence in the database, alarms, a label.

Promises that nothing of a body is believed: the provider's job id is kept for the reconciler to
ask about, whatever else is said is dropped unread. An alarm is its metric and one error line,
raised once per new piece of evidence.
"""

import asyncio
from datetime import timedelta

from shared.domain.provider import Json
from shared.domain.webhook_token import NamedClaim
from shared.kit import telemetry
from shared.kit.logs import get_logger
from shared.providers import ADAPTERS
from shared.store.pool import Database
from shared.store.transitions.evidence import (
    Callback,
    CallbackRecorded,
    CallbackResult,
    callback_recorded,
)

LIGHT_BODY_BYTES = 65_536

_log = get_logger()


async def record_delivery(
    database: Database, provider: str, named: NamedClaim, body: bytes, *, floor: timedelta
) -> CallbackRecorded:
    """Stores the delivery. Raises Unavailable; then nothing was recorded."""
    provider_job_id = await _job_id_in(provider, body)
    callback = Callback(provider, named.job_id, named.claim_token, provider_job_id)
    recorded = await callback_recorded(database, callback, floor=floor)
    _raise_alarms(callback, recorded)
    return recorded


async def _job_id_in(provider: str, body: bytes) -> str | None:
    read = ADAPTERS[provider].webhook_job_id
    if len(body) <= LIGHT_BODY_BYTES:
        return read(body)
    return await asyncio.to_thread(read, body)


def _raise_alarms(callback: Callback, recorded: CallbackRecorded) -> None:
    told: dict[str, Json] = {
        "job_id": str(callback.job_id),
        "provider": callback.provider,
        "provider_job_id": callback.provider_job_id,
    }
    if recorded.result is CallbackResult.orphan:
        telemetry.orphan_callbacks.inc()
        _log.error("orphan_callback", **told)
    if recorded.paid_twice_suspected:
        telemetry.paid_twice_suspected.inc()
        _log.error("paid_twice_suspected", **told)
    if recorded.refusal_contradicted:
        telemetry.refusal_contradicted.inc()
        _log.error("refusal_contradicted", **told)
