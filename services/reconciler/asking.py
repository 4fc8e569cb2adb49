"""Asking a provider: with its key, within its pauses, counted.

Owns the way from a handle to a reading. Promises that nothing raises but a cancellation, that a
provider that wants to be left alone is, and that every answer is counted once. Must never decide
what an answer means.
"""

import asyncio
from collections.abc import Mapping

from services.reconciler.pacing import Pacing
from services.reconciler.throttle import Throttle
from shared.domain.provider import Handle, ProviderState, StatusReading
from shared.kit import telemetry
from shared.kit.logs import get_logger
from shared.providers.opening import OpenProvider

_log = get_logger()


class Asker:
    """All providers this process holds a key for. `cancel_seconds` bounds a wish to cancel."""

    def __init__(
        self,
        providers: Mapping[str, OpenProvider],
        throttle: Throttle,
        pacing: Pacing,
        *,
        cancel_seconds: float,
    ) -> None:
        self._providers = providers
        self._throttle = throttle
        self._pacing = pacing
        self._cancel_seconds = cancel_seconds
        self._missed: set[str] = set()

    def find(self, provider: str) -> OpenProvider | None:
        """The provider, or None where no key of its is here; that is said once."""
        found = self._providers.get(provider)
        if found is None and provider not in self._missed:
            self._missed.add(provider)
            _log.error("provider_without_key", provider=provider)
        return found

    def held_seconds(self, provider: OpenProvider, handle: Handle) -> float:
        """How long this call should still wait; 0 when it may go. A wait is counted."""
        seconds = self._throttle.held_seconds((provider.adapter.name, handle.base_url))
        if seconds:
            _count_held_back(provider, "status")
        return seconds

    async def status(self, provider: OpenProvider, handle: Handle) -> StatusReading:
        """What the provider says of the job now."""
        reading = await provider.client.status(handle)
        name = provider.adapter.name
        telemetry.checks.labels(name, reading.state.value).inc()
        if reading.state is ProviderState.unrecognised:
            telemetry.provider_unrecognised.labels(name).inc()
        if reading.retry_after_seconds is not None:
            _count_held_back(provider, "status")
        wish = self._pacing.heeded_seconds(reading.retry_after_seconds)
        self._throttle.heed((name, handle.base_url), reading, wish)
        return reading

    async def cancel(self, provider: OpenProvider, handle: Handle) -> bool:
        """Whether the provider took the wish to stop the job."""
        try:
            async with asyncio.timeout(self._cancel_seconds):
                return await provider.client.cancel(handle)
        except TimeoutError:
            return False


def _count_held_back(provider: OpenProvider, operation: str) -> None:
    telemetry.provider_throttled.labels(provider.adapter.name, operation).inc()
