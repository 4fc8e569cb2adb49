"""Runs the fake as a process: `python -m tests.fakes.runpod --help`.

Owns: signals, exit codes and the lines printed at start and stop.
Promises: SIGTERM and SIGINT end it at once with 0; a taken port, a held or damaged journal and
a disk that refuses the journal each end it with one clear line and 1.
Never: prints a key, a webhook URL or an input.
"""

import asyncio
import os
import signal
import sys

from tests.fakes.runpod.app import FakeRunpod
from tests.fakes.runpod.journal import Journal, JournalRefused
from tests.fakes.runpod.settings import FakeSettings, read_settings


def say(text: str) -> None:
    """One line on stderr, written at once."""
    sys.stderr.write(f"fake runpod: {text}\n")
    sys.stderr.flush()


def main(argv: list[str]) -> int:
    """Runs until a signal; returns the exit code."""
    settings = read_settings(argv)
    try:
        return asyncio.run(_serve(settings))
    except JournalRefused as error:
        say(str(error))
    except OSError as error:
        say(f"cannot start: {error}")
    return 1


async def _serve(settings: FakeSettings) -> int:
    def give_up(error: OSError) -> None:
        # Without its journal the fake must not answer anything more, not even by accident.
        say(f"the journal {settings.journal} cannot be written: {error}; stopped")
        os._exit(1)

    fake = FakeRunpod(settings, Journal(settings.journal, give_up))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        port = await fake.start()
    except OSError as error:
        say(
            f"port {settings.port} on {settings.host} cannot be had "
            f"(--port, FAKE_RUNPOD_PORT): {error}"
        )
        return 1
    say(f"listens on http://{settings.host}:{port}/v2, journal {settings.journal}")
    await stopping.wait()
    await fake.stop()
    say("stopped")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Not sys.exit: that would wait for an encoder or a digest still running in a thread.
    os._exit(code)
