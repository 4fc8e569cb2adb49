"""Time scale: one factor that shortens every duration of ours in drills and demos.

Owns: the factor and the lives that derive from it (a claim's, a sweep's). It promises that
transport deadlines are never scaled below three seconds, and must never touch what belongs
to somebody else: the provider's Retry-After, the life of tokens and signed links.
"""

from dataclasses import dataclass
from datetime import timedelta

TRANSPORT_FLOOR_SECONDS = 3.0
FIRST_BYTE_SECONDS = 10.0
PAID_CALL_SECONDS = 30.0
ACCEPT_SECONDS = 35.0
CLAIM_SWEEP_SECONDS = 15.0


@dataclass(frozen=True)
class TimeScale:
    """A factor ≥ 1 that divides durations; 1 in production."""

    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 1.0 <= self.factor <= 1000.0:
            raise ValueError("TIME_SCALE must lie between 1 and 1000")

    def seconds(self, unscaled_seconds: float) -> float:
        """The scaled length in seconds."""
        return unscaled_seconds / self.factor

    def span(self, unscaled_seconds: float) -> timedelta:
        """The scaled length as the database takes it."""
        return timedelta(seconds=self.seconds(unscaled_seconds))

    def transport_seconds(self, unscaled_seconds: float) -> float:
        """A deadline for talking to somebody: scaled, but never under three seconds."""
        return max(TRANSPORT_FLOOR_SECONDS, self.seconds(unscaled_seconds))

    @property
    def first_byte_seconds(self) -> float:
        """After BEGIN of a claim no first request byte leaves later than this (P2)."""
        return self.transport_seconds(FIRST_BYTE_SECONDS)

    @property
    def paid_call_seconds(self) -> float:
        """The whole paid call takes no longer than this (P2)."""
        return self.transport_seconds(PAID_CALL_SECONDS)

    @property
    def claim_life_seconds(self) -> float:
        """A claim older than this is swept to `unknown`: 75 s unscaled, 9 s at 60 (P2)."""
        return (
            self.first_byte_seconds
            + self.paid_call_seconds
            + self.transport_seconds(ACCEPT_SECONDS)
        )

    @property
    def claim_sweep_seconds(self) -> float:
        """An expired claim is swept within this time."""
        return self.transport_seconds(CLAIM_SWEEP_SECONDS)
