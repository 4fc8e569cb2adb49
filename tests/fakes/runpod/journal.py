"""The append-only record of every call received and every webhook sent, one JSON object a line.

Owns: the journal file, its lock, the order of its lines.
Promises: an entry whose future is done survives a SIGKILL of this process and a power cut;
entries appended at the same time share one fsync; the file's order is the order of `append`.
Never: rewrites a line. Only a torn last line, whose answer never left, is dropped at the start.
"""

import asyncio
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

Entry = dict[str, JsonValue]


class JournalRefused(Exception):
    """The file cannot serve as journal: held by another process, or damaged in the middle."""


class Journal:
    """An open journal; one process at a time. `on_broken` is called once a write has failed."""

    def __init__(self, path: Path, on_broken: Callable[[OSError], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._on_broken = on_broken
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise JournalRefused(f"{path} is held by another process") from error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._drop_torn_tail()
        self.last_seq = 0

    def replay(self) -> Iterator[Entry]:
        """Every entry so far, oldest first. Raises JournalRefused at a line that is not one."""
        for number, line in enumerate(self._lines(), start=1):
            try:
                entry: Entry = json.loads(line)
                seq = entry["seq"]
            except (ValueError, KeyError, TypeError) as error:
                raise JournalRefused(f"{self._path} line {number} is damaged") from error
            self.last_seq = max(self.last_seq, int(str(seq)))
            yield entry

    def append(self, entry: Entry) -> asyncio.Future[None]:
        """Queues the entry, stamped with `seq` and `time`; the future is done once it is durable.

        The future fails with OSError when the disk refuses, and every later one does too.
        """
        self.last_seq += 1
        stamped = {"seq": self.last_seq, "time": datetime.now(UTC).isoformat(), **entry}
        line = json.dumps(stamped, separators=(",", ":")).encode() + b"\n"
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((line, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_waiting())
        return done

    def read(self, after_seq: int, limit: int, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """Up to `limit` entries behind `after_seq` that are wanted; reads the file (blocking)."""
        found: list[Entry] = []
        for line in self._lines():
            entry: Entry = json.loads(line)
            if int(str(entry["seq"])) > after_seq and wanted(entry):
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    async def close(self) -> None:
        """Writes what waits, releases the file."""
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()
        os.close(self._file)

    async def _write_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            lines = b"".join(line for line, _ in batch)
            try:
                await loop.run_in_executor(self._thread, self._write, lines)
            except OSError as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                self._on_broken(error)
                return  # _writing stays set: nothing is ever written behind a torn line
            for _, done in batch:
                if not done.done():
                    done.set_result(None)
        self._writing = None

    def _write(self, lines: bytes) -> None:
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        os.fdatasync(self._file)

    def _lines(self) -> Iterator[bytes]:
        with self._path.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):
                    yield line

    def _drop_torn_tail(self) -> None:
        size = os.fstat(self._file).st_size
        kept = 0
        with self._path.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):
                    kept += len(line)
        if kept < size:
            os.ftruncate(self._file, kept)
            os.fsync(self._file)
