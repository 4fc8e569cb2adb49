"""How far an exchange came: the one record that decides whether money may have been spent.

Owns: the recorder that the transport writes and the caller may read at any time, also after its
own task was cancelled, and the deadline for the first request byte. Promises that a phase only
moves forward and leaves the provably unsent ones before the first byte is handed over, never
after. Must never guess.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from shared.domain.durations import TimeScale
from shared.domain.provider import Exchange, Phase

_ORDER = {phase: rank for rank, phase in enumerate(Phase)}


def boottime_seconds() -> float:
    """Seconds since boot, suspended time included; what send deadlines are measured in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SendWindowClosed(Exception):
    """The first request byte would have left too late; it was not sent."""


class ClosedBeforeSending(Exception):
    """The other side ended the connection before a request byte was handed over."""


@dataclass(frozen=True)
class SendDeadline:
    """No first request byte leaves at or after this moment of CLOCK_BOOTTIME (seconds)."""

    not_after_boottime: float

    @classmethod
    def after_claim(cls, begin_boottime: float, scale: TimeScale) -> Self:
        """The deadline of a claim whose BEGIN was sent at `begin_boottime` (rule P2)."""
        return cls(begin_boottime + scale.first_byte_seconds)


class PhaseRecorder:
    """What is known of one call so far. Made by the caller, written by the transport.

    `on_first_byte` is called once, in the same step in which the first byte was handed to the
    operating system, with no other task in between: a timer set against late sending may be
    taken off there.
    """

    def __init__(self, on_first_byte: Callable[[], None] | None = None) -> None:
        self.phase = Phase.dns
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self.body = bytearray()
        self.complete = False
        self._on_first_byte = on_first_byte

    def advance(self, phase: Phase) -> None:
        """Moves to `phase` unless a later one was reached already."""
        if _ORDER[phase] > _ORDER[self.phase]:
            self.phase = phase

    def open_for_sending(self, not_after_boottime: float | None) -> None:
        """Passes the gate before the first byte, or raises SendWindowClosed and stays unsent."""
        if not_after_boottime is not None and boottime_seconds() >= not_after_boottime:
            raise SendWindowClosed
        self.advance(Phase.request_partly_written)

    def first_byte_sent(self) -> None:
        """Tells the caller, once, that the first byte was handed over."""
        if self._on_first_byte is not None:
            self._on_first_byte()
            self._on_first_byte = None

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """The transport library's trace: marks the end of the request and of the answer's head."""
        if event == "http11.send_request_body.complete":
            self.advance(Phase.request_written)
        elif event == "http11.receive_response_headers.complete":
            _, self.status, _, headers = info["return_value"]
            self.headers = _joined(headers)
            self.advance(Phase.body)

    def exchange(self, error: str | None = None) -> Exchange:
        """The call as far as it came. `error`: an exception's class name."""
        return Exchange(
            phase=self.phase,
            status=self.status,
            headers=self.headers,
            body=bytes(self.body),
            complete=self.complete,
            error=error,
        )


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
