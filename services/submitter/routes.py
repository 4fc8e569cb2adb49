"""Where jobs of an endpoint go: its entry in the registry, the adapter, the client with the key.

Owns the way from an endpoint's name to its route. A job keeps the limits of time it was requested
under (its revision); where it is sent is today's registry. Must never show a key.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from shared.domain.durations import TimeScale
from shared.domain.registry import EndpointSpec, Registry
from shared.kit.http import HttpTransport
from shared.kit.logs import get_logger
from shared.providers import ProviderAdapter, ProviderClient
from shared.providers.opening import open_providers
from shared.store.transitions.submission import ClaimTerms

_log = get_logger()


@dataclass(frozen=True)
class Route:
    """One endpoint with everything that a paid call to it needs."""

    spec: EndpointSpec
    adapter: ProviderAdapter
    client: ProviderClient

    def terms(self, scale: TimeScale) -> ClaimTerms:
        """The limits under which its jobs are claimed."""
        return ClaimTerms(
            endpoint=self.spec.name,
            max_in_flight=self.spec.max_in_flight,
            counts_for=scale.span(self.spec.ttl_s + self.spec.retention_s),
            claim_life=timedelta(seconds=scale.claim_life_seconds),
            sent_to={"base_url": self.client.base_url, "endpoint_id": self.spec.endpoint_id},
        )


class Routes:
    """All endpoints of the registry by name."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes: Mapping[str, Route] = {route.spec.name: route for route in routes}
        self._missed: set[str] = set()

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes.values())

    def find(self, endpoint: str) -> Route | None:
        """The endpoint's route. One that left the registry is said once; its jobs wait."""
        route = self._routes.get(endpoint)
        if route is None and endpoint not in self._missed:
            self._missed.add(endpoint)
            _log.error("endpoint_not_in_registry", endpoint=endpoint)
        return route


def open_routes(registry: Registry, transport: HttpTransport) -> Routes:
    """The routes of the registry. Raises Refused without an adapter, SettingsInvalid."""
    opened = open_providers(registry, transport)
    return Routes(
        Route(spec, opened[spec.provider].adapter, opened[spec.provider].client)
        for spec in registry.endpoints.values()
    )
