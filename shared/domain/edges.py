"""The one edge table: which event may move a job from which stage to which.

The trigger and the CHECKs of the database are generated from here (`shared.store.rules`), the
transition functions are tested against it, and so is every audit row. Whoever wants another
edge adds it here first.
"""

from dataclasses import dataclass
from enum import StrEnum

from shared.domain.stages import TERMINAL_STAGES, Stage


class Event(StrEnum):
    """What can happen to a job; the name of the transition function that writes it."""

    job_requested = "job_requested"
    submission_claimed = "submission_claimed"
    submission_accepted = "submission_accepted"
    submission_released = "submission_released"
    submission_refused = "submission_refused"
    submission_uncertain = "submission_uncertain"
    submission_claim_expired = "submission_claim_expired"
    submission_held = "submission_held"
    release_contradicted = "release_contradicted"
    never_submitted = "never_submitted"
    submission_adopted = "submission_adopted"
    check_leased = "check_leased"
    check_rescheduled = "check_rescheduled"
    check_hastened = "check_hastened"
    completion_observed = "completion_observed"
    failure_observed = "failure_observed"
    cancellation_observed = "cancellation_observed"
    timeout_observed = "timeout_observed"
    review_opened = "review_opened"
    capture_leased = "capture_leased"
    capture_extended = "capture_extended"
    capture_rescheduled = "capture_rescheduled"
    capture_prepared = "capture_prepared"
    result_stored = "result_stored"
    result_refused = "result_refused"
    cancel_requested = "cancel_requested"
    resubmitted = "resubmitted"
    abandoned = "abandoned"
    operator_resolved = "operator_resolved"
    purged = "purged"


@dataclass(frozen=True)
class Edge:
    """`event` may take a job from `source` (None: no row yet) to `target`."""

    event: Event
    source: Stage | None
    target: Stage


def _edges(event: Event, sources: str, targets: str) -> tuple[Edge, ...]:
    return tuple(
        Edge(event, Stage(source), Stage(target))
        for source in sources.split()
        for target in targets.split()
    )


def _stays(event: Event, stages: str) -> tuple[Edge, ...]:
    return tuple(Edge(event, Stage(stage), Stage(stage)) for stage in stages.split())


_TERMINAL = " ".join(sorted(TERMINAL_STAGES))

EDGES: tuple[Edge, ...] = (
    Edge(Event.job_requested, None, Stage.unsubmitted),
    *_edges(Event.submission_claimed, "unsubmitted", "submitting"),
    *_edges(Event.submission_accepted, "submitting", "accepted"),
    *_edges(Event.submission_released, "submitting", "unsubmitted cancelled"),
    *_edges(Event.submission_refused, "submitting", "failed"),
    *_edges(Event.submission_uncertain, "submitting", "unknown"),
    *_edges(Event.submission_claim_expired, "submitting", "unknown"),
    *_edges(Event.submission_held, "unsubmitted", "unknown"),
    *_edges(Event.release_contradicted, "unsubmitted submitting", "unknown"),
    *_edges(Event.never_submitted, "unsubmitted", "failed"),
    *_edges(Event.submission_adopted, "unknown", "accepted"),
    *_stays(Event.check_leased, "accepted review unknown"),
    *_stays(Event.check_rescheduled, "accepted review unknown"),
    *_stays(Event.check_hastened, "accepted review unknown"),
    *_edges(Event.completion_observed, "accepted review", "capturing"),
    *_edges(Event.failure_observed, "accepted review", "failed"),
    *_edges(Event.cancellation_observed, "accepted review", "cancelled"),
    *_edges(Event.timeout_observed, "accepted review", "failed"),
    *_edges(Event.review_opened, "accepted capturing", "review"),
    *_stays(Event.capture_leased, "capturing"),
    *_stays(Event.capture_extended, "capturing"),
    *_stays(Event.capture_rescheduled, "capturing"),
    *_stays(Event.capture_prepared, "capturing"),
    *_edges(Event.result_stored, "capturing", "succeeded"),
    *_edges(Event.result_refused, "capturing", "failed"),
    *_edges(Event.cancel_requested, "unsubmitted", "cancelled"),
    *_stays(Event.cancel_requested, "unsubmitted submitting unknown accepted capturing review"),
    *_stays(Event.resubmitted, "unknown review " + _TERMINAL),
    *_edges(Event.abandoned, "unknown review", "failed"),
    *_edges(Event.operator_resolved, "review", "accepted capturing"),
    *_stays(Event.purged, _TERMINAL),
)

STAGE_PAIRS: frozenset[tuple[Stage, Stage]] = frozenset(
    (edge.source, edge.target)
    for edge in EDGES
    if edge.source is not None and edge.source is not edge.target
)
"""Every change of stage that some event allows; the trigger refuses all others."""

TERMINAL_COLUMNS = (
    "verdict",
    "retention",
    "expires_at",
    "resubmitted_as",
    "purged_at",
    "public_version",
    "updated_at",
)
"""All that may still change in a terminal row."""


def is_allowed(event: Event, source: Stage | None, target: Stage) -> bool:
    """Whether the table holds this edge."""
    return Edge(event, source, target) in EDGES
