"""Metrics: every name of the contract with its labels, zeros shown, each room its own.

The table below is the contract's list, written out a second time on purpose.
"""

import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shared.domain.stages import Stage
from shared.kit import telemetry
from shared.kit.exporting import DECLARED

CONTRACT = {
    "coatcheck_jobs": {"stage"},
    "coatcheck_job_oldest_age_seconds": {"stage"},
    "coatcheck_submissions_unknown": set(),
    "coatcheck_cost_at_risk_usd": set(),
    "coatcheck_jobs_finished_total": {"endpoint", "status", "code"},
    "coatcheck_http_requests_total": {"room", "route", "status"},
    "coatcheck_http_request_duration_seconds": {"room", "route"},
    "coatcheck_submit_attempts_total": {"provider", "outcome"},
    "coatcheck_paid_calls_per_claim_max": set(),
    "coatcheck_paid_twice_suspected_total": set(),
    "coatcheck_refusal_contradicted_total": set(),
    "coatcheck_outbox_pending": set(),
    "coatcheck_outbox_oldest_age_seconds": set(),
    "coatcheck_relay_published_total": {"topic", "result"},
    "coatcheck_checks_total": {"provider", "class"},
    "coatcheck_check_lag_seconds": set(),
    "coatcheck_provider_throttled_total": {"provider", "operation"},
    "coatcheck_provider_breaker_open": {"endpoint"},
    "coatcheck_capture_attempts_total": {"result"},
    "coatcheck_capture_slack_seconds": set(),
    "coatcheck_capture_min_slack_seconds": set(),
    "coatcheck_capture_min_slack_ratio": set(),
    "coatcheck_capture_deadline_missed_total": set(),
    "coatcheck_capture_rendered_bytes_total": set(),
    "coatcheck_capture_downloaded_bytes_total": set(),
    "coatcheck_capture_stored_bytes_total": set(),
    "coatcheck_stored_bytes": {"retention"},
    "coatcheck_queue_wait_seconds": set(),
    "coatcheck_render_seconds": set(),
    "coatcheck_transfer_seconds": set(),
    "coatcheck_job_wall_seconds": set(),
    "coatcheck_lease_lost_total": {"stage"},
    "coatcheck_fence_rejected_total": {"event"},
    "coatcheck_fetch_blocked_total": {"reason"},
    "coatcheck_webhooks_total": {"provider", "result"},
    "coatcheck_orphan_callbacks_total": set(),
    "coatcheck_provider_unrecognised_total": {"provider"},
    "coatcheck_dead_letters_total": {"topic"},
    "coatcheck_loop_last_beat_timestamp_seconds": {"loop"},
    "coatcheck_budget_reserved_usd": set(),
    "coatcheck_cost_usd_total": {"endpoint"},
    "coatcheck_verdicts_total": {"endpoint", "verdict"},
    "coatcheck_build_info": {"version", "python"},
    "coatcheck_submission_epoch_mismatch": set(),
}
HISTOGRAMS = {
    "coatcheck_http_request_duration_seconds",
    "coatcheck_check_lag_seconds",
    "coatcheck_capture_slack_seconds",
    "coatcheck_queue_wait_seconds",
    "coatcheck_render_seconds",
    "coatcheck_transfer_seconds",
    "coatcheck_job_wall_seconds",
}
RELAY_ALONE = {
    "coatcheck_jobs",
    "coatcheck_job_oldest_age_seconds",
    "coatcheck_submissions_unknown",
    "coatcheck_cost_at_risk_usd",
    "coatcheck_outbox_pending",
    "coatcheck_outbox_oldest_age_seconds",
    "coatcheck_provider_breaker_open",
    "coatcheck_capture_min_slack_seconds",
    "coatcheck_capture_min_slack_ratio",
    "coatcheck_stored_bytes",
    "coatcheck_budget_reserved_usd",
    "coatcheck_submission_epoch_mismatch",
}
SHOW = """
from shared.kit import telemetry
telemetry.export_for({rooms!r}, "1.2.3")
telemetry.export_zeros(
    endpoints=["demo-video"], providers=["runpod"], fetch_reasons=["private_address"]
)
print(telemetry.exposition()[0].decode())
"""

Samples = dict[str, list[tuple[dict[str, str], float]]]


def _shown_by(*rooms: str) -> Samples:
    """Every sample that a fresh process of these rooms exports."""
    code = SHOW.format(rooms=rooms)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    samples: Samples = {}
    for family in text_string_to_metric_families(done.stdout):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


@pytest.fixture(scope="module")
def everything() -> Samples:
    return _shown_by(*telemetry.ROOMS)


def test_the_declared_names_are_exactly_those_of_the_contract() -> None:
    assert set(DECLARED) == set(CONTRACT)


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_every_metric_has_the_labels_of_the_contract(name: str) -> None:
    metric = DECLARED[name].metric
    assert set(metric._labelnames) == CONTRACT[name]
    assert (metric._type == "histogram") == (name in HISTOGRAMS)
    assert (metric._type == "counter") == name.endswith("_total")


LEARNT_LATER = {
    "coatcheck_stored_bytes",
    "coatcheck_http_requests_total",
    "coatcheck_http_request_duration_seconds",
    "coatcheck_loop_last_beat_timestamp_seconds",
}


@pytest.mark.parametrize("name", sorted(set(CONTRACT) - LEARNT_LATER))
def test_every_known_label_set_is_exported_before_anything_happened(
    everything: Samples, name: str
) -> None:
    shown = everything[f"{name}_count" if name in HISTOGRAMS else name]
    assert shown
    for labels, value in shown:
        assert set(labels) == CONTRACT[name]
        if name == "coatcheck_capture_min_slack_seconds":
            assert value == float("inf")
        elif name in ("coatcheck_capture_min_slack_ratio", "coatcheck_build_info"):
            assert value == 1
        else:
            assert value == 0


def test_known_values_stand_there_in_full(everything: Samples) -> None:
    def values(name: str, label: str) -> set[str]:
        return {labels[label] for labels, _ in everything[name]}

    states = "queued running completed failed cancelled timed_out gone unrecognised retry_later"
    assert values("coatcheck_checks_total", "class") == set(states.split())
    assert values("coatcheck_submit_attempts_total", "outcome") == {
        "accepted",
        "no_job",
        "ambiguous",
    }
    captures = "stored adopted retried lease_lost refused lost"
    assert values("coatcheck_capture_attempts_total", "result") == set(captures.split())
    results = "recorded duplicate terminal orphan bad_token spooled unavailable"
    assert values("coatcheck_webhooks_total", "result") == set(results.split())
    assert values("coatcheck_webhooks_total", "provider") == {"runpod", "other"}
    open_stages = {stage.value for stage in Stage if not stage.is_terminal}
    assert values("coatcheck_jobs", "stage") == open_stages
    assert len(values("coatcheck_relay_published_total", "topic")) == 4
    assert "coatcheck.callbacks.v1" in values("coatcheck_dead_letters_total", "topic")


def test_no_stand_in_is_ever_exported(everything: Samples) -> None:
    assert not any(
        value.startswith("<")
        for shown in everything.values()
        for labels, _ in shown
        for value in labels.values()
    )


@pytest.mark.parametrize("room", [room for room in telemetry.ROOMS if room != "relay"])
def test_gauges_of_the_database_are_the_relays_alone(room: str) -> None:
    shown = _shown_by(room)
    assert not RELAY_ALONE & set(shown)
    assert "process_resident_memory_bytes" in shown
    assert shown["coatcheck_build_info"][0][0]["version"] == "1.2.3"


def test_other_capture_metrics_are_the_archivers() -> None:
    captures = {name for name in CONTRACT if name.startswith("coatcheck_capture_")} - RELAY_ALONE
    shown = {name.removesuffix("_count") for name in _shown_by("archiver")}
    assert captures <= shown
    assert not captures & {name.removesuffix("_count") for name in _shown_by("relay")}


def test_exporting_twice_is_harmless() -> None:
    telemetry.export_for(["relay"], "1")
    telemetry.export_for(["relay", "gateway"], "1")
    body, content_type = telemetry.exposition()
    assert body.count(b"# TYPE coatcheck_jobs gauge") == 1
    assert content_type.startswith("text/plain; version=0.0.4")
