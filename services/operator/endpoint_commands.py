"""Commands on the endpoint registry.

Owns the listing. Promises that what is shown is what the rooms would load, or a sentence saying
what is wrong with the file. Must never reach a provider.
"""

import argparse

from services.operator.showing import plain, show_json, show_table
from services.operator.sources import Sources
from shared.kit.registry import load_registry

_COLUMNS = (
    "name", "provider", "endpoint_id", "estimated_cost_usd", "max_in_flight", "retention_s",
)  # fmt: skip


async def endpoints_list(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck endpoints list`."""
    endpoints = load_registry(sources.endpoints_file).endpoints.values()
    if options.json:
        rows = [
            {**plain(spec.model_dump(mode="json")), "revision": spec.revision} for spec in endpoints
        ]
        show_json({"endpoints": rows})
    else:
        show_table([spec.model_dump(mode="json") for spec in endpoints], _COLUMNS)
    return 0
