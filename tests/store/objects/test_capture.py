"""The copy into the bucket: prepared before it exists, aborted or unclear but never in between."""

import asyncio
import hashlib
import os
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest

from shared.domain.errors import Unavailable
from shared.kit.settings import StorageSettings
from shared.media.capture import (
    CaptureOrder,
    CaptureRefusal,
    CaptureRefused,
    CompletionUnclear,
    PreparedObject,
    StoredDiffers,
    capture,
    complete_prepared,
)
from shared.media.layout import ObjectState
from shared.media.objects import ObjectStore
from tests.store.objects.relay import Answer, CutAnswer, Request, Rule, through_relay

PART = 5 * 1024 * 1024
MP4 = b"\x00\x00\x00\x20ftypisom\x00\x00\x02\x00isomiso2avc1mp41"
BIG = MP4 + os.urandom(2 * PART + 1_000)
SMALL = MP4 + os.urandom(10_000)


def order(**changes: object) -> CaptureOrder:
    usual = CaptureOrder(
        job_id=str(uuid4()),
        artifact="master",
        lease_token=str(uuid4()),
        bytes_max=100 * PART,
        media_types=("video/mp4",),
        part_bytes=PART,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


async def source(content: bytes, chunk_bytes: int = 65_536) -> AsyncIterator[bytes]:
    for at in range(0, len(content), chunk_bytes):
        yield content[at : at + chunk_bytes]


class Row:
    """The place of the database: remembers what was prepared, and may refuse."""

    def __init__(self, error: Exception | None = None) -> None:
        self.prepared: list[PreparedObject] = []
        self.error = error

    async def __call__(self, prepared: PreparedObject) -> None:
        self.prepared.append(prepared)
        if self.error is not None:
            raise self.error


async def leftovers(store: ObjectStore, ordered: CaptureOrder) -> list[str]:
    """Whatever stands or is half sent under the job's prefix."""
    prefix = f"{ordered.area}/{ordered.job_id}/"
    objects = [one.key async for one in store.list_prefix(prefix)]
    return objects + [one.key async for one in store.list_multipart_uploads(prefix)]


async def content_of(store: ObjectStore, key: str) -> bytes:
    return b"".join([chunk async for chunk in store.open_range(key)])


@pytest.mark.parametrize(
    ("content", "is_multipart"),
    [(SMALL, False), (MP4, False), (BIG[:PART], False), (BIG[: PART + 1], True), (BIG, True)],
)
async def test_a_result_is_prepared_stored_and_compared(
    object_store: ObjectStore, content: bytes, is_multipart: bool
) -> None:
    ordered, row = order(), Row()
    stored = await capture(source(content), ordered, object_store, row)
    assert row.prepared == [stored]
    assert stored.key == f"results/{ordered.job_id}/master.{ordered.lease_token}.mp4"
    assert (stored.bytes, stored.media_type) == (len(content), "video/mp4")
    assert stored.sha256 == hashlib.sha256(content).hexdigest()
    assert (stored.upload_id is not None) == (stored.part_layout is not None) == is_multipart
    assert await content_of(object_store, stored.key) == content
    assert await leftovers(object_store, ordered) == [stored.key]


async def test_the_size_of_the_pieces_does_not_matter(object_store: ObjectStore) -> None:
    whole, row = order(), Row()
    await capture(source(BIG, len(BIG)), whole, object_store, row)
    await capture(source(BIG, 999_983), replace(whole, lease_token="2"), object_store, row)
    one, two = row.prepared
    assert (one.sha256, one.part_layout) == (two.sha256, two.part_layout)
    assert one.key != two.key


async def test_the_object_does_not_exist_while_it_is_prepared(object_store: ObjectStore) -> None:
    for content in (SMALL, BIG):
        seen: list[object] = []

        async def look(prepared: PreparedObject, seen: list[object] = seen) -> None:
            seen.append(await object_store.head(prepared.key))

        await capture(source(content), order(), object_store, look)
        assert seen == [None]


@pytest.mark.parametrize(
    ("content", "changes", "refusal"),
    [
        (b"", {}, CaptureRefusal.empty),
        (SMALL, {"bytes_max": len(SMALL) - 1}, CaptureRefusal.too_large),
        (BIG, {"bytes_max": len(BIG) - 1}, CaptureRefusal.too_large),
        (b"<html>" + SMALL, {}, CaptureRefusal.media_type),
        (b"<html>", {}, CaptureRefusal.media_type),
        (b"\x89PNG\r\n\x1a\n" + BIG, {}, CaptureRefusal.media_type),
    ],
)
async def test_what_is_not_taken_leaves_nothing_behind(
    object_store: ObjectStore, content: bytes, changes: dict[str, object], refusal: CaptureRefusal
) -> None:
    ordered, row = order(**changes), Row()
    with pytest.raises(CaptureRefused) as refused:
        await capture(source(content), ordered, object_store, row)
    assert refused.value.refusal is refusal
    assert row.prepared == []
    assert await leftovers(object_store, ordered) == []


async def test_too_many_parts_are_too_large(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.media.capture.PARTS_MAX", 1)
    ordered = order()
    with pytest.raises(CaptureRefused, match="too_large"):
        await capture(source(BIG), ordered, object_store, Row())
    assert await leftovers(object_store, ordered) == []


async def test_bytes_of_another_type_can_be_kept_in_quarantine(object_store: ObjectStore) -> None:
    ordered = order(media_types=(), area="quarantine")
    stored = await capture(source(b"<html>"), ordered, object_store, Row())
    assert stored.key == f"quarantine/{ordered.job_id}/master.{ordered.lease_token}.bin"


@pytest.mark.parametrize("content", [SMALL, BIG])
async def test_a_row_that_refuses_ends_the_copy(object_store: ObjectStore, content: bytes) -> None:
    ordered = order()
    with pytest.raises(LookupError):
        await capture(source(content), ordered, object_store, Row(LookupError("lease lost")))
    assert await leftovers(object_store, ordered) == []


async def test_a_source_that_breaks_ends_the_copy(object_store: ObjectStore) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield BIG
        raise ConnectionError

    ordered = order()
    with pytest.raises(ConnectionError):
        await capture(breaking(), ordered, object_store, Row())
    assert await leftovers(object_store, ordered) == []


async def test_a_cancelled_copy_leaves_no_upload_open(object_store: ObjectStore) -> None:
    is_under_way = asyncio.Event()

    async def pausing() -> AsyncIterator[bytes]:
        yield BIG
        is_under_way.set()
        await asyncio.Event().wait()

    ordered = order()
    task = asyncio.create_task(capture(pausing(), ordered, object_store, Row()))
    await is_under_way.wait()
    assert await leftovers(object_store, ordered) != []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await leftovers(object_store, ordered) == []


async def test_an_upload_that_was_swept_away_ends_the_copy(object_store: ObjectStore) -> None:
    ordered = order()

    async def swept() -> AsyncIterator[bytes]:
        yield BIG[: PART + 1]
        prefix = f"results/{ordered.job_id}/"
        async for upload in object_store.list_multipart_uploads(prefix):
            await object_store.abort_multipart(upload.key, upload.upload_id)
        yield BIG

    with pytest.raises(Unavailable):
        await capture(swept(), ordered, object_store, Row())


async def test_an_abort_that_fails_does_not_hide_why(storage_settings: StorageSettings) -> None:
    rule: Rule = lambda r: Answer(403, "AccessDenied") if r.method == "DELETE" else None  # noqa: E731
    async with through_relay(storage_settings, rule) as store:
        ordered = order()
        with pytest.raises(LookupError):
            await capture(source(BIG), ordered, store, Row(LookupError("lease lost")))
        assert await leftovers(store, ordered) != []


def completes(request: Request) -> bool:
    is_last_call = request.method == "POST" and "uploadId=" in request.target
    return is_last_call or (request.method == "PUT" and "partNumber=" not in request.target)


@pytest.mark.parametrize("content", [SMALL, BIG])
async def test_a_lost_completion_is_unclear_and_the_next_lease_adopts_it(
    storage_settings: StorageSettings, object_store: ObjectStore, content: bytes
) -> None:
    ordered, row = order(), Row()
    rule: Rule = lambda r: CutAnswer() if completes(r) else None  # noqa: E731
    async with through_relay(storage_settings, rule) as store:
        with pytest.raises(CompletionUnclear):
            await capture(source(content), ordered, store, row)
    state = await complete_prepared(object_store, row.prepared[0])
    assert state is ObjectState.equal
    assert await content_of(object_store, row.prepared[0].key) == content


async def test_a_completion_that_never_arrived_is_made_by_the_next_lease(
    storage_settings: StorageSettings, object_store: ObjectStore
) -> None:
    ordered, row = order(), Row()
    rule: Rule = lambda r: Answer(503, "SlowDown") if completes(r) else None  # noqa: E731
    async with through_relay(storage_settings, rule) as store:
        with pytest.raises(CompletionUnclear):
            await capture(source(BIG), ordered, store, row)
    assert await object_store.head(row.prepared[0].key) is None
    assert await complete_prepared(object_store, row.prepared[0]) is ObjectState.equal


async def test_a_small_completion_that_never_arrived_is_absent(
    storage_settings: StorageSettings, object_store: ObjectStore
) -> None:
    row = Row()
    rule: Rule = lambda r: Answer(503, "SlowDown") if completes(r) else None  # noqa: E731
    async with through_relay(storage_settings, rule) as store:
        with pytest.raises(CompletionUnclear):
            await capture(source(SMALL), order(), store, row)
    assert await complete_prepared(object_store, row.prepared[0]) is ObjectState.absent


async def test_an_aborted_preparation_is_absent(object_store: ObjectStore) -> None:
    row = Row(LookupError("lease lost"))
    with pytest.raises(LookupError):
        await capture(source(BIG), order(), object_store, row)
    assert await complete_prepared(object_store, row.prepared[0]) is ObjectState.absent


async def test_other_bytes_under_the_key_are_told_apart(object_store: ObjectStore) -> None:
    async def overwrite(prepared: PreparedObject) -> None:
        assert prepared.upload_id is not None
        await object_store.abort_multipart(prepared.key, prepared.upload_id)
        await object_store.put_small(prepared.key, SMALL, "video/mp4")

    with pytest.raises(StoredDiffers):
        await capture(source(BIG), order(), object_store, overwrite)


async def test_memory_stays_flat_while_a_large_result_is_copied(object_store: ObjectStore) -> None:
    chunk = os.urandom(65_536)

    async def large() -> AsyncIterator[bytes]:
        yield MP4
        for _ in range(16 * 80):
            yield chunk

    tracemalloc.start()
    try:
        stored = await capture(large(), order(), object_store, Row())
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stored.bytes > 80 * 1024 * 1024
    assert peak_bytes < 6 * PART
