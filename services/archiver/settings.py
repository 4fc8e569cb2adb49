"""What the archiver is told, beside the provider keys that each adapter reads itself.

Owns how long results are kept and how many transfers run side by side. Must never hold a rule
about what may be fetched: those are the registry's, read at the start.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from shared.domain.durations import TimeScale
from shared.kit.settings import (
    DatabaseSettings,
    FetchSettings,
    KafkaSettings,
    RegistrySettings,
    StorageSettings,
)

KEEP = "keep"
SECONDS_PER_DAY = 86_400.0


class ArchiverSettings(
    FetchSettings, DatabaseSettings, KafkaSettings, StorageSettings, RegistrySettings
):
    """`retention_days`: how long results of a class are kept ("preview=7,archive=365").

    What is not named there is kept for ever; `keep` always is. `archiver_sweep_seconds` (scaled,
    at least a quarter second) bounds what a lost hint costs. `archiver_transfer_seconds`: the
    longest that one artifact's transfer may take, scaled.
    """

    archiver_parallel_transfers: int = Field(default=4, ge=1, le=64)
    archiver_sweep_seconds: float = Field(default=1.0, gt=0, le=3600)
    archiver_transfer_seconds: float = Field(default=1800.0, gt=0, le=86_400)
    retention_days: Annotated[Mapping[str, float], NoDecode] = Field(default={"preview": 7.0})

    @field_validator("retention_days", mode="before")
    @classmethod
    def _split_classes(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        days = dict(part.strip().partition("=")[::2] for part in value.split(",") if part.strip())
        if not days.keys() or KEEP in days:
            raise ValueError(f"must be class=days,… and cannot name the class {KEEP}")
        return days

    @field_validator("retention_days")
    @classmethod
    def _are_days(cls, value: Mapping[str, float]) -> Mapping[str, float]:
        if any(not 0 < days <= 36_500 for days in value.values()):
            raise ValueError("days must lie above 0 and be at most 36500")
        return value

    def lifetime(self, retention: str, scale: TimeScale) -> timedelta | None:
        """How long a result of this class is kept, scaled; None for ever."""
        days = None if retention == KEEP else self.retention_days.get(retention)
        return None if days is None else scale.span(days * SECONDS_PER_DAY)
