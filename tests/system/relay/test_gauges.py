"""What the gauges say of real tables."""

import asyncio
import math
from typing import Any

from services.relay.gauges import GaugeReader
from shared.domain.durations import TimeScale
from shared.domain.stages import Stage
from shared.kit import telemetry
from shared.kit.loops import Pulse
from shared.store.pool import Database
from tests.store import rows


async def read(database: Database, scale: float = 1.0) -> None:
    """One pass of the reader."""
    reader = GaugeReader(database, TimeScale(scale))
    assert not await reader.read_once(Pulse("gauges", 60.0, asyncio.Event()))


def value(gauge: Any, **labels: str) -> float:
    """A gauge's value."""
    child = gauge.labels(**labels) if labels else gauge
    return float(child._value.get())


async def test_an_empty_database_shows_zeros_and_no_lack_of_time(database: Database) -> None:
    await read(database)
    assert all(
        value(telemetry.jobs, stage=stage.value) == 0 for stage in Stage if not stage.is_terminal
    )
    assert value(telemetry.submissions_unknown) == 0
    assert value(telemetry.cost_at_risk_usd) == 0
    assert value(telemetry.outbox_pending) == value(telemetry.outbox_oldest_age_seconds) == 0
    assert value(telemetry.capture_min_slack_seconds) == math.inf
    assert value(telemetry.capture_min_slack_ratio) == 1
    assert value(telemetry.submission_epoch_mismatch) == 0


async def test_open_jobs_are_counted_aged_and_priced(database: Database) -> None:
    for stage in (Stage.unsubmitted, Stage.unknown, Stage.unknown, Stage.review, Stage.failed):
        await rows.placed(database, stage)
    await read(database)
    assert value(telemetry.jobs, stage="unsubmitted") == 1
    assert value(telemetry.jobs, stage="unknown") == value(telemetry.submissions_unknown) == 2
    assert value(telemetry.job_oldest_age_seconds, stage="review") > 0
    assert math.isclose(value(telemetry.cost_at_risk_usd), 0.15)
    assert value(telemetry.outbox_pending) > 0
    assert value(telemetry.outbox_oldest_age_seconds) > 0
    async with database.connection() as connection:
        await connection.execute("DELETE FROM outbox")
    await read(database)
    assert value(telemetry.outbox_pending) == 0


async def test_the_least_slack_is_scaled_like_the_retention(database: Database) -> None:
    await rows.placed(database, Stage.accepted)
    await read(database, scale=60.0)
    assert 25 < value(telemetry.capture_min_slack_seconds) <= 30
    assert 0.8 < value(telemetry.capture_min_slack_ratio) <= 1


async def test_stopped_claims_are_seen(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO submission_witness (latched_at) VALUES (clock_timestamp())"
        )
    await read(database)
    assert value(telemetry.submission_epoch_mismatch) == 1
