"""The life of one part: started, watched, started again when it dies, stopped when asked.

Owns the state of a part and the waits between its starts. Promises that every death and every
new start is printed, and that a part taken down on request stays down until it is asked for.
Must never block: a tick does one small step and returns, so one thread can watch all parts.
"""

import signal
import subprocess
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Protocol, assert_never

from deploy.local import ports
from deploy.local.console import Console
from deploy.local.ports import NamedPort
from deploy.local.processes import PartFailed, Waiting, end_now, ending, has_ended
from shared.domain.errors import CoatcheckError

FIRST_REST_SECONDS = 0.2
LONGEST_REST_SECONDS = 30.0
STEADY_SECONDS = 20.0
PORT_PATIENCE_SECONDS = 5.0


class Part(Protocol):
    """What the supervisor needs of a part."""

    name: str
    served: tuple[NamedPort, ...]
    log_path: Path
    process: subprocess.Popen[bytes] | None

    def begin(self) -> Waiting:
        """The start, step by step; exhausted means ready. Raises PartFailed or PortTaken."""

    def end(self) -> Waiting:
        """The stop, step by step; exhausted means gone."""


class State(StrEnum):
    """Where a part stands. Arrows: what `tick` does by itself."""

    held_back = "held_back"  # wanted, but something it needs is not there -> starting
    starting = "starting"  # -> up, or resting when the start fails
    up = "up"  # -> resting when its process ends
    resting = "resting"  # waits before the next start -> starting
    stopping = "stopping"  # -> down
    down = "down"  # on request; stays


class Watch:
    """One part under watch. `may_start` is asked until it is true once."""

    def __init__(self, part: Part, console: Console, may_start: Callable[[], bool]) -> None:
        self.part = part
        self.state = State.held_back
        self.pid: int | None = None
        self.failures_in_a_row = 0
        self.last_error: CoatcheckError | None = None
        self.awaited = "its turn"
        self._console, self._may_start = console, may_start
        self._steps: Waiting | None = None
        self._since = time.monotonic()
        self._rests_until = 0.0

    @property
    def name(self) -> str:
        return self.part.name

    @property
    def is_settled(self) -> bool:
        """Up or down: nothing is under way."""
        return self.state in (State.up, State.down)

    @property
    def is_taken_down(self) -> bool:
        """Down, or about to be, because somebody asked for it."""
        return self.state in (State.stopping, State.down)

    @property
    def waits_for(self) -> str:
        """What this part is waiting for, for a line of progress."""
        return f"{self.name}: {self.awaited}"

    def take_down(self) -> None:
        """Stop it; it stays down. Nothing happens if it is down already."""
        if self.state in (State.down, State.stopping):
            return
        if self._steps is not None:
            self._steps.close()
        self._enter(State.stopping, self._ending_steps())

    def bring_up(self) -> None:
        """Start it; a part that rests before its next start is started now."""
        if self.state is State.down:
            self.failures_in_a_row = 0
            self._enter(State.held_back)
            self.awaited = "its turn"
        elif self.state is State.resting:
            self.failures_in_a_row = 0
            self._rests_until = 0.0

    def tick(self) -> None:
        """One small step."""
        match self.state:
            case State.held_back:
                if self._may_start():
                    self._enter(State.starting, self.part.begin())
            case State.starting:
                self._step_of_start()
            case State.up:
                self._look_whether_alive()
            case State.resting:
                if time.monotonic() >= self._rests_until:
                    self._enter(State.starting, self.part.begin())
            case State.stopping:
                if self._next_step():
                    self.pid = None
                    self._enter(State.down)
                    self.awaited = f"`coatcheck start {self.name}` (it was taken down on request)"
                    self._console.say(f"{self.name} is stopped")
            case State.down:
                return
            case _:
                assert_never(self.state)

    def kill(self) -> None:
        """End its process and whatever that started, now; for the last resort."""
        if self.part.process is not None:
            end_now(self.part.process)

    def _step_of_start(self) -> None:
        try:
            is_ready = self._next_step()
        except (CoatcheckError, OSError) as error:
            self.kill()
            self.last_error = error if isinstance(error, CoatcheckError) else PartFailed(str(error))
            self._rest(f"{self.name} did not start: {error}")
            return
        process = self.part.process
        if process is not None and process.returncode is None:
            self.pid = process.pid
        if is_ready:
            seconds = time.monotonic() - self._since
            self._console.say(f"{self.name} is ready (process {self.pid}, {seconds:.1f} s)")
            self._enter(State.up)

    def _look_whether_alive(self) -> None:
        process = self.part.process
        if process is None or not has_ended(process):
            if self.failures_in_a_row and time.monotonic() - self._since > STEADY_SECONDS:
                self.failures_in_a_row = 0
            return
        self.last_error = PartFailed(f"{self.name} {ending(process.returncode)}")
        self._rest(str(self.last_error))

    def _rest(self, sentence: str) -> None:
        rest = min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * 2.0**self.failures_in_a_row)
        self.failures_in_a_row = min(self.failures_in_a_row + 1, 16)
        self._rests_until = time.monotonic() + rest
        self._enter(State.resting)
        self.awaited = "its next start"
        if getattr(self.last_error, "may_pass", True):
            sentence += f"; starting it again in {rest:.1f} s"
        self._console.say(sentence)

    def _ending_steps(self) -> Waiting:
        self.awaited = "its end"
        yield from self.part.end()
        patience_ends_at = time.monotonic() + PORT_PATIENCE_SECONDS
        while time.monotonic() < patience_ends_at and any(
            ports.accepts(port.number) for port in self.part.served
        ):
            yield "its port to be refused"

    def _next_step(self) -> bool:
        """Go on with the start or stop under way; true when that was the last step."""
        if self._steps is None:
            return True
        try:
            self.awaited = next(self._steps)
        except StopIteration:
            self._steps = None
            return True
        return False

    def _enter(self, state: State, steps: Waiting | None = None) -> None:
        self.state, self._steps = state, steps
        self._since = time.monotonic()


def kill_all(watches: list[Watch]) -> None:
    """SIGKILL for every process under watch; returns when all are gone."""
    for watch in watches:
        process = watch.part.process
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGKILL)
    for watch in watches:
        watch.kill()
