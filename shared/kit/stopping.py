"""Signals, and errors that nobody caught: what ends a process from outside its own work.

The first SIGTERM or SIGINT asks for an orderly stop, the second exits at once. Handlers are
plain ones, so that a blocked loop cannot keep a second signal waiting; the loop's own wake-up
stands behind them, so that a loop that waits for nothing else sees the first.
Errors that reach the interpreter or the event loop are logged by our rules, never raw.
"""

import asyncio
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from shared.kit.logs import get_logger

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = get_logger()


class StopSignals:
    """Turns signals into `stopping`; while `starting` is a task, a signal cancels it too."""

    def __init__(self, stopping: asyncio.Event, starting: "asyncio.Task[Any] | None") -> None:
        self.starting = starting
        self._stopping = stopping
        self._loop = asyncio.get_running_loop()
        self._received = 0
        for number in STOP_SIGNALS:
            # The loop's handler comes with a wake-up: a signal that lands just before the loop
            # begins to wait would else be seen at the next event only, which may never come.
            self._loop.add_signal_handler(number, self._begin, number)
            # Ours takes its place, for a second signal must end a process whose loop is stuck.
            signal.signal(number, self._receive)

    def _receive(self, number: int, _: FrameType | None) -> None:
        self._received += 1
        if self._received > 1:
            os.write(2, b"coatcheck: second signal: exit at once\n")
            os._exit(128 + number)

    def _begin(self, number: int) -> None:
        _log.info("stop_requested", signal=signal.Signals(number).name)
        self._stopping.set()
        if self.starting is not None:
            self.starting.cancel()


def log_stray_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Sends uncaught errors of the loop, of threads and of the interpreter to our log."""
    loop.set_exception_handler(_log_loop_error)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_thread_error


def _log_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # The context's other members are reprs of tasks and transports, contents included.
    message = context.get("message")
    _log.error("stray_loop_error", message=message, exc_info=context.get("exception"))


def _log_uncaught(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
    _log.error("uncaught_error", exc_info=error)


def _log_thread_error(args: threading.ExceptHookArgs) -> None:
    _log.error("stray_thread_error", exc_info=args.exc_value)
