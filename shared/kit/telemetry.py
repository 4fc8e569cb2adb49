"""Metrics: every name of the contract, declared once, with its labels and who exports it.

Rooms import the metric objects below; none makes its own. A process exports only the metrics
of the rooms it runs (`export_for`), so that a gauge read from the database has one exporter,
the relay. Known label values are created at start: zeros are exported, and an alert on a rate
sees the first event. Labels never hold a job, an owner or a URL.
"""

import platform
from collections.abc import Iterable

from shared.domain.edges import Event
from shared.domain.hints import HintKind
from shared.domain.provider import ProviderState
from shared.domain.stages import ErrorCode, Stage
from shared.kit.exporting import (
    ENDPOINTS,
    PROVIDERS,
    counter,
    create_zeros,
    exposition,
    gauge,
    histogram,
    register_for,
)

__all__ = ["export_for", "export_zeros", "exposition"]

ROOMS = ("gateway", "relay", "submitter", "reconciler", "archiver", "webhook")
CONSUMERS = ("submitter", "reconciler", "archiver", "webhook")
FINISHERS = ("gateway", "submitter", "reconciler", "archiver")

NO_CODE = "none"
"""The `code` of a job that ended without an error."""

OTHER_PROVIDER = "other"
"""The `provider` of a delivery that names none of ours."""

_RELAY = ("relay",)
# Ended jobs are counted as they end (`jobs_finished`): counting their rows would cost more with
# every job there ever was, and a zero that nobody refreshes would be a lie.
_STAGES = {"stage": tuple(stage for stage in Stage if not stage.is_terminal)}
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LONG = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600)
_SLACK = (0, 5, 10, 30, 60, 120, 300, 600, 900, 1200, 1500, 1800, 3600, 21600, 86400)

# ---- the table, read from the database (relay alone)
jobs = gauge("coatcheck_jobs", "Jobs by stage", _RELAY, _STAGES)
job_oldest_age_seconds = gauge(
    "coatcheck_job_oldest_age_seconds", "Age of the oldest job of a stage", _RELAY, _STAGES
)
submissions_unknown = gauge(
    "coatcheck_submissions_unknown", "Paid calls whose outcome is not known", _RELAY
)
cost_at_risk_usd = gauge(
    "coatcheck_cost_at_risk_usd", "Money that may be spent on jobs nobody holds", _RELAY
)
budget_reserved_usd = gauge("coatcheck_budget_reserved_usd", "Money reserved", _RELAY)
outbox_pending = gauge("coatcheck_outbox_pending", "Outbox rows not yet published", _RELAY)
outbox_oldest_age_seconds = gauge(
    "coatcheck_outbox_oldest_age_seconds", "Age of the oldest outbox row", _RELAY
)
provider_breaker_open = gauge(
    "coatcheck_provider_breaker_open",
    "1 while the endpoint's breaker is open",
    _RELAY,
    {"endpoint": ENDPOINTS},
)
capture_min_slack_seconds = gauge(
    "coatcheck_capture_min_slack_seconds",
    "Least time left before a provider forgets a result; +Inf without such a job",
    _RELAY,
)
capture_min_slack_ratio = gauge(
    "coatcheck_capture_min_slack_ratio",
    "The same as a share of the retention; 1 without such a job",
    _RELAY,
)
stored_bytes = gauge(
    "coatcheck_stored_bytes",
    "Bytes of stored artifacts",
    _RELAY,
    {"retention": ()},
)
submission_epoch_mismatch = gauge(
    "coatcheck_submission_epoch_mismatch", "1 while claims are stopped after a restore", _RELAY
)
paid_calls_per_claim_max = gauge(
    "coatcheck_paid_calls_per_claim_max", "Most paid calls seen for one claim", ("submitter",)
)

# ---- money and ends
jobs_finished = counter(
    "coatcheck_jobs_finished_total",
    "Jobs that ended; code none without an error",
    FINISHERS,
    {"endpoint": ENDPOINTS, "status": ("succeeded", "cancelled"), "code": (NO_CODE,)},
    {"endpoint": ENDPOINTS, "status": ("failed",), "code": tuple(ErrorCode)},
)
cost_usd = counter("coatcheck_cost_usd_total", "Settled cost", FINISHERS, {"endpoint": ENDPOINTS})
verdicts = counter(
    "coatcheck_verdicts_total",
    "Verdicts on stored results",
    ("gateway",),
    {"endpoint": ENDPOINTS, "verdict": ("accepted", "rejected")},
)
paid_twice_suspected = counter(
    "coatcheck_paid_twice_suspected_total", "Jobs with a second provider id", ROOMS
)
refusal_contradicted = counter(
    "coatcheck_refusal_contradicted_total", "Refusals that in truth created a job", ROOMS
)

# ---- HTTP
http_requests = counter(
    "coatcheck_http_requests_total",
    "Requests answered",
    ("gateway", "webhook"),
    labels=("room", "route", "status"),
)
http_request_duration_seconds = histogram(
    "coatcheck_http_request_duration_seconds",
    "Time from request to the end of the answer",
    ("gateway", "webhook"),
    _FAST,
    labels=("room", "route"),
)

# ---- submitter, relay, reconciler
submit_attempts = counter(
    "coatcheck_submit_attempts_total",
    "Paid create calls by outcome",
    ("submitter",),
    {"provider": PROVIDERS, "outcome": ("accepted", "no_job", "ambiguous")},
)
relay_published = counter(
    "coatcheck_relay_published_total",
    "Outbox rows sent",
    _RELAY,
    {
        "topic": tuple(kind.topic for kind in HintKind),
        "result": ("published", "failed"),
    },
)
checks = counter(
    "coatcheck_checks_total",
    "Status checks by what the provider said",
    ("reconciler",),
    {"provider": PROVIDERS, "class": tuple(ProviderState)},
)
check_lag_seconds = histogram(
    "coatcheck_check_lag_seconds", "Delay of a check past its due time", ("reconciler",), _LONG
)
provider_throttled = counter(
    "coatcheck_provider_throttled_total",
    "Calls that a provider or our own rate bucket held back",
    ("submitter", "reconciler", "archiver"),
    {"provider": PROVIDERS, "operation": ("create", "status", "cancel", "health")},
)
provider_unrecognised = counter(
    "coatcheck_provider_unrecognised_total",
    "Status answers with a state that is not understood",
    ("reconciler",),
    {"provider": PROVIDERS},
)

# ---- capture
capture_attempts = counter(
    "coatcheck_capture_attempts_total",
    "Capture leases by how they ended",
    ("archiver",),
    {"result": ("stored", "adopted", "retried", "lease_lost", "refused", "lost")},
)
capture_slack_seconds = histogram(
    "coatcheck_capture_slack_seconds",
    "Time left before the deadline when a capture ended",
    ("archiver",),
    _SLACK,
)
capture_deadline_missed = counter(
    "coatcheck_capture_deadline_missed_total", "Captures past their deadline", ("archiver",)
)
capture_rendered_bytes = counter(
    "coatcheck_capture_rendered_bytes_total", "Bytes that providers announced", ("archiver",)
)
capture_downloaded_bytes = counter(
    "coatcheck_capture_downloaded_bytes_total", "Bytes read from providers", ("archiver",)
)
capture_stored_bytes = counter(
    "coatcheck_capture_stored_bytes_total", "Bytes of published artifacts", ("archiver",)
)
fetch_blocked = counter(
    "coatcheck_fetch_blocked_total",
    "Fetches refused by a rule",
    ("archiver",),
    labels=("reason",),
)

# ---- times of a job
queue_wait_seconds = histogram(
    "coatcheck_queue_wait_seconds", "Time waited at the provider", ("reconciler",), _LONG
)
render_seconds = histogram(
    "coatcheck_render_seconds", "Time of work at the provider", ("reconciler",), _LONG
)
transfer_seconds = histogram(
    "coatcheck_transfer_seconds", "Time of copying a job's artifacts", ("archiver",), _LONG
)
job_wall_seconds = histogram(
    "coatcheck_job_wall_seconds", "Time from request to end", FINISHERS, _LONG
)

# ---- fences, webhooks, letters, loops
lease_lost = counter(
    "coatcheck_lease_lost_total",
    "Leases that ended before their holder was done",
    ("reconciler", "archiver"),
    {"stage": ("accepted", "review", "unknown", "capturing")},
)
fence_rejected = counter(
    "coatcheck_fence_rejected_total",
    "Writes refused because stage or token had changed",
    ROOMS,
    {"event": tuple(Event)},
)
webhooks = counter(
    "coatcheck_webhooks_total",
    "Deliveries received",
    ("webhook",),
    {
        "provider": (*PROVIDERS, OTHER_PROVIDER),
        "result": (
            *("recorded", "duplicate", "terminal", "orphan", "bad_token"),
            *("spooled", "unavailable"),
        ),
    },
)
orphan_callbacks = counter(
    "coatcheck_orphan_callbacks_total", "Authentic callbacks without a job", ("webhook",)
)
dead_letters = counter(
    "coatcheck_dead_letters_total",
    "Messages parked",
    CONSUMERS,
    {"topic": (*tuple(kind.topic for kind in HintKind), "coatcheck.callbacks.v1")},
)
loop_last_beat_timestamp_seconds = gauge(
    "coatcheck_loop_last_beat_timestamp_seconds",
    "When a loop last gave a sign of life",
    ROOMS,
    labels=("loop",),
)
build_info = gauge(
    "coatcheck_build_info", "1, with the version", ROOMS, labels=("version", "python")
)


def export_for(rooms: Iterable[str], version: str) -> None:
    """Registers the metrics of these rooms, with all zeros that need no registry."""
    register_for(rooms)
    create_zeros()
    # Without a job there is no slack to be short of: a zero would raise the alarm.
    capture_min_slack_seconds.set(float("inf"))
    capture_min_slack_ratio.set(1)
    build_info.labels(version, platform.python_version()).set(1)


def export_zeros(
    *,
    endpoints: Iterable[str] = (),
    providers: Iterable[str] = (),
    fetch_reasons: Iterable[str] = (),
) -> None:
    """Creates the label sets of these names; a room calls it once its registry was read."""
    create_zeros(endpoints=endpoints, providers=providers)
    for reason in fetch_reasons:
        fetch_blocked.labels(reason)
