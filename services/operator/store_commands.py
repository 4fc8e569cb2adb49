"""Commands on the database: migrations, keys, jobs, epochs.

Owns what each of them reads or asks of the store, and the shape of its JSON. Promises that a
key is shown once, when it is made. Must never write SQL of its own.
"""

import argparse
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from services.operator.showing import plain, show_fields, show_json, show_table
from services.operator.sources import Sources
from shared.domain.errors import Refused
from shared.store.keys import SCOPES, key_created, key_revoked, keys_listed
from shared.store.migrate import migrate
from shared.store.pool import Database, open_database
from shared.store.queries import any_job, claims_of, epochs, latest_jobs, live_epoch, timeline

CONNECT_SECONDS = 5.0
_LIFE = re.compile(r"^([1-9][0-9]{0,5})([smhdw])$")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


async def on_database(sources: Sources, work: Callable[[Database], Awaitable[Any]]) -> Any:
    """Run the work on an open database."""
    async with open_database(
        sources.database_url, room="operator", max_size=2, wait_seconds=CONNECT_SECONDS
    ) as database:
        return await work(database)


async def migrate_command(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck migrate`."""
    applied = await migrate(sources.database_url, actor="coatcheck migrate")
    if options.json:
        show_json({"applied": applied})
    else:
        print("\n".join(f"applied {name}" for name in applied) or "nothing to apply")
    return 0


async def keys_create(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck keys create`: the only time the key is shown."""

    async def work(database: Database) -> Any:
        return await key_created(
            database, options.owner, scopes=options.scope, life=options.expires
        )

    new = await on_database(sources, work)
    if options.json:
        show_json({"id": new.id, "key": new.key, "owner": new.owner})
    else:
        show_fields({"id": new.id, "owner": new.owner, "key": new.key})
        print("This is the only time the key is shown.")
    return 0


async def keys_list(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck keys list`."""
    rows = plain(await on_database(sources, lambda database: keys_listed(database, options.owner)))
    columns = ("id", "owner_id", "scopes", "created_at", "expires_at", "revoked_at", "last_used_at")
    _show_rows("keys", rows, columns, options)
    return 0


async def keys_revoke(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck keys revoke ID`."""
    if not await on_database(sources, lambda database: key_revoked(database, options.id)):
        raise Refused(f"there is no valid key {options.id}")
    if options.json:
        show_json({"id": options.id, "revoked": True})
    else:
        print(f"{options.id} is revoked")
    return 0


async def jobs_list(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck jobs list`."""

    async def work(database: Database) -> Any:
        return await latest_jobs(
            database, owner_id=options.owner, stage=options.stage, limit=options.limit
        )

    rows = plain(await on_database(sources, work))
    _show_rows("jobs", rows, ("id", "stage", "endpoint", "owner_id", "created_at"), options)
    return 0


async def jobs_show(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck jobs show ID`: the row and its claims."""

    async def work(database: Database) -> Any:
        job = await any_job(database, options.id)
        return job, await claims_of(database, options.id)

    job, claims = await on_database(sources, work)
    if job is None:
        raise Refused(f"there is no job {options.id}")
    if options.json:
        show_json({**plain(job), "claims": claims})
    else:
        show_fields(plain(job))
        if claims:
            print("\nclaims")
            show_table(plain(claims), ("token", "claimed_at", "room", "outcome", "provider_job_id"))
    return 0


async def jobs_timeline(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck jobs timeline ID`: each transition with its time."""
    entries = await timeline_rows(sources, options.id)
    if options.json:
        show_json({"job": options.id, "timeline": entries})
    else:
        print("\n".join(timeline_lines(entries)))
    return 0


async def timeline_rows(sources: Sources, job_id: UUID) -> list[dict[str, Any]]:
    """The audit rows of a job as JSON values. Raises Refused where there is no such job."""
    entries: list[dict[str, Any]] = plain(
        await on_database(sources, lambda database: timeline(database, job_id))
    )
    if not entries:
        raise Refused(f"there is no job {job_id}")
    return entries


def timeline_lines(entries: list[dict[str, Any]]) -> list[str]:
    """One aligned line a transition."""
    width = max(len(entry["event"]) for entry in entries)
    return [
        f"{entry['at']}  {entry['event'].ljust(width)}  "
        f"{entry['from_stage'] or '-'} -> {entry['to_stage']}  ({entry['actor']})"
        for entry in entries
    ]


async def epoch_show(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck epoch show`: every raise, and whether this server is the one of the last."""

    async def work(database: Database) -> Any:
        return await epochs(database), await live_epoch(database)

    raises, live = await on_database(sources, work)
    if options.json:
        show_json({"live_epoch": live, "epochs": raises})
    else:
        print(f"live epoch: {live if live is not None else 'none, claims are stopped'}")
        show_table(plain(raises), ("epoch", "raised_at", "raised_by", "reason", "timeline"))
    return 0


def _show_rows(
    name: str, rows: list[dict[str, Any]], columns: tuple[str, ...], options: argparse.Namespace
) -> None:
    if options.json:
        show_json({name: rows})
    else:
        show_table(rows, columns)


def read_scopes(text: str) -> list[str]:
    """`jobs:read,jobs:write` as a list; argparse shows what is wrong."""
    scopes = [scope.strip() for scope in text.split(",") if scope.strip()]
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise argparse.ArgumentTypeError(f"scopes are {', '.join(SCOPES)}")
    return scopes


def read_life(text: str) -> timedelta:
    """`90d` as a length of time."""
    found = _LIFE.match(text)
    if found is None:
        raise argparse.ArgumentTypeError("a length of time is a number and s, m, h, d or w")
    return timedelta(seconds=int(found[1]) * _UNIT_SECONDS[found[2]])
