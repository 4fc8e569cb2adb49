"""Watches all parts of a stack from one thread: starts, restarts, requests, and the ordered end.

Owns the loop of the launcher. Promises: children are spawned from the main thread only (they
die with it), a signal ends everything in order, a second one at once, and nothing it waits for
makes it deaf. Must never know what a part is good for; the stack tells it what may start when.
"""

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from deploy.local.console import Console
from deploy.local.control import ControlDesk, UnknownPart
from deploy.local.processes import Waiting
from deploy.local.watch import Part, State, Watch, kill_all
from shared.domain.errors import Refused

BUSY_SECONDS = 0.03
IDLE_SECONDS = 1.0
PATIENCE_STARTS = 3


class StopAsked(Exception):  # not an error: somebody wants the stack to end
    """A signal asked the stack to end."""


class Supervisor:
    """The parts under watch. `on_change` is called whenever a pid has changed."""

    def __init__(
        self, console: Console, desk: ControlDesk, on_change: Callable[[Mapping[str, int]], None]
    ) -> None:
        self.watches: dict[str, Watch] = {}
        self._console, self._desk, self._on_change = console, desk, on_change
        self._noted: dict[str, int] = {}
        self._signals = 0
        self._is_ending = False
        self._wakes, self._wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def add(self, part: Part, may_start: Callable[[], bool] = lambda: True) -> Watch:
        """Put a part under watch; it starts as soon as it may."""
        watch = Watch(part, self._console, may_start)
        self.watches[part.name] = watch
        return watch

    def drop(self, name: str) -> None:
        """Forget a part that cannot be had."""
        self.watches.pop(name).kill()

    @contextmanager
    def signals_taken(self) -> Iterator[None]:
        """SIGINT, SIGTERM and SIGHUP ask for the end; a child's death wakes the loop.

        A SIGHUP that is ignored stays so: whoever used `nohup` wants the stack to go on.
        """
        taken = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            taken.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._hear) for number in taken}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        wakeup_before = signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, steps: Waiting) -> None:
        """Watch the parts while these steps are taken; returns after the last one.

        Raises StopAsked as soon as a signal came, and whatever the steps raise.
        """
        for awaited in steps:
            self._turn(awaited)
            if self._signals:
                raise StopAsked

    def stop_all(self, order: Sequence[Sequence[str]]) -> None:
        """Stop the parts group by group; a further signal kills what is left at once."""
        self._signals = 0
        self._is_ending = True
        for group in order:
            watches = [self.watches[name] for name in group if name in self.watches]
            for watch in watches:
                watch.take_down()
            while not all(watch.state is State.down for watch in watches):
                self._turn("; ".join(w.waits_for for w in watches if w.state is not State.down))
                if self._signals:
                    self._console.say("asked again: killing what is left")
                    kill_all(list(self.watches.values()))
                    return

    def close(self) -> None:
        """Hang up; the parts are not touched."""
        self._desk.close()
        os.close(self._wakes)
        os.close(self._wake_end)

    def unsettled(self) -> str:
        """What is being waited for, as one line."""
        return "; ".join(w.waits_for for w in self.watches.values() if not w.is_settled)

    def _hear(self, _signum: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _turn(self, awaited: str) -> None:
        for watch in list(self.watches.values()):
            watch.tick()
        self._desk.tick(self._take)
        pids = {name: watch.pid for name, watch in self.watches.items() if watch.pid is not None}
        if pids != self._noted:
            self._noted = pids
            self._on_change(pids)
        if awaited:
            self._console.still(awaited)
        is_busy = bool(awaited) or not all(w.is_settled for w in self.watches.values())
        self._sleep(BUSY_SECONDS if is_busy else IDLE_SECONDS)

    def _sleep(self, seconds: float) -> None:
        sources: list[int | socket.socket] = [self._wakes, *self._desk.sockets]
        ready, _, _ = select.select(sources, [], [], seconds)
        if self._wakes in ready:
            os.read(self._wakes, 4096)

    def _take(self, command: str, names: list[str]) -> Callable[[], bool]:
        if self._is_ending:
            raise Refused("the stack is being stopped")
        watches = [self._find(name) for name in names]
        match command:
            case "stop":
                for watch in watches:
                    self._console.say(f"{watch.name} is taken down on request")
                    watch.take_down()
                return lambda: all(watch.state is State.down for watch in watches)
            case "start":
                for watch in watches:
                    if watch.state is State.stopping:
                        raise Refused(f"{watch.name} is being taken down")
                    self._console.say(f"{watch.name} is brought up on request")
                    watch.bring_up()
                return lambda: all(_is_up(watch) for watch in watches)
            case _:
                raise Refused(f"there is no command {command}")

    def _find(self, name: str) -> Watch:
        if name not in self.watches:
            known = ", ".join(self.watches)
            raise UnknownPart(f"this stack has no part {name}; its parts: {known}")
        return self.watches[name]


def _is_up(watch: Watch) -> bool:
    if watch.state is State.down:
        raise Refused(f"{watch.name} was taken down meanwhile")
    if watch.failures_in_a_row >= PATIENCE_STARTS:
        raise Refused(str(watch.last_error))
    return watch.state is State.up


def pause(seconds: float) -> Waiting:
    """Steps that only pass time, saying nothing."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield ""
