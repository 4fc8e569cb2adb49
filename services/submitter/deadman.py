"""The dead man's timer: a process that was paused too long dies before it can send late (P2).

A pause (a stopped container, a frozen host) can fall between the last look at the clock and the
first byte of a paid call. The kernel's own timer, with the signal's default action, ends the
process at the earliest deadline of a claim that is still unsent, whatever Python was doing. Must
never be caught or handled: a handler runs after the bytes have left.
"""

import os
import signal
from typing import Protocol
from uuid import UUID

from shared.domain.errors import Refused
from shared.kit.http import boottime_seconds

LEAST_SECONDS = 1e-6
INIT_PID = 1


class Watch(Protocol):
    """Keeps the deadlines of unsent claims; implemented by DeadMansTimer, and in tests."""

    def arm(self, token: UUID, at_boottime: float) -> None:
        """From now on the claim's first byte must not leave after this moment."""

    def disarm(self, token: UUID) -> None:
        """The first byte left, or never will. May be called twice."""


class DeadMansTimer:
    """The real one. One per process: it owns ITIMER_REAL and SIGALRM. Refused as process 1."""

    def __init__(self, pid: int | None = None) -> None:
        if (pid or os.getpid()) == INIT_PID:
            raise Refused(
                "the submitter must not be process 1: the kernel spares that one from its timer;"
                " start it under an init, as the image does"
            )
        self._deadlines: dict[UUID, float] = {}
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def arm(self, token: UUID, at_boottime: float) -> None:
        """Adds a deadline (CLOCK_BOOTTIME, seconds)."""
        self._deadlines[token] = at_boottime
        self._set()

    def disarm(self, token: UUID) -> None:
        """Takes a deadline off."""
        if self._deadlines.pop(token, None) is not None:
            self._set()

    def _set(self) -> None:
        if not self._deadlines:
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        left_seconds = min(self._deadlines.values()) - boottime_seconds()
        signal.setitimer(signal.ITIMER_REAL, max(left_seconds, LEAST_SECONDS))
