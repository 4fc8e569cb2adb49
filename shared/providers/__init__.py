"""The providers: one adapter each, found by looking.

Owns `ADAPTERS`, every module or package of this folder that exposes `ADAPTER`, by the adapter's
name. Adding a provider is adding its file; nothing is listed by hand. They are looked for when
first asked for, so that a module of this folder may itself import `ADAPTERS`. Must never be
edited for a new provider.
"""

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from shared.providers.adapter import ProviderAdapter, ProviderClient

__all__ = ["ADAPTERS", "ProviderAdapter", "ProviderClient"]


class _Adapters(Mapping[str, ProviderAdapter]):
    """The adapters by name, in the order of their names."""

    @functools.cached_property
    def _found(self) -> dict[str, ProviderAdapter]:
        found: dict[str, ProviderAdapter] = {}
        for module_info in pkgutil.iter_modules(__path__):
            module = importlib.import_module(f"{__name__}.{module_info.name}")
            adapter: ProviderAdapter | None = getattr(module, "ADAPTER", None)
            if adapter is not None:
                found[adapter.name] = adapter
        return dict(sorted(found.items()))

    def __getitem__(self, name: str) -> ProviderAdapter:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


ADAPTERS: Mapping[str, ProviderAdapter] = _Adapters()
