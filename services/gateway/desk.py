"""What the gateway's handlers work with, gathered at start and handed to each request.

Owns no rules: the pool, the bucket, the endpoints' rules, the judge of sessions. There is no
module-level state; two gateways in one process, as in tests, do not know of each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.requests import Request

from services.gateway.key_uses import KeyUses
from services.gateway.sessions import Sessions
from services.gateway.validation import InputRules
from shared.kit.loops import Outage
from shared.media.objects import ObjectStore
from shared.store.pool import Database


@dataclass(frozen=True)
class Desk:
    """The gateway's parts. The outages say once that a part is away and once that it is back."""

    database: Database
    store: ObjectStore
    endpoints: Mapping[str, InputRules]
    sessions: Sessions
    app_origins: frozenset[str]
    key_uses: KeyUses = field(default_factory=KeyUses)
    database_outage: Outage = field(default_factory=lambda: Outage("database"))
    store_outage: Outage = field(default_factory=lambda: Outage("object store"))

    def declared(self, endpoint: str) -> tuple[str, ...]:
        """Names of an endpoint's artifacts in order; none where the endpoint is gone by now."""
        rules = self.endpoints.get(endpoint)
        return () if rules is None else tuple(item.name for item in rules.spec.artifacts)


def desk_of(request: Request) -> Desk:
    """The desk of the application that serves this request."""
    desk: Desk = request.app.state.desk
    return desk
