"""A broker that the bus tests stop, freeze and start; and what they wait for.

Its fixtures stand in the package's conftest: tests that only use a broker share the session's.
"""

import asyncio
import os
import signal
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local import ports
from deploy.local.kafka import LocalKafka
from deploy.local.kafka_jars import default_cache_dir
from shared.domain.errors import Unavailable
from shared.kit.bus import ensure_topics
from shared.kit.settings import KafkaSettings

Lines = list[MutableMapping[str, Any]]


class OwnBroker:
    """A broker that a test stops, freezes and starts.

    One thread starts it and lives as long as it: the process ends with the thread it came from.
    """

    def __init__(self, folder: Path) -> None:
        port, controller_port = ports.free_block(2)
        self._broker = LocalKafka(
            folder, port, controller_port, folder / "log", default_cache_dir()
        )
        self.bootstrap = self._broker.bootstrap
        self._thread = ThreadPoolExecutor(1)

    async def start(self) -> None:
        """Starts it, if it does not run, and waits until it answers."""
        process = self._broker.process
        if process is None or process.poll() is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._broker.start)
        while True:
            try:
                await ensure_topics(KafkaSettings(kafka_bootstrap_servers=self.bootstrap))
            except Unavailable:  # it listens before it answers
                continue
            return

    async def stop(self) -> None:
        """Stops it."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._broker.stop)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Its process does not run meanwhile; its sockets stay open."""
        assert self._broker.process is not None
        os.kill(self._broker.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._broker.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Ends it for good."""
        self._broker.stop()
        self._thread.shutdown()


async def until_logged(lines: Lines, event: str, times: int = 1) -> None:
    """Waits until a line of that name was written so often."""
    async with asyncio.timeout(90):
        while sum(line["event"] == event for line in lines) < times:  # noqa: ASYNC110  # a log
            await asyncio.sleep(0.02)


def is_only_task() -> bool:
    """Whether nothing runs but the test itself."""
    return asyncio.all_tasks() == {asyncio.current_task()}
