"""The one runner: how every room starts, is watched, drains and stops.

Order up: settings (printed redacted) → telemetry → the room's own parts → admin port with
`/readyz` 503 → loops → ready. Order down on SIGTERM or SIGINT: not ready → stop → loops drain
within `drain_seconds` → parts close → admin port → exit 0; a second signal exits at once.
Exit codes: 1 a loop crashed or a port is taken, 2 a setting is wrong, 3 a part stayed away
longer than `start_seconds`, 57 the database is ahead. Must never restart anything itself.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Generic, NoReturn, TypeVar

from pydantic import create_model
from structlog.contextvars import bound_contextvars

from shared.domain.durations import TimeScale
from shared.domain.errors import Refused, SchemaAhead, Unavailable
from shared.kit import telemetry
from shared.kit.admin import AdminApp, AdminRoute, HttpServerLoop, Readiness
from shared.kit.logs import configure_logs, get_logger
from shared.kit.loops import Backoff, Loop, Outage, Pulse
from shared.kit.settings import (
    CoatcheckSettings,
    Port,
    RuntimeSettings,
    SettingsInvalid,
    describe,
    load_settings,
    variable_of,
)
from shared.kit.stopping import StopSignals, log_stray_errors
from shared.kit.version import VERSION
from shared.kit.watching import Watched, all_beat, any_ended, drain, log_crashes, start_loop

__all__ = ["Loop", "Pulse", "Room", "RoomContext", "run_rooms"]

ADMIN_PORTS = {
    "gateway": 9100,
    "relay": 9101,
    "submitter": 9102,
    "reconciler": 9103,
    "archiver": 9104,
    "webhook": 9105,
}
EXIT_OK, EXIT_CRASHED, EXIT_SETTINGS, EXIT_UNAVAILABLE, EXIT_SCHEMA_AHEAD = 0, 1, 2, 3, 57
CLOSE_SECONDS = 10.0

_log = get_logger()

S = TypeVar("S", bound=RuntimeSettings)


@dataclass
class RoomContext(Generic[S]):
    """What a room's `open` is given, and what it may add to while it opens."""

    name: str
    settings: S
    stopping: asyncio.Event
    readiness: Readiness = field(default_factory=Readiness)
    admin_routes: list[AdminRoute] = field(default_factory=list)
    metrics: ModuleType = telemetry

    @property
    def scale(self) -> TimeScale:
        """The factor by which durations of ours are divided."""
        return self.settings.scale


@dataclass(frozen=True)
class Room(Generic[S]):
    """One room: its name, its settings, and how its parts are opened around its loops.

    `open` may raise Unavailable (tried again for `start_seconds`, then exit 3), SchemaAhead
    (exit 57) and Refused (a configured file is wrong: exit 2); it is entered anew each time.
    """

    name: str
    settings_type: type[S]
    open: Callable[[RoomContext[S]], AbstractAsyncContextManager[Sequence[Loop]]]


@dataclass
class _Start:
    """What a room starts with."""

    room: Room[Any]
    settings: RuntimeSettings
    admin_port: int


@dataclass
class _Opened:
    """A room whose parts are open. Its pulses are known once its loops run."""

    start: _Start
    context: RoomContext[Any]
    loops: Sequence[Loop]
    pulses: dict[str, Pulse] = field(default_factory=dict)


def run_rooms(rooms: Sequence[Room[Any]]) -> NoReturn:
    """Runs the rooms in this process until a signal or a crash; ends the process."""
    starts = [
        _Start(room, load_settings(room.settings_type), _admin_port_of(room.name)) for room in rooms
    ]
    configure_logs(starts[0].settings.log_level)
    loop = asyncio.new_event_loop()
    log_stray_errors(loop)
    try:
        code = loop.run_until_complete(_run(starts))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else EXIT_CRASHED
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Whatever is left, say a thread stuck in a name lookup, must not hold up the exit.
    os._exit(code)


async def _run(starts: Sequence[_Start]) -> int:
    telemetry.export_for([start.room.name for start in starts], VERSION)
    for start in starts:
        shown = describe(start.settings)
        _log.info("settings_read", room=start.room.name, version=VERSION, settings=shown)
    stopping = asyncio.Event()
    signals = StopSignals(stopping, asyncio.current_task())
    parts = AsyncExitStack()
    closing = asyncio.Event()
    admins: list[Watched] = []
    try:
        opened = [await _open(parts, start, stopping) for start in starts]
        _check_loop_names(opened)
    except asyncio.CancelledError:
        _log.info("stopped_while_starting")
        code = EXIT_OK
    except Exception as error:  # noqa: BLE001  # every end of a start has its exit code
        code = _exit_code_of(error)
    else:
        signals.starting = None
        admins = [_start_admin_port(item, closing) for item in opened]
        code = await _work(opened, admins, stopping)
    signals.starting = None
    await _close(parts)
    closing.set()
    await drain(admins, CLOSE_SECONDS)
    _log.info("stopped", exit_code=code)
    return code


async def _open(parts: AsyncExitStack, start: _Start, stopping: asyncio.Event) -> _Opened:
    outage, backoff = Outage(f"{start.room.name} start"), Backoff(0.2, 2.0)
    now = asyncio.get_running_loop().time
    give_up_at = now() + start.settings.start_seconds
    while True:
        context = RoomContext(start.room.name, start.settings, stopping)
        try:
            with bound_contextvars(room=start.room.name):
                loops = await parts.enter_async_context(start.room.open(context))
        except Unavailable as error:
            outage.failed(error)
            delay = backoff.seconds(outage.attempts - 1)
            if now() + delay > give_up_at:
                raise
            await asyncio.sleep(delay)
            continue
        outage.worked()
        return _Opened(start, context, loops)


def _check_loop_names(opened: Sequence[_Opened]) -> None:
    names = [loop.name for item in opened for loop in item.loops]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two loops of this process are called {name}")


def _start_admin_port(opened: _Opened, closing: asyncio.Event) -> Watched:
    name = opened.start.room.name
    app = AdminApp(opened.context.readiness, opened.pulses, opened.context.admin_routes)
    server = HttpServerLoop(
        app,
        opened.start.settings.listen_host,
        opened.start.admin_port,
        variable=variable_of(f"{name}_admin_port"),
        name=f"{name}.admin",
        graceful_seconds=1.0,
    )
    return start_loop(name, server, closing)


async def _work(
    opened: Sequence[_Opened], admins: Sequence[Watched], stopping: asyncio.Event
) -> int:
    loops: list[Watched] = []
    if await all_beat(admins, stopping):
        for item in opened:
            for loop in item.loops:
                watched = start_loop(item.start.room.name, loop, stopping)
                item.pulses[loop.name] = watched.pulse
                loops.append(watched)
    everything = [*admins, *loops]
    if await all_beat(everything, stopping):
        _set_state(opened, "ready")
        _log.info("ready", rooms=[item.start.room.name for item in opened])
        await any_ended(everything, stopping)
    _set_state(opened, "draining")
    has_crashed = log_crashes(everything, was_asked=stopping.is_set())
    left = [item for item in loops if not item.task.done()]
    stopping.set()
    await drain(left, max(item.start.settings.drain_seconds for item in opened))
    has_crashed |= log_crashes(left, was_asked=True)
    return EXIT_CRASHED if has_crashed else EXIT_OK


def _set_state(opened: Sequence[_Opened], state: str) -> None:
    for item in opened:
        item.context.readiness.state = state


async def _close(parts: AsyncExitStack) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await parts.aclose()
    except Exception as error:  # noqa: BLE001  # nothing is left to do but to say so and go on
        _log.error("close_failed", exc_info=error)


def _exit_code_of(error: Exception) -> int:
    match error:
        case SettingsInvalid() | Refused():
            code = EXIT_SETTINGS
        case SchemaAhead():
            code = EXIT_SCHEMA_AHEAD
        case Unavailable():
            code = EXIT_UNAVAILABLE
        case _:
            _log.error("start_failed", exc_info=error)
            return EXIT_CRASHED
    _log.error("start_failed", exc_info=error)
    sys.stderr.write(f"coatcheck: {error}\n")
    return code


def _admin_port_of(room: str) -> int:
    name = f"{room}_admin_port"
    default: Any = ADMIN_PORTS.get(room, ...)
    fields: dict[str, Any] = {name: (Port, default)}
    settings_type = create_model("AdminPortSettings", __base__=CoatcheckSettings, **fields)
    return int(getattr(load_settings(settings_type), name))
