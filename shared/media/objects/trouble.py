"""The store's errors in our words.

Owns the translation: what the store or the way to it throws becomes `Unavailable`, a missing
object `ObjectMissing`, an upload that has ended `UploadGone`. It promises texts made of an
operation's name and the store's error code; the client's own texts hold URLs and stay inside.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import ClientError as HttpClientError
from botocore.exceptions import BotoCoreError, ClientError

from shared.domain.errors import CoatcheckError, Unavailable

_CODE = re.compile(r"[A-Za-z0-9]{1,64}")
_DIGEST_WAS_WRONG = frozenset({"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch"})


class ObjectMissing(CoatcheckError):
    """There is no such object in the bucket."""


class UploadGone(Unavailable):
    """The multipart upload was completed or aborted before."""


@contextmanager
def store_call(operation: str) -> Iterator[None]:
    """Runs calls to the store. Raises Unavailable, ObjectMissing or UploadGone."""
    try:
        yield
    except ClientError as error:
        code = code_of(error)
        if code == "NoSuchUpload":
            raise UploadGone from None
        if code in ("NoSuchKey", "404"):
            raise ObjectMissing from None
        raise Unavailable(f"the object store refused {operation}: {code}") from None
    except (BotoCoreError, HttpClientError, OSError) as error:
        name = type(error).__name__
        raise Unavailable(f"the object store did not answer {operation}: {name}") from None


def code_of(error: ClientError) -> str:
    """The store's error code, if it is one word; else the HTTP status."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    return code if _CODE.fullmatch(code) else f"HTTP {status_of(error)}"


def status_of(error: ClientError) -> int:
    """The HTTP status of the answer; 500 where there is none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))


def may_dislike_checksums(error: ClientError) -> bool:
    """Whether the same request without checksum headers could fare better.

    Stores without these headers answer in many ways, some as if the credentials were bad. A
    digest that did not fit is no dislike: then the bytes were damaged on the way.
    """
    return status_of(error) in (400, 403, 501) and code_of(error) not in _DIGEST_WAS_WRONG
