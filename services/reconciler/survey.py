"""Whether a completed output holds what the endpoint declared, and until when. Pure.

Owns the question "is there something to capture?". Promises to look only where the job's pinned
paths lead, and by search only where an endpoint declares no artifact at all. What the bytes are,
and whether a link may be fetched, is for the archiver. Must never keep or log an output.
"""

from dataclasses import dataclass
from datetime import datetime

from services.reconciler.links import link_expires_at
from shared.domain.provider import FoundArtifact, FoundKind, StatusReading
from shared.domain.registry import PinnedEndpoint
from shared.media.artifacts import locate
from shared.providers import ProviderAdapter


@dataclass(frozen=True)
class Survey:
    """`is_whole`: every required artifact is there; the soonest expiry of the links, if told."""

    is_whole: bool
    link_expires_at: datetime | None = None


NOTHING = Survey(is_whole=False)


def survey(
    reading: StatusReading,
    pinned: PinnedEndpoint,
    adapter: ProviderAdapter,
    private_targets: frozenset[str],
) -> Survey:
    """What a completed answer holds."""
    if not pinned.artifacts:
        found = adapter.find_artifacts(reading.output)
        return Survey(bool(found), _soonest(found))
    everything: list[FoundArtifact] = []
    for declared in pinned.artifacts:
        located = locate(reading.output, declared, private_targets) if reading.has_output else ()
        if declared.required and not located:
            return NOTHING
        everything += located
    return Survey(True, _soonest(everything))


def _soonest(found: list[FoundArtifact] | tuple[FoundArtifact, ...]) -> datetime | None:
    links = (link_expires_at(item.value) for item in found if item.kind is FoundKind.url)
    return min((moment for moment in links if moment is not None), default=None)
