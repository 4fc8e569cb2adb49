"""Puts the submitter together: registry, clients, database, two mouths and the sweeps.

The order of the loops' ends at a stop does not matter: slots are taken before a claim, so the
calls' loop outlives every mouth that may still start one.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from services.submitter.calling import CallTools
from services.submitter.claiming import Claimer
from services.submitter.deadman import DeadMansTimer
from services.submitter.flight import FlightLoop
from services.submitter.housekeeping import Housekeeping
from services.submitter.rests import EndpointRests
from services.submitter.routes import Routes, open_routes
from services.submitter.settings import SubmitterSettings
from services.submitter.slots import Slots
from services.submitter.webhooks import WebhookAddresses
from services.submitter.writing import PatientWriter
from shared.domain.durations import TimeScale
from shared.domain.webhook_token import WebhookKeys
from shared.kit import telemetry
from shared.kit.bus import HintLoop, Topic
from shared.kit.http import HttpTransport
from shared.kit.loops import Backoff, SweepLoop
from shared.kit.registry import load_registry
from shared.kit.service import Loop, Room, RoomContext
from shared.kit.settings import KafkaSettings
from shared.store.dead_letters import dead_letter_parked
from shared.store.pool import Database, open_database

MOST_CALLS = 16
CONNECTIONS = 8
SWEEP_SECONDS = 1.5
LEAST_SWEEP_SECONDS = 0.25
WAITING_SWEEP_SECONDS = 30.0
LEAST_WAITING_SWEEP_SECONDS = 1.0
GROUP = "coatcheck-submitter"
AWAY = Backoff(2.0, 10.0)
"""How the sweeps knock at a database that is away: all together well under twice a second."""


@asynccontextmanager
async def open_submitter(context: RoomContext[SubmitterSettings]) -> AsyncIterator[Sequence[Loop]]:
    """The loops around their open parts. Raises Refused, SettingsInvalid, Unavailable."""
    settings, scale = context.settings, context.scale
    routes = open_routes(load_registry(settings.endpoints_file), HttpTransport(scale))
    telemetry.export_zeros(
        endpoints=[route.spec.name for route in routes],
        providers=sorted({route.spec.provider for route in routes}),
    )
    url = settings.database_url.get_secret_value()
    async with open_database(
        url, room="submitter", max_size=CONNECTIONS, wait_seconds=0
    ) as database:
        context.readiness.add("postgres", database.is_reachable)
        slots = Slots(MOST_CALLS, context.stopping)
        rests = EndpointRests(Backoff(scale.seconds(1.0), scale.seconds(10.0)))
        tools = CallTools(
            database=database,
            writer=PatientWriter(),
            watch=DeadMansTimer(),
            webhooks=_webhooks(settings),
            rests=rests,
            scale=scale,
        )
        flight = FlightLoop(slots, tools)
        claimer = Claimer(database, routes, slots, rests, flight, scale)
        yield [flight, *_loops(settings, database, claimer, slots, routes, scale)]


def _loops(
    settings: SubmitterSettings,
    database: Database,
    claimer: Claimer,
    slots: Slots,
    routes: Routes,
    scale: TimeScale,
) -> list[Loop]:
    housekeeping = Housekeeping(database, routes, scale)
    return [
        hint_loop(settings, database, claimer),
        SweepLoop(
            "submitter.sweep",
            claimer.sweep_once,
            idle_seconds=max(LEAST_SWEEP_SECONDS, scale.seconds(SWEEP_SECONDS)),
            wake=slots.freed,
            backoff=AWAY,
        ),
        SweepLoop(
            "submitter.expiry",
            housekeeping.expire_claims,
            # Thrice within the bound, so that one failed pass is no breach of it.
            idle_seconds=scale.claim_sweep_seconds / 3,
            backoff=AWAY,
        ),
        SweepLoop(
            "submitter.waiting",
            housekeeping.end_waiting,
            idle_seconds=max(LEAST_WAITING_SWEEP_SECONDS, scale.seconds(WAITING_SWEEP_SECONDS)),
            backoff=AWAY,
        ),
    ]


def hint_loop(
    settings: KafkaSettings, database: Database, claimer: Claimer, group: str = GROUP
) -> HintLoop:
    """The first mouth: hints about jobs to be bought; what cannot be read is parked."""

    return HintLoop(
        settings,
        Topic.submit,
        group,
        claimer.take_hint,
        partial(dead_letter_parked, database),
        name="submitter.hints",
    )


def _webhooks(settings: SubmitterSettings) -> WebhookAddresses:
    if settings.webhook_origin is None or settings.webhook_keys is None:
        return WebhookAddresses()
    keys = WebhookKeys.parse(settings.webhook_keys.get_secret_value())
    return WebhookAddresses(settings.webhook_origin, keys)


ROOM = Room(name="submitter", settings_type=SubmitterSettings, open=open_submitter)
