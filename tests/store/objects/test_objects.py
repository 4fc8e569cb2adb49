"""Every operation of the bucket against a real store, and the store's faults in our words."""

import hashlib
import os
import traceback
from collections.abc import Callable
from uuid import uuid4

import pytest

from shared.domain.errors import Unavailable
from shared.kit.settings import StorageSettings
from shared.media.layout import ExpectedObject, ObjectState, PartLayout
from shared.media.objects import ObjectMissing, ObjectStore, UploadGone, open_object_store, store
from tests.store.objects.relay import Answer, CutAnswer, Request, Rule, through_relay

PART = 5 * 1024 * 1024
PARTS = (os.urandom(PART), os.urandom(PART), os.urandom(1_000))
WHOLE = b"".join(PARTS)


def key(name: str = "clip.mp4") -> str:
    return f"results/{uuid4()}/{name}"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def read(object_store: ObjectStore, name: str, *span: int) -> bytes:
    return b"".join([chunk async for chunk in object_store.open_range(name, *span)])


async def upload_parts(object_store: ObjectStore, name: str) -> tuple[str, PartLayout]:
    upload = await object_store.start_multipart(name, "video/mp4")
    parts = [
        await object_store.upload_part(upload, number, body) for number, body in enumerate(PARTS, 1)
    ]
    return upload.upload_id, PartLayout(PART, upload.has_checksums, tuple(parts))


async def test_a_small_object_is_stored_with_its_digest(object_store: ObjectStore) -> None:
    name = key()
    await object_store.put_small(name, b"hello", "text/x-test")
    head = await object_store.head(name)
    assert head is not None
    assert (head.bytes, head.sha256, head.media_type) == (5, sha256(b"hello"), "text/x-test")
    verify = object_store.verify
    assert await verify(name, ExpectedObject(5, sha256(b"hello"), None)) is ObjectState.equal
    assert await verify(name, ExpectedObject(5, sha256(b"hallo"), None)) is ObjectState.unequal
    assert await verify(name, ExpectedObject(6, sha256(b"hello"), None)) is ObjectState.unequal
    assert await verify(name + "x", ExpectedObject(5, sha256(b"hello"), None)) is ObjectState.absent
    assert await object_store.head(name + "x") is None


async def test_a_multipart_object_is_proven_by_the_digests_of_its_parts(
    object_store: ObjectStore,
) -> None:
    name = key()
    upload_id, layout = await upload_parts(object_store, name)
    layout = PartLayout.from_json(layout.as_json())
    expected = ExpectedObject(len(WHOLE), sha256(WHOLE), layout)
    assert await object_store.verify(name, expected) is ObjectState.absent
    await object_store.complete_multipart(name, upload_id, layout)
    head = await object_store.head(name)
    assert head is not None
    assert head.sha256 is None
    assert head.sha256_of_parts == layout.sha256_of_parts
    assert head.etag == layout.etag
    assert await object_store.verify(name, expected) is ObjectState.equal
    swapped = PartLayout(PART, True, (layout.parts[1], layout.parts[0], layout.parts[2]))
    other = ExpectedObject(len(WHOLE), sha256(WHOLE), swapped)
    assert await object_store.verify(name, other) is ObjectState.unequal
    assert await read(object_store, name) == WHOLE


async def test_ranges_are_inclusive_and_may_be_left_early(object_store: ObjectStore) -> None:
    name = key()
    await object_store.put_small(name, WHOLE[:200_000], "video/mp4")
    assert await read(object_store, name, 10, 19) == WHOLE[10:20]
    assert await read(object_store, name, 199_990) == WHOLE[199_990:200_000]
    assert await read(object_store, name, 0, 0) == WHOLE[:1]
    chunks = object_store.open_range(name)
    assert len(await anext(chunks)) > 0
    await chunks.aclose()
    with pytest.raises(ObjectMissing):
        await read(object_store, name + "x")


async def test_an_aborted_upload_is_gone_and_aborting_again_is_no_fault(
    object_store: ObjectStore,
) -> None:
    name = key()
    upload = await object_store.start_multipart(name, "video/mp4")
    part = await object_store.upload_part(upload, 1, b"x")
    listed = [open_ async for open_ in object_store.list_multipart_uploads(name)]
    assert [(one.key, one.upload_id) for one in listed] == [(name, upload.upload_id)]
    await object_store.abort_multipart(name, upload.upload_id)
    await object_store.abort_multipart(name, upload.upload_id)
    assert [one async for one in object_store.list_multipart_uploads(name)] == []
    with pytest.raises(UploadGone):
        await object_store.upload_part(upload, 1, b"x")
    with pytest.raises(UploadGone):
        await object_store.complete_multipart(
            name, upload.upload_id, PartLayout(PART, True, (part,))
        )
    assert await object_store.head(name) is None


async def test_a_listing_holds_the_prefix_and_nothing_else(object_store: ObjectStore) -> None:
    name = key("a")
    prefix = name.rsplit("/", 1)[0] + "/"
    for letter in "abc":
        await object_store.put_small(prefix + letter, letter.encode() * 3, "text/x-test")
    await object_store.put_small(key(), b"elsewhere", "text/x-test")
    listed = [one async for one in object_store.list_prefix(prefix)]
    assert [(one.key, one.bytes) for one in listed] == [(prefix + c, 3) for c in "abc"]
    assert all(one.modified_at.tzinfo for one in listed)


async def test_a_copy_is_the_same_bytes(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = key()
    await object_store.put_small(name, WHOLE, "video/mp4")
    target = name.replace("results/", "quarantine/")
    await object_store.copy(name, target)
    assert sha256(await read(object_store, target)) == sha256(WHOLE)
    monkeypatch.setattr(store, "COPY_BYTES_MAX", PART)
    monkeypatch.setattr(store, "COPY_PART_BYTES", PART)
    await object_store.copy(name, target + "2")
    head = await object_store.head(target + "2")
    assert head is not None
    assert (head.bytes, head.media_type) == (len(WHOLE), "video/mp4")
    assert sha256(await read(object_store, target + "2")) == sha256(WHOLE)
    with pytest.raises(ObjectMissing):
        await object_store.copy(name + "x", target)


async def test_a_private_bucket_refuses_strangers(object_store: ObjectStore) -> None:
    await object_store.put_small(key(), b"hello", "text/x-test")
    assert await object_store.is_private()


def unsigned(request: Request) -> bool:
    return "authorization" not in request.headers


@pytest.mark.parametrize(
    "rule",
    [
        lambda r: Answer(200) if unsigned(r) and "list-type" in r.target else None,
        lambda r: Answer(200) if unsigned(r) and "list-type" not in r.target else None,
        lambda r: Answer(404, "NoSuchKey") if unsigned(r) and "list-type" not in r.target else None,
    ],
    ids=["list", "get", "honest_404"],
)
async def test_a_bucket_that_answers_strangers_is_not_private(
    storage_settings: StorageSettings, rule: Rule
) -> None:
    async with through_relay(storage_settings, rule) as object_store:
        assert not await object_store.is_private()


async def test_a_store_in_trouble_is_not_called_private(storage_settings: StorageSettings) -> None:
    rule: Rule = lambda r: Answer(500, "InternalError") if unsigned(r) else None  # noqa: E731
    async with through_relay(storage_settings, rule) as object_store:
        with pytest.raises(Unavailable):
            await object_store.is_private()


def dislikes_checksums(status: int, code: str) -> Rule:
    names = ("x-amz-checksum-sha256", "x-amz-checksum-algorithm")
    return lambda r: Answer(status, code) if any(name in r.headers for name in names) else None


@pytest.mark.parametrize(
    ("status", "code"),
    [(501, "NotImplemented"), (400, "InvalidArgument"), (403, "SignatureDoesNotMatch")],
)
async def test_a_store_without_checksums_is_served_and_still_proven(
    storage_settings: StorageSettings, status: int, code: str
) -> None:
    async with through_relay(storage_settings, dislikes_checksums(status, code)) as object_store:
        small, big = key(), key()
        upload_id, layout = await upload_parts(object_store, big)
        assert not layout.has_checksums
        await object_store.complete_multipart(big, upload_id, layout)
        expected = ExpectedObject(len(WHOLE), sha256(WHOLE), layout)
        assert await object_store.verify(big, expected) is ObjectState.equal
        await object_store.put_small(small, b"hello", "text/x-test")
        head = await object_store.head(small)
        assert head is not None
        assert head.sha256 is None
        verify = object_store.verify
        assert await verify(small, ExpectedObject(5, sha256(b"hello"), None)) is ObjectState.equal
        assert await verify(small, ExpectedObject(5, sha256(b"hallo"), None)) is ObjectState.unequal


async def test_bytes_damaged_on_the_way_are_no_reason_to_do_without_checksums(
    storage_settings: StorageSettings,
) -> None:
    async with through_relay(
        storage_settings, dislikes_checksums(400, "BadDigest")
    ) as object_store:
        with pytest.raises(Unavailable, match="BadDigest"):
            await object_store.put_small(key(), b"hello", "text/x-test")
        with pytest.raises(Unavailable, match="BadDigest"):
            await object_store.start_multipart(key(), "video/mp4")


async def test_an_object_that_goes_while_it_is_read_back_is_absent(
    storage_settings: StorageSettings,
) -> None:
    def rule(request: Request) -> Answer | None:
        if "x-amz-checksum-sha256" in request.headers:
            return Answer(501, "NotImplemented")
        return Answer(404, "NoSuchKey") if request.method == "GET" else None

    async with through_relay(storage_settings, rule) as object_store:
        name = key()
        await object_store.put_small(name, b"hello", "text/x-test")
        expected = ExpectedObject(5, sha256(b"hello"), None)
        assert await object_store.verify(name, expected) is ObjectState.absent


CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda s: s.put_small(key(), b"x", "text/x-test"),
    "start_multipart": lambda s: s.start_multipart(key(), "video/mp4"),
    "head": lambda s: s.head(key()),
    "list": lambda s: anext(s.list_prefix("results/")),
    "get": lambda s: anext(s.open_range(key())),
    "is_private": lambda s: s.is_private(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_store_that_is_away_is_unavailable_without_its_address(
    storage_settings: StorageSettings, name: str
) -> None:
    away = storage_settings.model_copy(update={"s3_endpoint_url": "http://127.0.0.1:9"})
    async with open_object_store(away) as object_store:
        with pytest.raises(Unavailable) as trouble:
            await CALLS[name](object_store)  # type: ignore[misc]
    assert "127.0.0.1" not in "".join(traceback.format_exception(trouble.value))


async def test_wrong_keys_are_named_by_the_code_alone(storage_settings: StorageSettings) -> None:
    wrong = storage_settings.model_copy(update={"s3_access_key_id": "nobody"})
    async with open_object_store(wrong) as object_store:
        with pytest.raises(Unavailable) as trouble:
            await object_store.put_small(key(), b"x", "text/x-test")
    assert str(trouble.value) == "the object store refused put: InvalidAccessKeyId"


async def test_an_error_without_a_proper_code_is_named_by_its_status(
    storage_settings: StorageSettings,
) -> None:
    rule: Rule = lambda r: Answer(404, "see https://x/?sig=1") if r.method == "PUT" else None  # noqa: E731
    async with through_relay(storage_settings, rule) as object_store:
        with pytest.raises(Unavailable) as trouble:
            await object_store.put_small(key(), b"x", "text/x-test")
    assert str(trouble.value) == "the object store refused put: HTTP 404"


async def test_a_lost_answer_is_unavailable(storage_settings: StorageSettings) -> None:
    rule: Rule = lambda r: CutAnswer() if r.method == "PUT" else None  # noqa: E731
    async with through_relay(storage_settings, rule) as object_store:
        name = key()
        with pytest.raises(Unavailable, match="did not answer put"):
            await object_store.put_small(name, b"hello", "text/x-test")
        assert await object_store.head(name) is not None


async def test_a_read_that_breaks_off_is_unavailable_and_never_an_end(
    storage_settings: StorageSettings,
) -> None:
    rule: Rule = lambda r: CutAnswer(100_000) if r.method == "GET" else None  # noqa: E731
    async with through_relay(storage_settings, rule) as object_store:
        name = key()
        await object_store.put_small(name, WHOLE, "video/mp4")
        with pytest.raises(Unavailable, match="did not answer get"):
            await read(object_store, name)


async def test_proxy_variables_have_no_say(
    storage_settings: StorageSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    async with open_object_store(storage_settings) as object_store:
        await object_store.put_small(key(), b"hello", "text/x-test")
