"""What is to be copied, read out of a completed answer. Pure.

Owns the join of three things: the paths a job was bought under, what the answer holds there, and
today's rules about hosts, media types and sizes. Promises that a required artifact that is not
there is told apart from one that our own settings refuse. Must never keep or log a value.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.domain.provider import FoundArtifact, StatusReading
from shared.domain.registry import ArtifactSpec, EndpointSpec, PinnedEndpoint
from shared.media.artifacts import locate, stored_name
from shared.providers import ProviderAdapter

UNDECLARED_NAME = "result"
DEFAULT_BYTES_MAX = 2_000_000_000


@dataclass(frozen=True)
class Rules:
    """Today's rules of one artifact; an artifact that left the registry may come from nowhere."""

    hosts: tuple[str, ...] = ()
    media_types: tuple[str, ...] = ()
    bytes_max: int = DEFAULT_BYTES_MAX


@dataclass(frozen=True)
class Wanted:
    """One artifact of this job: its name in our bucket, its reference, its rules."""

    name: str
    found: FoundArtifact
    is_required: bool
    rules: Rules


def wanted_artifacts(
    reading: StatusReading,
    pinned: PinnedEndpoint,
    spec: EndpointSpec | None,
    adapter: ProviderAdapter,
    private_targets: frozenset[str],
) -> tuple[Wanted, ...] | None:
    """All that the answer holds of what was declared; None where a required one is not there."""
    if not pinned.artifacts:
        found = adapter.find_artifacts(reading.output)
        return _named(UNDECLARED_NAME, found, Rules(), is_required=True) or None
    rules = rules_of(spec)
    wanted: tuple[Wanted, ...] = ()
    for declared in pinned.artifacts:
        found = locate(reading.output, declared, private_targets) if reading.has_output else ()
        if declared.required and not found:
            return None
        wanted += _named(
            declared.name,
            found,
            rules.get(declared.name, Rules()),
            is_required=declared.required,
        )
    return wanted


def rules_of(spec: EndpointSpec | None) -> Mapping[str, Rules]:
    """Today's rules by artifact name; none where the endpoint left the registry."""
    artifacts: tuple[ArtifactSpec, ...] = () if spec is None else spec.artifacts
    return {item.name: Rules(item.hosts, item.media_types, item.max_bytes) for item in artifacts}


def _named(
    name: str, found: tuple[FoundArtifact, ...], rules: Rules, *, is_required: bool
) -> tuple[Wanted, ...]:
    return tuple(
        Wanted(stored_name(name, index), item, is_required, rules)
        for index, item in enumerate(found)
    )
