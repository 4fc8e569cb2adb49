"""What the reconciler is told, beside the provider keys that each adapter reads itself.

Owns how ids that come back are treated and how many checks run side by side. Must never hold a
duration of a job: those are its endpoint's, pinned when it was bought.
"""

from typing import Literal

from pydantic import Field

from shared.kit.settings import (
    DatabaseSettings,
    KafkaSettings,
    RegistrySettings,
    RuntimeSettings,
)


class ReconcilerSettings(RuntimeSettings, DatabaseSettings, KafkaSettings, RegistrySettings):
    """`adoption`: whether an id that the provider confirms is taken over, or only reported.

    `reconciler_sweep_seconds` (scaled, at least a quarter second) bounds what a lost hint costs.
    `fetch_allow_private` says here which links count as results, as it does in the archiver.
    """

    adoption: Literal["auto", "manual"] = "auto"
    reconciler_parallel_checks: int = Field(default=32, ge=1, le=500)
    reconciler_sweep_seconds: float = Field(default=1.0, gt=0, le=3600)
