"""Outbox, API keys and dead letters."""

from datetime import timedelta
from uuid import uuid4

from shared.domain.durations import TimeScale
from shared.kit.bus import ParkedMessage
from shared.store import dead_letters, keys, outbox, queries
from shared.store.pool import Database
from tests.store import rows
from tests.store.rows import HOUR, NOW


async def test_outbox_rows_are_claimed_once_settled_once_and_freed_by_time(
    database: Database,
) -> None:
    await rows.requested(database)
    token = uuid4()
    claimed = await outbox.outbox_claimed(database, token=token, limit=10, life=HOUR)
    assert len(claimed) == 2
    assert await outbox.outbox_claimed(database, token=uuid4(), limit=10, life=HOUR) == []
    ids = [row.id for row in claimed]
    await outbox.outbox_settled(database, token=uuid4(), ids=ids)  # a stranger settles nothing
    assert (await outbox.outbox_figures(database)).pending == 2
    await outbox.outbox_settled(database, token=token, ids=ids[:1])
    await outbox.outbox_released(database, token=token, ids=ids[1:], delay=NOW)
    (again,) = await outbox.outbox_claimed(database, token=uuid4(), limit=10, life=NOW)
    assert again.id == ids[1]
    (after_its_life,) = await outbox.outbox_claimed(database, token=uuid4(), limit=10, life=HOUR)
    assert after_its_life.id == ids[1]
    figures = await outbox.outbox_figures(database)
    assert figures.pending == 1
    assert figures.oldest_seconds > 0


async def test_a_key_is_found_by_its_text_only_while_it_is_valid(database: Database) -> None:
    new = await keys.key_created(database, "acme", scopes=["jobs:read"])
    found = await keys.key_found(database, new.key)
    assert found == keys.KnownKey(new.id, "acme", frozenset({"jobs:read"}))
    await keys.key_used(database, new.id)
    (entry,) = await keys.keys_listed(database, "acme")
    assert entry.last_used_at is not None
    assert await keys.key_revoked(database, new.id)
    assert not await keys.key_revoked(database, new.id)
    assert await keys.key_found(database, new.key) is None
    old = await keys.key_created(database, "acme", life=timedelta(0))
    assert await keys.key_found(database, old.key) is None


def test_a_mistyped_key_is_refused_without_the_database() -> None:
    key = keys.new_secret()
    assert keys.is_well_formed(key)
    swapped = key[:10] + ("A" if key[10] != "A" else "B") + key[11:]
    for bad in ("", "cck_", swapped, key + "0", key.replace("cck_", "sk_"), "cck_" + "é" * 49):
        assert not keys.is_well_formed(bad)


async def test_the_database_holds_no_key(database: Database) -> None:
    new = await keys.key_created(database, "acme")
    async with database.connection() as connection:
        text = await connection.fetchval("SELECT api_keys::text FROM api_keys")
    assert new.key not in text


async def test_a_dead_letter_is_kept_once_and_capped(database: Database) -> None:
    async def park() -> bool:
        return await dead_letters.dead_letter_parked(
            database, ParkedMessage("coatcheck.submit.v1", 0, 7, "not a hint", None, b"x" * 100_000)
        )

    assert await park()
    assert not await park()
    (letter,) = await dead_letters.dead_letters_listed(database, limit=10)
    assert letter.value is not None
    assert len(letter.value) == dead_letters.MOST_KEPT_BYTES
    await dead_letters.dead_letter_replayed(database, letter.id)
    found = await dead_letters.dead_letter_found(database, letter.id)
    assert found is not None
    assert found.replayed_at is not None
    assert await dead_letters.dead_letter_found(database, 10_000) is None


async def test_reads_of_operators_and_sweeps(database: Database) -> None:
    job = await rows.requested(database)
    assert await queries.buyable_endpoints(database) == [rows.ENDPOINT]
    pinned = await queries.pinned_endpoint(database, job.endpoint_revision)
    assert pinned.retention_s == 1800
    (figures,) = await queries.open_stages(database)
    assert (figures.stage, figures.jobs) == ("unsubmitted", 1)
    assert await queries.least_slack(database, TimeScale()) is None
    assert await queries.live_epoch(database) == 1
    assert [entry["raised_by"] for entry in await queries.epochs(database)] == ["tests"]
    assert [j.id for j in await queries.latest_jobs(database, owner_id=None, stage=None, limit=5)]
    assert await queries.any_job(database, uuid4()) is None
