"""Copies one artifact into the bucket: in constant memory, prepared in the row, then checked.

Owns the order that makes a copy safe: write under a key of this lease
alone, tell the row size and digest before the object can exist, complete, compare what the
store says. It promises that an upload is aborted on every way out before the completion was
asked for, and never after. It does not decide whether the copy counts; a fenced write does.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from shared.domain.errors import CoatcheckError, Unavailable
from shared.media.layout import (
    PART_BYTES,
    PARTS_MAX,
    ExpectedObject,
    ObjectState,
    Part,
    PartLayout,
)
from shared.media.objects import MultipartUpload, ObjectStore, UploadGone
from shared.media.sniffing import HEAD_BYTES, MediaType, sniff

ABORT_SECONDS = 10.0


@dataclass(frozen=True)
class CaptureOrder:
    """What is to be copied and under which limits. All ids are ours.

    `media_types`: what the first bytes may be; empty means anything. `area`: where it goes.
    """

    job_id: str
    artifact: str
    lease_token: str
    bytes_max: int
    media_types: tuple[str, ...] = ()
    area: Literal["results", "quarantine"] = "results"
    part_bytes: int = PART_BYTES

    def key(self, extension: str) -> str:
        """The object's key: no two leases share one."""
        return f"{self.area}/{self.job_id}/{self.artifact}.{self.lease_token}.{extension}"


@dataclass(frozen=True)
class PreparedObject:
    """What the row must hold before the object is completed. Digest as hex."""

    artifact: str
    key: str
    media_type: str
    bytes: int
    sha256: str
    upload_id: str | None
    part_layout: PartLayout | None

    @property
    def expected(self) -> ExpectedObject:
        """What the store must say about it."""
        return ExpectedObject(self.bytes, self.sha256, self.part_layout)


PreparedHook = Callable[[PreparedObject], Awaitable[None]]
"""Writes `capture_prepared`; raising ends the copy and nothing is completed."""


class CaptureRefusal(StrEnum):
    """Why bytes were not taken."""

    empty = "empty"
    too_large = "too_large"
    media_type = "media_type"


class CaptureRefused(CoatcheckError):
    """The bytes are not what the artifact may be. `found`: the media type of their beginning."""

    def __init__(self, refusal: CaptureRefusal, found: str | None = None) -> None:
        super().__init__(f"the result was not taken: {refusal.value}")
        self.refusal = refusal
        self.found = found


class CompletionUnclear(Unavailable):
    """The object may or may not be complete; this lease ends here and the next one looks."""


class StoredDiffers(CompletionUnclear):
    """What the store holds is not what was sent."""


async def capture(
    source: AsyncIterable[bytes], order: CaptureOrder, store: ObjectStore, prepared: PreparedHook
) -> PreparedObject:
    """Copies `source` and returns what now stands in the bucket, compared and equal.

    Raises CaptureRefused, Unavailable, whatever `source` and `prepared` raise, and
    CompletionUnclear once the completion was asked for.
    """
    copy = _Copy(order, store)
    try:
        await copy.take_all(source)
        result = await copy.finish_parts()
        await prepared(result)
    except BaseException:
        await copy.abort()
        raise
    await _complete(store, result, copy.small_body)
    return result


async def complete_prepared(store: ObjectStore, prepared: PreparedObject) -> ObjectState:
    """Finishes what an earlier lease prepared, if its upload is still open; says what is there.

    A small object's bytes are gone with its lease: if it is absent it must be copied anew.
    """
    if prepared.upload_id is not None and prepared.part_layout is not None:
        # Completed by that lease, or aborted: the object itself tells which.
        with suppress(UploadGone):
            await store.complete_multipart(prepared.key, prepared.upload_id, prepared.part_layout)
    return await store.verify(prepared.key, prepared.expected)


async def _complete(store: ObjectStore, result: PreparedObject, small_body: bytes) -> None:
    try:
        if result.upload_id is None:
            await store.put_small(result.key, small_body, result.media_type)
        state = await complete_prepared(store, result)
    except Unavailable as error:
        raise CompletionUnclear from error
    match state:
        case ObjectState.equal:
            return
        case ObjectState.unequal | ObjectState.absent:
            raise StoredDiffers


class _Copy:
    """One copy under way: at most one part is held in memory."""

    def __init__(self, order: CaptureOrder, store: ObjectStore) -> None:
        self._order = order
        self._store = store
        self._buffer = bytearray()
        self._bytes = 0
        self._digest = hashlib.sha256()
        self._media_type: MediaType | None = None
        self._upload: MultipartUpload | None = None
        self._parts: list[Part] = []
        self.small_body = b""

    async def take_all(self, source: AsyncIterable[bytes]) -> None:
        async for chunk in source:
            self._bytes += len(chunk)
            if self._bytes > self._order.bytes_max:
                raise CaptureRefused(CaptureRefusal.too_large)
            self._digest.update(chunk)
            self._buffer += chunk
            if self._media_type is None and len(self._buffer) >= HEAD_BYTES:
                self._judge_head()
            while len(self._buffer) > self._order.part_bytes:
                await self._send_part()

    async def finish_parts(self) -> PreparedObject:
        """Sends the last part. What is small stays here until the row knows of it."""
        if self._bytes == 0:
            raise CaptureRefused(CaptureRefusal.empty)
        media_type = self._media_type or self._judge_head()
        layout = None
        if self._upload is None:
            self.small_body = bytes(self._buffer)
            self._buffer.clear()
        else:
            await self._send_part()
            layout = PartLayout(
                self._order.part_bytes, self._upload.has_checksums, tuple(self._parts)
            )
        return PreparedObject(
            artifact=self._order.artifact,
            key=self._order.key(media_type.extension),
            media_type=media_type.name,
            bytes=self._bytes,
            sha256=self._digest.hexdigest(),
            upload_id=self._upload.upload_id if self._upload else None,
            part_layout=layout,
        )

    async def abort(self) -> None:
        """Drops the upload; a failure is left to the sweep over stale uploads."""
        if self._upload is None:
            return
        dropping = self._store.abort_multipart(self._upload.key, self._upload.upload_id)
        try:
            await asyncio.shield(asyncio.wait_for(dropping, ABORT_SECONDS))
        except (Unavailable, TimeoutError):
            return

    def _judge_head(self) -> MediaType:
        media_type = sniff(bytes(self._buffer[:HEAD_BYTES]))
        allowed = self._order.media_types
        if allowed and media_type.name not in allowed:
            raise CaptureRefused(CaptureRefusal.media_type, media_type.name)
        self._media_type = media_type
        return media_type

    async def _send_part(self) -> None:
        media_type = self._media_type or self._judge_head()
        if self._upload is None:
            key = self._order.key(media_type.extension)
            self._upload = await self._store.start_multipart(key, media_type.name)
        if len(self._parts) == PARTS_MAX:
            raise CaptureRefused(CaptureRefusal.too_large)
        with memoryview(self._buffer) as view:
            body = bytes(view[: self._order.part_bytes])
        del self._buffer[: self._order.part_bytes]
        self._parts.append(await self._store.upload_part(self._upload, len(self._parts) + 1, body))
