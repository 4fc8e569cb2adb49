"""Puts the archiver together: bucket, database, registry, providers, and its two mouths.

A hint wakes the sweep; both end in the same lease of due captures. The start refuses a bucket
that answers strangers: what is put there would be public.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from services.archiver.attempt import Attempter
from services.archiver.capturing import Archiver
from services.archiver.copying import Copier, FetchTerms
from services.archiver.problems import Judge
from services.archiver.settings import ArchiverSettings
from services.archiver.settling import Settler
from shared.domain.errors import Refused
from shared.domain.hints import Hint
from shared.domain.registry import Registry
from shared.kit.bus import HintLoop, Topic
from shared.kit.fetch import Verdict, is_counted_as_blocked, private_targets
from shared.kit.http import HttpTransport
from shared.kit.parallel import ParallelSweep
from shared.kit.registry import load_registry
from shared.kit.service import Loop, Room, RoomContext
from shared.media.objects import ObjectStore, open_object_store
from shared.providers.opening import OpenProvider, open_providers
from shared.store.dead_letters import dead_letter_parked
from shared.store.pool import Database, open_database

LEAST_SWEEP_SECONDS = 0.25
GROUP = "coatcheck-archiver"
PROBE_KEY = "results/none"


@asynccontextmanager
async def open_archiver(context: RoomContext[ArchiverSettings]) -> AsyncIterator[Sequence[Loop]]:
    """The archiver's loops around its open parts. Raises Unavailable, Refused."""
    settings, scale = context.settings, context.scale
    registry = load_registry(settings.endpoints_file)
    providers = open_providers(registry, HttpTransport(scale))
    context.metrics.export_zeros(
        endpoints=registry.endpoints,
        providers=providers,
        fetch_reasons=[item.value for item in Verdict if is_counted_as_blocked(item)],
    )
    url = settings.database_url.get_secret_value()
    async with (
        open_object_store(settings) as store,
        open_database(url, room=context.name, wait_seconds=0) as database,
    ):
        if not await store.is_private():
            raise Refused("COATCHECK_S3_BUCKET answers unsigned requests; it must be private")

        async def is_bucket_there() -> bool:
            await store.head(PROBE_KEY)
            return True

        context.readiness.add("postgres", database.is_reachable)
        context.readiness.add("bucket", is_bucket_there)
        yield _loops(context, _archiver(context, database, store, registry, providers), database)


def _loops(
    context: RoomContext[ArchiverSettings], archiver: Archiver, database: Database
) -> list[Loop]:
    settings = context.settings
    wake = asyncio.Event()

    async def take(_: Hint) -> None:
        wake.set()

    idle_seconds = context.scale.seconds(settings.archiver_sweep_seconds)
    return [
        ParallelSweep(
            "archiver.captures",
            archiver.lease,
            parallel=settings.archiver_parallel_transfers,
            idle_seconds=max(LEAST_SWEEP_SECONDS, idle_seconds),
            wake=wake,
        ),
        HintLoop(
            settings,
            Topic.capture,
            GROUP,
            take,
            partial(dead_letter_parked, database),
            name="archiver.hints",
        ),
    ]


def _archiver(
    context: RoomContext[ArchiverSettings],
    database: Database,
    store: ObjectStore,
    registry: Registry,
    providers: Mapping[str, OpenProvider],
) -> Archiver:
    settings, scale = context.settings, context.scale
    allowed = private_targets(settings.fetch_allow_private)
    terms = FetchTerms(scale, allowed, settings.archiver_transfer_seconds)
    copier = Copier(database, store, terms)
    return Archiver(
        database,
        Attempter(database, store, copier, providers, registry, allowed),
        Settler(database, store, registry, settings, Judge(scale)),
        scale,
        holder=f"{context.name}@{socket.gethostname()}:{os.getpid()}",
    )


ROOM = Room(name="archiver", settings_type=ArchiverSettings, open=open_archiver)
