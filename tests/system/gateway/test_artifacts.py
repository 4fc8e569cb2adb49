"""Bytes of artifacts, from a real bucket through the gateway."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from services.gateway.desk import Desk
from services.gateway.streaming import StreamedBytes
from shared.domain.errors import Unavailable
from shared.kit.settings import StorageSettings
from shared.media.objects import ObjectStore, open_object_store
from shared.store.pool import Database
from shared.store.transitions import capture
from tests.store.rows import capture_lease, capturing, landed, lease_of
from tests.system.gateway.bench import Caller, assert_problem, caller, http_client

CONTENT = bytes(range(256)) * 1200
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ETAG = f'"{SHA256}"'


async def stored(database: Database, store: ObjectStore | None, size: int = len(CONTENT)) -> UUID:
    """A succeeded job whose artifact is in the bucket; without a store, in the row alone."""
    name = "master"
    job = await capture_lease(database, await capturing(database))
    key = f"results/{job.id}/{name}.{job.lease_token}.mp4"
    if store is not None:
        await store.put_small(key, CONTENT, "video/mp4")
    prepared = capture.NewArtifact(name, "video/mp4", size, SHA256, key, None, None)
    landed(await capture.capture_prepared(database, job, prepared))
    landed(
        await capture.result_stored(
            database,
            job,
            manifest_key=f"results/{job.id}/manifest.{job.lease_token}.json",
            artifacts=[(name, lease_of(job))],
            lifetime=timedelta(days=7),
        )
    )
    return job.id


@pytest.fixture
async def href(database: Database, object_store: ObjectStore) -> str:
    """The path of a stored artifact."""
    return f"/v1/jobs/{await stored(database, object_store)}/artifacts/master"


async def test_the_whole_artifact_with_headers_that_disarm_it(owner: Caller, href: str) -> None:
    answer = await owner.http.get(href)
    assert answer.status_code == 200
    assert answer.content == CONTENT
    assert {name: answer.headers[name] for name in answer.headers if name != "x-request-id"} == {
        "content-type": "video/mp4",
        "content-length": str(len(CONTENT)),
        "etag": ETAG,
        "accept-ranges": "bytes",
        "cache-control": "private, no-cache",
        "content-disposition": 'attachment; filename="master.mp4"',
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "content-security-policy": "default-src 'none'; sandbox",
        "cross-origin-resource-policy": "same-site",
    }
    head = await owner.http.head(href, headers={"Range": "bytes=0-9"})
    assert (head.status_code, head.content) == (200, b"")
    without_id = dict(head.headers) | {"x-request-id": answer.headers["x-request-id"]}
    assert without_id == dict(answer.headers)


async def test_single_ranges(owner: Caller, href: str) -> None:
    size = len(CONTENT)
    cases = {
        "bytes=0-0": (0, 0),
        "bytes=100-70000": (100, 70000),
        f"bytes={size - 1}-": (size - 1, size - 1),
        "bytes=5-": (5, size - 1),
        "bytes=-7": (size - 7, size - 1),
        f"bytes=-{size + 5}": (0, size - 1),
        f"bytes=9-{size + 5}": (9, size - 1),
        "BYTES=3-4": (3, 4),
    }
    for asked, (start, end) in cases.items():
        answer = await owner.http.get(href, headers={"Range": asked})
        assert answer.status_code == 206, asked
        assert answer.headers["content-range"] == f"bytes {start}-{end}/{size}"
        assert answer.headers["content-length"] == str(end - start + 1)
        assert answer.content == CONTENT[start : end + 1]
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


async def test_ranges_that_are_ignored_or_lie_outside(owner: Caller, href: str) -> None:
    for asked in ("bytes=0-1,5-6", "lines=0-1", "bytes=", "bytes=-", "bytes=9-3", "bytes=a-b"):
        answer = await owner.http.get(href, headers={"Range": asked})
        assert (answer.status_code, answer.content) == (200, CONTENT), asked
    for asked in (f"bytes={len(CONTENT)}-", "bytes=-0"):
        answer = await owner.http.get(href, headers={"Range": asked})
        assert_problem(answer, 416, "range_not_satisfiable")
        assert answer.headers["content-range"] == f"bytes */{len(CONTENT)}"


async def test_a_range_of_another_artifact_is_not_mixed_in(owner: Caller, href: str) -> None:
    for tag, status in ((ETAG, 206), ('"other"', 200), (f"W/{ETAG}", 200)):
        headers = {"Range": "bytes=0-9", "If-Range": tag}
        assert (await owner.http.get(href, headers=headers)).status_code == status
    same = await owner.http.get(href, headers={"If-None-Match": ETAG})
    assert (same.status_code, same.content) == (304, b"")


async def test_only_the_owner_reads_and_only_what_is_there(
    owner: Caller, desk: Desk, href: str, database: Database
) -> None:
    stranger = await caller(desk, "owner-2")
    assert_problem(await stranger.http.get(href), 404, "not_found")
    for odd in ("x", "%00", "%ff", "%ED%A0%80", "x" * 5000):
        assert_problem(await owner.http.get(href + odd), 404, "not_found")
    async with database.connection() as connection:
        await connection.execute("UPDATE jobs SET purged_at = clock_timestamp()")
    assert_problem(await owner.http.get(href), 410, "gone")
    assert_problem(await owner.http.get(href + "x"), 410, "gone")
    assert_problem(await stranger.http.get(href), 404, "not_found")


async def test_an_object_that_is_missing_is_our_fault(owner: Caller, database: Database) -> None:
    job_id = await stored(database, None)
    answer = await owner.http.get(f"/v1/jobs/{job_id}/artifacts/master")
    assert_problem(answer, 500, "internal_error")


async def test_a_bucket_that_is_away(
    desk: Desk, href: str, storage_settings: StorageSettings, owner: Caller
) -> None:
    nowhere = storage_settings.model_copy(update={"s3_endpoint_url": "http://127.0.0.1:9"})
    async with open_object_store(nowhere) as store:
        client = http_client(replace(desk, store=store), **dict(owner.http.headers))
        answer = await client.get(href)
        assert_problem(answer, 503, "unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert (await client.head(href)).status_code == 200


class _Bucket:
    """A stream of pieces that notes how far it was read and that it was closed."""

    def __init__(self, pieces: int, breaks_at: int | None = None) -> None:
        self.read = 0
        self.is_closed = False
        self.is_under_way = asyncio.Event()
        self._pieces, self._breaks_at = pieces, breaks_at

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The pieces."""
        try:
            for at in range(self._pieces):
                if at == self._breaks_at:
                    raise Unavailable
                self.read += 1
                self.is_under_way.set()
                yield b"piece"
                await asyncio.sleep(0)
        finally:
            self.is_closed = True


async def _played(bucket: _Bucket, leaves_after: int) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == leaves_after:
            gone.set()

    answer = StreamedBytes(b"first", bucket.stream(), 200, {"Content-Length": "9"}, "video/mp4")
    await answer({"type": "http"}, receive, send)
    return sent


async def test_a_caller_who_leaves_ends_the_reading_from_the_bucket() -> None:
    bucket = _Bucket(pieces=1000)
    sent = await _played(bucket, leaves_after=5)
    assert bucket.is_closed
    assert bucket.read < 20
    assert all(message.get("more_body", True) for message in sent)


async def test_a_body_that_breaks_off_is_never_ended_as_if_it_were_whole() -> None:
    bucket = _Bucket(pieces=10, breaks_at=3)
    sent = await _played(bucket, leaves_after=0)
    assert bucket.is_closed
    assert [message["type"] for message in sent[:2]] == [
        "http.response.start",
        "http.response.body",
    ]
    assert all(message["more_body"] for message in sent[1:])


async def test_a_room_that_stops_closes_the_stream() -> None:
    bucket = _Bucket(pieces=10**9)
    playing = asyncio.create_task(_played(bucket, leaves_after=0))
    await bucket.is_under_way.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert bucket.is_closed
