"""Opens a client for every provider whose jobs a room may meet.

Owns finding adapter and key. Promises a client for each provider of the registry, or a clear
refusal at the start; and one for each other provider whose settings are there, for a job
outlives the endpoint that it was bought under. Must never show a key.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.domain.errors import Refused
from shared.domain.registry import Registry
from shared.kit.http import HttpTransport
from shared.kit.logs import get_logger
from shared.kit.settings import SettingsInvalid, describe, read_settings
from shared.providers import ADAPTERS
from shared.providers.adapter import ProviderAdapter, ProviderClient

_log = get_logger()


@dataclass(frozen=True)
class OpenProvider:
    """A provider that can be asked."""

    adapter: ProviderAdapter
    client: ProviderClient


def open_providers(registry: Registry, transport: HttpTransport) -> Mapping[str, OpenProvider]:
    """Clients by provider name. Raises Refused without an adapter, SettingsInvalid."""
    wanted = {spec.provider for spec in registry.endpoints.values()}
    for name in sorted(wanted - ADAPTERS.keys()):
        known = ", ".join(sorted(ADAPTERS))
        raise Refused(f"the registry names the provider {name!r}; there is: {known}")
    opened = {}
    for name, adapter in ADAPTERS.items():
        try:
            settings = read_settings(adapter.settings_type)
        except SettingsInvalid:
            if name in wanted:
                raise
            continue
        _log.info("settings_read", provider=name, settings=describe(settings))
        opened[name] = OpenProvider(adapter, adapter.open(settings, transport))
    return opened
