"""The bucket's operations, one method each.

Owns every call to the store. It promises constant memory (at most a part per call), explicit
SHA-256 checksums where the store takes them (Content-MD5 where it does not), and trouble as
`Unavailable` without URL or signature. Keys are made by the callers from our own ids. It
decides nothing: which keys count is said by rows.
"""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from shared.media.layout import (
    ExpectedObject,
    ListedObject,
    ObjectHead,
    ObjectState,
    OpenUpload,
    Part,
    PartLayout,
    compare,
)
from shared.media.objects.digests import hex_to_b64, md5_b64, read_checksum, sha256_b64
from shared.media.objects.trouble import (
    ObjectMissing,
    UploadGone,
    code_of,
    may_dislike_checksums,
    status_of,
    store_call,
)

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

CHUNK_BYTES = 65_536
COPY_BYTES_MAX = 5 * 1024**3
COPY_PART_BYTES = 1024**3

T = TypeVar("T")


@dataclass(frozen=True)
class MultipartUpload:
    """An upload under way; `has_checksums` says whether the store takes SHA-256s with it."""

    key: str
    upload_id: str
    has_checksums: bool


class ObjectStore:
    """The bucket. Every method raises Unavailable when the store does not do its part."""

    def __init__(self, client: "S3Client", unsigned: "S3Client", bucket: str) -> None:
        self._client = client
        self._unsigned = unsigned
        self._bucket = bucket
        self._takes_checksums = True

    async def put_small(self, key: str, body: bytes, media_type: str) -> None:
        """Stores `body` in one request, checked by the store on arrival."""
        call: dict[str, Any] = {
            "Bucket": self._bucket,
            "Key": key,
            "Body": body,
            "ContentType": media_type,
        }
        with store_call("put"):
            await self._with_checksums(
                lambda: self._client.put_object(**call, ChecksumSHA256=sha256_b64(body)),
                lambda: self._client.put_object(**call, ContentMD5=md5_b64(body)),
            )

    async def start_multipart(self, key: str, media_type: str) -> MultipartUpload:
        """Opens an upload; whoever opens it completes or aborts it."""
        call: dict[str, Any] = {"Bucket": self._bucket, "Key": key, "ContentType": media_type}
        open_upload = self._client.create_multipart_upload
        with store_call("start_multipart"):
            opened, has_checksums = await self._with_checksums(
                lambda: open_upload(**call, ChecksumAlgorithm="SHA256"),
                lambda: open_upload(**call),
            )
        return MultipartUpload(key, opened["UploadId"], has_checksums)

    async def upload_part(self, upload: MultipartUpload, number: int, body: bytes) -> Part:
        """Sends part `number` (from 1). Raises UploadGone when the upload has ended."""
        digest: dict[str, Any] = (
            {"ChecksumSHA256": sha256_b64(body)}
            if upload.has_checksums
            else {"ContentMD5": md5_b64(body)}
        )
        with store_call("upload_part"):
            sent = await self._client.upload_part(
                Bucket=self._bucket,
                Key=upload.key,
                UploadId=upload.upload_id,
                PartNumber=number,
                Body=body,
                **digest,
            )
        return Part(sent["ETag"].strip('"'), hashlib.sha256(body).hexdigest())

    async def complete_multipart(self, key: str, upload_id: str, layout: PartLayout) -> None:
        """Makes the parts one object. Raises UploadGone; after Unavailable the outcome is open.

        Completing again what was completed may succeed or raise UploadGone: ask `verify`.
        """
        parts: list[Any] = [
            {"PartNumber": number, "ETag": f'"{part.etag}"'}
            | ({"ChecksumSHA256": hex_to_b64(part.sha256)} if layout.has_checksums else {})
            for number, part in enumerate(layout.parts, start=1)
        ]
        with store_call("complete_multipart"):
            await self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={"Parts": parts},
            )

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        """Drops an upload and its parts. An upload that has ended already is left alone."""
        try:
            with store_call("abort_multipart"):
                await self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=key, UploadId=upload_id
                )
        except UploadGone:
            return

    async def head(self, key: str) -> ObjectHead | None:
        """Size and checksums of an object, or None when there is none."""
        try:
            with store_call("head"):
                told = await self._client.head_object(
                    Bucket=self._bucket, Key=key, ChecksumMode="ENABLED"
                )
        except ObjectMissing:
            return None
        whole, of_parts = read_checksum(told.get("ChecksumSHA256"))
        return ObjectHead(
            bytes=told["ContentLength"],
            etag=told["ETag"].strip('"'),
            sha256=whole,
            sha256_of_parts=of_parts,
            media_type=told.get("ContentType"),
        )

    async def verify(self, key: str, expected: ExpectedObject) -> ObjectState:
        """Whether the object is there and is what was sent; reads it only as a last resort."""
        head = await self.head(key)
        if head is None:
            return ObjectState.absent
        state = compare(head, expected)
        if state is not None:
            return state
        digest = hashlib.sha256()
        try:
            async for chunk in self.open_range(key):
                digest.update(chunk)
        except ObjectMissing:
            return ObjectState.absent
        return ObjectState.equal if digest.hexdigest() == expected.sha256 else ObjectState.unequal

    async def open_range(
        self, key: str, start: int = 0, end: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Bytes `start` to `end` inclusive in small pieces. Raises ObjectMissing on the first."""
        asked: dict[str, Any] = {}
        if start or end is not None:
            asked["Range"] = f"bytes={start}-{'' if end is None else end}"
        with store_call("get"):
            answer = await self._client.get_object(Bucket=self._bucket, Key=key, **asked)
            body = answer["Body"]
            async with body:  # leaving early drops the connection instead of reading on
                async for chunk in body.iter_chunks(CHUNK_BYTES):
                    yield chunk

    async def list_prefix(self, prefix: str) -> AsyncGenerator[ListedObject, None]:
        """All objects whose key starts with `prefix`, in key order."""
        with store_call("list"):
            pages = self._client.get_paginator("list_objects_v2")
            async for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for item in page.get("Contents", []):
                    yield ListedObject(item["Key"], item["Size"], item["LastModified"])

    async def list_multipart_uploads(self, prefix: str) -> AsyncGenerator[OpenUpload, None]:
        """All unfinished uploads whose key starts with `prefix`."""
        with store_call("list_uploads"):
            pages = self._client.get_paginator("list_multipart_uploads")
            async for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for item in page.get("Uploads", []):
                    yield OpenUpload(item["Key"], item["UploadId"], item["Initiated"])

    async def copy(self, source: str, target: str) -> None:
        """Copies inside the bucket without moving bytes here. Raises ObjectMissing."""
        head = await self.head(source)
        if head is None:
            raise ObjectMissing
        if head.bytes > COPY_BYTES_MAX:
            await self._copy_in_parts(source, target, head)
            return
        with store_call("copy"):
            await self._client.copy_object(
                Bucket=self._bucket, Key=target, CopySource=self._source(source)
            )

    async def is_private(self) -> bool:
        """Whether the bucket refuses an unsigned LIST and an unsigned GET.

        An object that exists is asked for if there is one; an honest 404 to a stranger means
        that strangers may look, so it counts as an answer.
        """
        key = "results/none"
        async with aclosing(self.list_prefix("")) as listing:
            async for listed in listing:
                key = listed.key
                break
        with store_call("is_private"):
            return await self._refuses(
                self._unsigned.list_objects_v2(Bucket=self._bucket, MaxKeys=1)
            ) and await self._refuses(
                self._unsigned.get_object(Bucket=self._bucket, Key=key, Range="bytes=0-0")
            )

    async def _with_checksums(
        self, checked: Callable[[], Awaitable[T]], plain: Callable[[], Awaitable[T]]
    ) -> tuple[T, bool]:
        """The checked call's answer; where the store dislikes that, the plain one's, for good."""
        if self._takes_checksums:
            try:
                return await checked(), True
            except ClientError as error:
                if not may_dislike_checksums(error):
                    raise
        answer = await plain()
        self._takes_checksums = False
        return answer, False

    @staticmethod
    async def _refuses(call: Any) -> bool:
        try:
            await call
        except ClientError as error:
            status = status_of(error)
            if status >= 500:
                raise
            return status != 404 and code_of(error) != "InvalidRange"
        return False

    async def _copy_in_parts(self, source: str, target: str, head: ObjectHead) -> None:
        with store_call("copy"):
            opened = await self._client.create_multipart_upload(
                Bucket=self._bucket,
                Key=target,
                ContentType=head.media_type or "application/octet-stream",
            )
            parts: list[Any] = []
            for number, start in enumerate(range(0, head.bytes, COPY_PART_BYTES), start=1):
                end = min(start + COPY_PART_BYTES, head.bytes) - 1
                copied = await self._client.upload_part_copy(
                    Bucket=self._bucket,
                    Key=target,
                    UploadId=opened["UploadId"],
                    PartNumber=number,
                    CopySource=self._source(source),
                    CopySourceRange=f"bytes={start}-{end}",
                )
                parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
            await self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=target,
                UploadId=opened["UploadId"],
                MultipartUpload={"Parts": parts},
            )

    def _source(self, key: str) -> Any:
        return {"Bucket": self._bucket, "Key": key}
