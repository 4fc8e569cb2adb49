"""The results: one film per finished job, made at the first request and kept until it expires.

Owns: the media folder, the bounded pool of encoders, the digests.
Promises: a film is encoded once per job however many ask at once, off the event loop; asked
again after a restart or an emptied folder it has the same bytes.
Never: serves anything itself, and never deletes what is still promised.
"""

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.runpod.film import HALF_PREFIX, Film, make_film, read_film

CHUNK_BYTES: Final = 256 * 1024
BOX_HEADER_BYTES: Final = 16


@dataclass(frozen=True)
class Content:
    """What a result URL hands out: the film, then padding the size of a free MP4 box."""

    film: Film | None
    text: bytes
    padding: int
    sha256: str

    @property
    def size(self) -> int:
        return (self.film.size if self.film else len(self.text)) + self.padding

    async def chunks(self, start: int, end: int, piece: int) -> AsyncIterator[bytes]:
        """Bytes `start` to `end` (exclusive) in pieces of at most `piece` bytes."""
        for chunk in self.pieces(start, end, piece):
            yield chunk

    def pieces(self, start: int, end: int, piece: int) -> Iterator[bytes]:
        body = self.film.size if self.film else len(self.text)
        if self.film is None:
            yield from _cut(self.text[start:end], piece)
        elif start < body:
            with self.film.path.open("rb") as stream:
                stream.seek(start)
                at = start
                while at < min(end, body):
                    chunk = stream.read(min(piece, min(end, body) - at))
                    at += len(chunk)
                    yield chunk
        at = max(start, body)
        while at < end:
            chunk = self._padding_at(at - body, min(piece, end - at))
            at += len(chunk)
            yield chunk

    def _padding_at(self, offset: int, wanted: int) -> bytes:
        if offset < BOX_HEADER_BYTES:
            header = struct.pack(">I4sQ", 1, b"free", self.padding)
            return header[offset : offset + wanted]
        grain = hashlib.shake_128(str(offset // CHUNK_BYTES).encode()).digest(16)
        at = offset % CHUNK_BYTES
        return (grain * (CHUNK_BYTES // 16))[at : at + wanted]


class Shelf:
    """Films by job id. `encoders` bounds how many are made at a time."""

    def __init__(self, folder: Path, encoders: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for half in folder.glob(f"{HALF_PREFIX}*"):
            half.unlink()  # left by a process that was killed while encoding
        self._folder = folder
        self._pool = ThreadPoolExecutor(encoders, thread_name_prefix="encoder")
        self._films: dict[str, asyncio.Task[Film]] = {}
        self._padded: dict[tuple[str, int], str] = {}
        self.encoded = 0

    async def film(self, job_id: str) -> Film:
        """The job's film, made now if need be. Raises EncoderFailed, OSError."""
        task = self._films.get(job_id)
        if task is None or (task.done() and _failed(task)):
            task = asyncio.create_task(self._make(job_id))
            self._films[job_id] = task
        # Shielded: one client that leaves must not stop the film for the others.
        return await asyncio.shield(task)

    async def content(self, job_id: str, wanted_bytes: int | None) -> Content:
        """The film, padded to `wanted_bytes` where that is at least 16 bytes more."""
        film = await self.film(job_id)
        padding = (wanted_bytes or 0) - film.size
        if padding < BOX_HEADER_BYTES:
            return Content(film, b"", 0, film.sha256)
        key = (job_id, padding)
        if key not in self._padded:
            loop = asyncio.get_running_loop()
            content = Content(film, b"", padding, "")
            self._padded[key] = await loop.run_in_executor(self._pool, _digest, content)
        return Content(film, b"", padding, self._padded[key])

    def drop(self, job_id: str) -> None:
        """Forgets the job's film and deletes the file; nothing happens where there is none."""
        self._films.pop(job_id, None)
        self._path(job_id).unlink(missing_ok=True)

    def kept(self) -> list[str]:
        """The ids of all films in the folder."""
        return [path.stem for path in self._folder.glob("[!.]*.mp4")]

    def close(self) -> None:
        """Starts no more encoders; a running one ends by itself in a fraction of a second."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _make(self, job_id: str) -> Film:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._make_blocking, job_id)

    def _make_blocking(self, job_id: str) -> Film:
        path = self._path(job_id)
        if path.exists():
            return read_film(path)
        self.encoded += 1
        return make_film(job_id, path)

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.mp4"


def text_content(text: bytes) -> Content:
    """A result that is no film: an empty file, an error page."""
    return Content(None, text, 0, hashlib.sha256(text).hexdigest())


def _digest(content: Content) -> str:
    digest = hashlib.sha256()
    for piece in content.pieces(0, content.size, CHUNK_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _failed(task: asyncio.Task[Film]) -> bool:
    return task.cancelled() or task.exception() is not None


def _cut(text: bytes, piece: int) -> Iterator[bytes]:
    for at in range(0, len(text), piece):
        yield text[at : at + piece]
