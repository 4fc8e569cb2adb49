"""Puts the reconciler together: database, registry, providers, and its two mouths.

A hint wakes the sweep; both end in the same lease of due rows. With Kafka away the sweep alone
carries the load, with PostgreSQL away nothing is asked, with a provider away its rows wait
behind a growing pause.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from services.reconciler.adoption import Adopter
from services.reconciler.asking import Asker
from services.reconciler.checking import CANCEL_SECONDS, Checker
from services.reconciler.pacing import Pacing
from services.reconciler.settings import ReconcilerSettings
from services.reconciler.throttle import Throttle
from shared.domain.hints import Hint
from shared.domain.registry import Registry
from shared.kit.bus import HintLoop, Topic
from shared.kit.fetch import private_targets
from shared.kit.http import HttpTransport
from shared.kit.loops import Backoff
from shared.kit.parallel import ParallelSweep
from shared.kit.registry import load_registry
from shared.kit.service import Loop, Room, RoomContext
from shared.providers.opening import OpenProvider, open_providers
from shared.store.dead_letters import dead_letter_parked
from shared.store.pool import Database, open_database

LEAST_SWEEP_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 30.0
GROUP = "coatcheck-reconciler"


@asynccontextmanager
async def open_reconciler(
    context: RoomContext[ReconcilerSettings],
) -> AsyncIterator[Sequence[Loop]]:
    """The reconciler's loops around its open parts. Raises Unavailable, Refused."""
    settings, scale = context.settings, context.scale
    registry = load_registry(settings.endpoints_file)
    providers = open_providers(registry, HttpTransport(scale))
    context.metrics.export_zeros(endpoints=registry.endpoints, providers=providers)
    url = settings.database_url.get_secret_value()
    async with open_database(url, room=context.name, wait_seconds=0) as database:
        context.readiness.add("postgres", database.is_reachable)
        wake = asyncio.Event()

        async def take(_: Hint) -> None:
            wake.set()

        yield [
            ParallelSweep(
                "reconciler.checks",
                _checker(context, database, registry, providers).lease,
                parallel=settings.reconciler_parallel_checks,
                idle_seconds=max(
                    LEAST_SWEEP_SECONDS, scale.seconds(settings.reconciler_sweep_seconds)
                ),
                wake=wake,
            ),
            HintLoop(
                settings,
                Topic.check,
                GROUP,
                take,
                partial(dead_letter_parked, database),
                name="reconciler.hints",
            ),
        ]


def _checker(
    context: RoomContext[ReconcilerSettings],
    database: Database,
    registry: Registry,
    providers: Mapping[str, OpenProvider],
) -> Checker:
    settings, scale = context.settings, context.scale
    pacing = Pacing(scale)
    longest = scale.transport_seconds(LONGEST_PAUSE_SECONDS)
    asker = Asker(
        providers,
        Throttle(Backoff(scale.seconds(1.0), longest)),
        pacing,
        cancel_seconds=scale.transport_seconds(CANCEL_SECONDS),
    )
    adopter = Adopter(
        database, asker, pacing, scale, registry, is_automatic=settings.adoption == "auto"
    )
    return Checker(
        database,
        asker,
        adopter,
        registry,
        pacing,
        scale,
        holder=f"{context.name}@{socket.gethostname()}:{os.getpid()}",
        private_targets=private_targets(settings.fetch_allow_private),
    )


ROOM = Room(name="reconciler", settings_type=ReconcilerSettings, open=open_reconciler)
