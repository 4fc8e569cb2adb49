"""What the stack says while it works: one line per event, and never five silent seconds.

Owns the output of `up`, `demo`, `stop` and `start`. Promises that a reader who is slow or gone,
or a full disk behind the output, never stops the stack: such lines are dropped. Must never
print a secret: callers hand in sentences made of names, numbers and times.
"""

import io
import select
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO

HEARTBEAT_SECONDS = 4.0


class Console:
    """Lines with the seconds since the start; a repeated line while something is awaited."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._began_at = time.monotonic()
        self._spoke_at = self._began_at

    def say(self, text: str) -> None:
        """One line of progress, at once."""
        now = time.monotonic()
        self._spoke_at = now
        self.print(f"[{now - self._began_at:6.1f} s] {text}")

    def still(self, awaited: str) -> None:
        """Say what is being waited for, if nothing was said for a while."""
        if time.monotonic() - self._spoke_at >= HEARTBEAT_SECONDS:
            self.say(f"waiting for {awaited}")

    def spoken(self, steps: Iterable[str]) -> Iterator[str]:
        """The steps as they are, with a line now and then about what they wait for."""
        for awaited in steps:
            self.still(awaited)
            yield awaited

    def print(self, text: str) -> None:
        """A line without the time: results, and what a reader copies."""
        try:
            if _takes_a_line(self._stream):
                print(text, file=self._stream, flush=True)
        except (OSError, ValueError):
            # Nobody reads any more, or the disk under the output is full. The stack goes on:
            # ending here would leave the reader of the logs without the parts.
            return


def _takes_a_line(stream: TextIO) -> bool:
    """Can a line be written without waiting? A pipe that says yes takes 4 KiB at once."""
    try:
        handle = stream.fileno()
    except io.UnsupportedOperation:
        return True  # a stream in memory
    return bool(select.select([], [handle], [], 0)[1])
