"""The relay as a process: with a broker, without one, and with its database away."""

import signal
from pathlib import Path

from shared.kit.bus import Topic
from shared.store.pool import Database
from tests.store import rows
from tests.system.postgres_gate import PostgresGate
from tests.system.relay.parts import drained, sent
from tests.system.room_process import started


async def test_it_carries_hints_and_shows_the_tables(
    database: Database, database_url: str, kafka_bootstrap: str, tmp_path: Path
) -> None:
    settings = {"DATABASE_URL": database_url, "KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap}
    job = await rows.requested(database)
    async with started("relay", tmp_path / "log", **settings) as room:
        await room.is_ready()
        await drained(database)
        metrics = await room.metrics()
        assert metrics['coatcheck_jobs{stage="unsubmitted"}'] == 1
        assert metrics['coatcheck_jobs{stage="review"}'] == 0
        published = 'coatcheck_relay_published_total{result="published",topic="%s"}'
        assert metrics[published % Topic.capture] == 0
        assert await room.ended(signal.SIGTERM) == 0
        assert room.log("hints_are_not_sent") == []
    assert len(await sent(kafka_bootstrap, Topic.submit, {job.id})) == 1


async def test_without_a_broker_it_says_so_loudly_and_is_ready(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    await rows.requested(database)
    async with started("relay", tmp_path / "log", DATABASE_URL=database_url) as room:
        await room.is_ready()
        await drained(database)
        (line,) = room.log("hints_are_not_sent")
        assert line["level"] == "error"
        assert await room.ended(signal.SIGTERM) == 0


async def test_a_broker_that_is_down_leaves_it_unready_alive_and_its_rows_in_place(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    settings = {"DATABASE_URL": database_url, "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9"}
    async with (
        PostgresGate(database_url).listening() as gate,
        started("relay", tmp_path / "log", **{**settings, "DATABASE_URL": gate.url}) as room,
    ):
        await room.is_ready(False)
        gate.shut()
        await gate.knocked.wait()
        answer = await room.get("/livez")
        assert answer is not None
        assert answer.status_code == 200
        gate.reopen()
        assert await room.ended(signal.SIGTERM) == 0
        assert [entry["part"] for entry in room.log("part_lost")].count("relay: Kafka") == 1
