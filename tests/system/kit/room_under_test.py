"""A room that misbehaves on demand: the process that the runner's tests start and stop.

`python -m tests.system.kit.room_under_test MODE ROOM[,ROOM]`. Its steps stand on stdout as log
lines, so that a test waits for what happened and never for time.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from shared.domain.errors import Refused, SchemaAhead, Unavailable
from shared.kit.admin import AdminAnswer, AdminRequest, HttpServerLoop
from shared.kit.logs import get_logger
from shared.kit.service import Loop, Pulse, Room, RoomContext, run_rooms
from shared.kit.settings import DatabaseSettings, RuntimeSettings, load_settings

CANARY = "s3cr3t-canary"

log = get_logger()


class Settings(DatabaseSettings, RuntimeSettings):
    """A runtime and one secret."""


class MoreSettings(RuntimeSettings):
    """What a room reads only while it opens."""

    more: str


class Acting:
    """A loop made of one coroutine function."""

    def __init__(
        self,
        name: str,
        act: Callable[[Pulse], Coroutine[Any, Any, None]],
        beat_bound_seconds: float = 60.0,
    ) -> None:
        self.name = name
        self.beat_bound_seconds = beat_bound_seconds
        self._act = act

    async def run(self, pulse: Pulse) -> None:
        """Acts, and says when it is done."""
        await self._act(pulse)
        log.info("loop_drained", message=self.name)


async def steady(pulse: Pulse) -> None:
    await pulse.sleep(float("inf"))


async def crash(pulse: Pulse) -> None:
    pulse.beat()
    raise ValueError(f"https://h/?sig={CANARY}")


async def end_early(pulse: Pulse) -> None:
    pulse.beat()


async def never_drain(pulse: Pulse) -> None:
    await steady(pulse)
    await asyncio.Event().wait()


async def ignore_cancellation(pulse: Pulse) -> None:
    await steady(pulse)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.info("cancellation_ignored")


async def crash_while_draining(pulse: Pulse) -> None:
    await steady(pulse)
    raise ValueError(CANARY)


async def block_the_process(pulse: Pulse) -> None:
    pulse.beat()
    log.info("blocking")
    while True:
        time.sleep(0.01)  # noqa: ASYNC251  # the point of it


async def go_silent(pulse: Pulse) -> None:
    pulse.beat()
    await pulse.stopping.wait()


async def fail_astray(pulse: Pulse) -> None:
    """Errors where nobody waits for them: in a thread, in a callback; and a thread that stays."""
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    thread = threading.Thread(target=_raise_canary)
    thread.start()
    thread.join()
    asyncio.get_running_loop().call_soon(_raise_canary)
    await steady(pulse)


def _raise_canary() -> None:
    raise ValueError(CANARY)


async def endless_stream(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"open\n", "more_body": True})
    await asyncio.Event().wait()


class Held:
    """A loop that begins and drains only when it is told to, over the admin port."""

    def __init__(self, context: RoomContext[Settings]) -> None:
        self.events = {"/begin": asyncio.Event(), "/finish": asyncio.Event()}
        self.is_well = True
        for path in ("/begin", "/finish", "/toggle"):
            context.admin_routes.append(("POST", path, self._told))
        context.readiness.add("database", self._check)

    async def _told(self, request: AdminRequest) -> AdminAnswer:
        if request.path == "/toggle":
            self.is_well = not self.is_well
        else:
            self.events[request.path].set()
        return AdminAnswer.of_json(200, {})

    async def _check(self) -> bool:
        return self.is_well

    async def act(self, pulse: Pulse) -> None:
        await self.events["/begin"].wait()
        await steady(pulse)
        log.info("drain_begun")
        await self.events["/finish"].wait()


ACTS: dict[str, Callable[[Pulse], Coroutine[Any, Any, None]]] = {
    "steady": steady,
    "crash": crash,
    "end-early": end_early,
    "never-drain": never_drain,
    "ignore-cancellation": ignore_cancellation,
    "crash-while-draining": crash_while_draining,
    "block": block_the_process,
    "silent": go_silent,
    "astray": fail_astray,
}
attempts = 0


def loops_of(mode: str, context: RoomContext[Settings]) -> Sequence[Loop]:
    """The loops of a mode."""
    name = context.name
    if mode == "held":
        return [Acting(f"{name}.held", Held(context).act)]
    if mode == "same-names":
        return [Acting("same", steady), Acting("same", steady)]
    if mode == "stream":
        port = int(os.environ["PUBLIC_PORT"])
        return [HttpServerLoop(endless_stream, "127.0.0.1", port, variable="X", graceful_seconds=1)]
    bound = 0.05 if mode == "silent" else 60.0
    return [Acting(f"{name}.{mode}", ACTS[mode], bound), Acting(f"{name}.bystander", steady)]


async def fail_to_open(mode: str) -> None:
    """Ends an opening in the way that the mode names."""
    global attempts
    attempts += 1
    if mode == "unavailable" or (mode == "unavailable-twice" and attempts < 3):
        raise Unavailable("the database does not answer")
    if mode == "schema-ahead":
        raise SchemaAhead
    if mode == "refused":
        raise Refused("endpoints.toml: not valid TOML")
    if mode == "bug":
        raise ValueError(CANARY)
    if mode == "hang":
        log.info("hanging")
        await asyncio.Event().wait()
    if mode == "late-settings":
        load_settings(MoreSettings)


def opener(mode: str) -> Any:
    """The `open` of a room in this mode."""

    @asynccontextmanager
    async def open_room(context: RoomContext[Settings]) -> AsyncIterator[Sequence[Loop]]:
        secret = context.settings.database_url.get_secret_value()
        log.info("opening", message=f"{len(secret)} characters")
        await fail_to_open(mode)
        try:
            plain = mode if mode in (*ACTS, "held", "same-names", "stream") else "steady"
            yield loops_of(plain, context)
        finally:
            if mode == "close-fails":
                raise ValueError(CANARY)
            log.info("parts_closed", message=context.name)

    return open_room


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGINT])
    opening = opener(sys.argv[1])
    run_rooms([Room(name, Settings, opening) for name in sys.argv[2].split(",")])
