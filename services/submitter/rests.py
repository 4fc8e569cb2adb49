"""Endpoints that are left alone for a moment because their provider took no job just now.

A provider that is down would otherwise cost every waiting job a claim and a release, one after
the other. Kept in this process alone and lost with it: it saves work and guards nothing.
"""

import asyncio

from shared.kit.loops import Backoff


class EndpointRests:
    """Rests by endpoint; each one in a row is longer, the first accept ends them."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._until: dict[str, float] = {}
        self._in_a_row: dict[str, int] = {}

    def is_resting(self, endpoint: str) -> bool:
        """Whether no job of the endpoint should be claimed now."""
        return self._until.get(endpoint, 0.0) > asyncio.get_running_loop().time()

    def refused(self, endpoint: str, retry_after_seconds: float | None) -> None:
        """No job was created. Calls that were in flight together count once."""
        now = asyncio.get_running_loop().time()
        if not self.is_resting(endpoint):
            in_a_row = self._in_a_row.get(endpoint, 0)
            self._in_a_row[endpoint] = in_a_row + 1
            self._until[endpoint] = now + self._backoff.seconds(in_a_row)
        wanted_until = now + (retry_after_seconds or 0.0)
        self._until[endpoint] = max(self._until[endpoint], wanted_until)

    def accepted(self, endpoint: str) -> None:
        """The provider takes jobs again."""
        self._until.pop(endpoint, None)
        self._in_a_row.pop(endpoint, None)
