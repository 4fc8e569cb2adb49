"""Where jobs of an endpoint go: its entry in the registry, the adapter, the client with the key.

Owns reading the registry and opening one client per provider in it. A job keeps the limits of
time it was requested under (its revision); where it is sent is today's registry. Must never show
a key.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from shared.domain.durations import TimeScale
from shared.domain.errors import Refused
from shared.domain.registry import EndpointSpec, Registry
from shared.kit.http import HttpTransport
from shared.kit.logs import get_logger
from shared.kit.settings import describe, read_settings
from shared.providers import ADAPTERS, ProviderAdapter, ProviderClient
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
    """Opens a client per provider. Raises Refused without an adapter, SettingsInvalid."""
    clients: dict[str, ProviderClient] = {}
    for spec in registry.endpoints.values():
        if spec.provider not in ADAPTERS:
            known = ", ".join(sorted(ADAPTERS))
            raise Refused(f"endpoint {spec.name}: no provider {spec.provider!r}; there is: {known}")
        if spec.provider not in clients:
            adapter = ADAPTERS[spec.provider]
            settings = read_settings(adapter.settings_type)
            _log.info("settings_read", provider=spec.provider, settings=describe(settings))
            clients[spec.provider] = adapter.open(settings, transport)
    return Routes(
        Route(spec, ADAPTERS[spec.provider], clients[spec.provider])
        for spec in registry.endpoints.values()
    )
