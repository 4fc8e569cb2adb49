"""The whole way of a result: from a host on loopback, through the fetch rules, into the bucket."""

import hashlib
import os
from uuid import uuid4

import pytest

from shared.kit.fetch import (
    FetchLimits,
    FetchRefused,
    FetchRules,
    Verdict,
    open_result,
    private_targets,
)
from shared.media.capture import CaptureOrder, PreparedObject, capture
from shared.media.objects import ObjectStore
from tests.unit.fetch.loopback import says, scripted_host

CLIP = b"\x00\x00\x00\x20ftypisom\x00\x00\x02\x00isomiso2avc1mp41" + os.urandom(20 * 1024 * 1024)
LIMITS = FetchLimits(bytes_max=100_000_000, total_seconds=120)


def order() -> CaptureOrder:
    return CaptureOrder(
        job_id=str(uuid4()),
        artifact="master",
        lease_token=str(uuid4()),
        bytes_max=LIMITS.bytes_max,
        media_types=("video/mp4",),
    )


async def take(prepared: PreparedObject) -> None:
    return


async def copy(answer_body: bytes, ordered: CaptureOrder, store: ObjectStore) -> PreparedObject:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CLIP)
    async with scripted_host(says(head, answer_body)) as host:
        place = f"127.0.0.1:{host.port}"
        rules = FetchRules(hosts=(), private_targets=private_targets([place]))
        async with open_result(f"http://{place}/clip.mp4", rules, LIMITS) as result:
            return await capture(result.chunks, ordered, store, take)


async def test_a_served_result_stands_in_the_bucket(object_store: ObjectStore) -> None:
    stored = await copy(CLIP, order(), object_store)
    assert stored.sha256 == hashlib.sha256(CLIP).hexdigest()
    digest = hashlib.sha256()
    async for chunk in object_store.open_range(stored.key):
        digest.update(chunk)
    assert digest.hexdigest() == stored.sha256


async def test_a_transfer_that_breaks_off_leaves_nothing(object_store: ObjectStore) -> None:
    ordered = order()
    with pytest.raises(FetchRefused) as refused:
        await copy(CLIP[:-1], ordered, object_store)
    assert refused.value.verdict is Verdict.body_short
    prefix = f"results/{ordered.job_id}/"
    assert [one async for one in object_store.list_prefix(prefix)] == []
    assert [one async for one in object_store.list_multipart_uploads(prefix)] == []
