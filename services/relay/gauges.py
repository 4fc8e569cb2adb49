"""What the tables say, as gauges: every number that an alert must see while other rooms are down.

The relay alone exports them. Promises that a stage without jobs shows 0 and that no reading
grows with the number of finished jobs. Must never write.
"""

from math import inf

from shared.domain.durations import TimeScale
from shared.domain.stages import Stage
from shared.kit import telemetry
from shared.kit.loops import Pulse
from shared.store.outbox import outbox_figures
from shared.store.pool import Database
from shared.store.queries import StageFigures, least_slack, live_epoch, open_stages

OPEN_STAGES = tuple(stage for stage in Stage if not stage.is_terminal)
AT_RISK = (Stage.unknown, Stage.review)
EMPTY = StageFigures("", 0, 0.0, 0.0)


class GaugeReader:
    """Reads everything once per pass of its sweep."""

    def __init__(self, database: Database, scale: TimeScale) -> None:
        self._database = database
        self._scale = scale

    async def read_once(self, _: Pulse) -> bool:
        """Refreshes every gauge. Raises Unavailable; the last values then stand."""
        await self._read_stages()
        slack = await least_slack(self._database, self._scale)
        seconds, ratio = (inf, 1.0) if slack is None else (slack[0].total_seconds(), slack[1])
        telemetry.capture_min_slack_seconds.set(seconds)
        telemetry.capture_min_slack_ratio.set(ratio)
        outbox = await outbox_figures(self._database)
        telemetry.outbox_pending.set(outbox.pending)
        telemetry.outbox_oldest_age_seconds.set(outbox.oldest_seconds)
        is_stopped = await live_epoch(self._database) is None
        telemetry.submission_epoch_mismatch.set(1 if is_stopped else 0)
        return False

    async def _read_stages(self) -> None:
        by_stage = {figures.stage: figures for figures in await open_stages(self._database)}
        for stage in OPEN_STAGES:
            figures = by_stage.get(stage.value, EMPTY)
            telemetry.jobs.labels(stage=stage.value).set(figures.jobs)
            telemetry.job_oldest_age_seconds.labels(stage=stage.value).set(figures.oldest_seconds)
        telemetry.submissions_unknown.set(by_stage.get(Stage.unknown.value, EMPTY).jobs)
        at_risk = (by_stage.get(stage.value, EMPTY).estimated_usd for stage in AT_RISK)
        telemetry.cost_at_risk_usd.set(sum(at_risk))
