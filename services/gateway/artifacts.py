"""The bytes of an artifact, from the bucket through us to its owner.

Promises that the owner is checked on every request, that a browser never runs what it gets
(the type is ours, sniffed at capture; sandboxed, not sniffed, offered as a download), and that
no bucket address or key leaves the house.
"""

import re

from starlette.requests import Request
from starlette.responses import Response

from services.gateway.auth import Reader
from services.gateway.conditions import Slice, Unsatisfiable, Whole, asked_part, is_known
from services.gateway.desk import Desk, desk_of
from services.gateway.jobids import read_job_id
from services.gateway.problems import Problem
from services.gateway.streaming import StreamedBytes
from shared.domain.errors import Unavailable
from shared.kit.logs import get_logger
from shared.media.objects import ObjectMissing
from shared.store.queries import StoredArtifact, own_artifact, own_job

UNAVAILABLE_RETRY_SECONDS = 5

_NAME = re.compile(r"[a-z0-9_-]{1,80}")

_log = get_logger()


async def fetch_artifact(request: Request, id: str, name: str, principal: Reader) -> Response:
    """The artifact, or a part of it, or only its headers."""
    desk = desk_of(request)
    artifact = await _owned_artifact(desk, id, name, principal.owner_id)
    etag = f'"{artifact.sha256}"'
    headers = _headers(artifact, etag)
    asked = request.headers
    if is_known(asked.getlist("if-none-match"), etag):
        return Response(None, 304, headers)
    if request.method == "HEAD":
        headers["Content-Length"] = str(artifact.bytes)
        return Response(None, 200, headers, media_type=artifact.media_type)
    part = asked_part(
        asked.getlist("range"), asked.getlist("if-range"), size=artifact.bytes, etag=etag
    )
    match part:
        case Unsatisfiable():
            raise Problem(
                "range_not_satisfiable", headers={"Content-Range": f"bytes */{artifact.bytes}"}
            )
        case Whole():
            headers["Content-Length"] = str(artifact.bytes)
        case Slice(start, end):
            headers["Content-Length"] = str(part.bytes)
            headers["Content-Range"] = f"bytes {start}-{end}/{artifact.bytes}"
    return await _streamed(desk, artifact, part, headers)


async def _owned_artifact(desk: Desk, id: str, name: str, owner_id: str) -> StoredArtifact:
    job_id = read_job_id(id)
    # A name outside the alphabet was never stored; the database may not even take it as text.
    if _NAME.fullmatch(name):
        found = await own_artifact(desk.database, job_id, name, owner_id)
        if found is not None and not found[1]:
            return found[0]
    owned = await own_job(desk.database, job_id, owner_id)
    is_purged = owned is not None and owned.job.purged_at is not None
    raise Problem("gone" if is_purged else "not_found")


def _headers(artifact: StoredArtifact, etag: str) -> dict[str, str]:
    extension = artifact.key.rpartition(".")[2]
    return {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        # Name and extension are of our own alphabets, so the plain quoted form is enough.
        "Content-Disposition": f'attachment; filename="{artifact.name}.{extension}"',
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cross-Origin-Resource-Policy": "same-site",
    }


async def _streamed(
    desk: Desk, artifact: StoredArtifact, part: Slice | Whole, headers: dict[str, str]
) -> Response:
    if isinstance(part, Slice):
        status, stream = 206, desk.store.open_range(artifact.key, part.start, part.end)
    else:
        status, stream = 200, desk.store.open_range(artifact.key)
    try:
        # The first piece comes before the status goes out, so that trouble has its own answer.
        first = await anext(stream)
    except Unavailable as error:
        desk.store_outage.failed(error)
        retry = {"Retry-After": str(UNAVAILABLE_RETRY_SECONDS)}
        raise Problem("unavailable", headers=retry) from error
    except (ObjectMissing, StopAsyncIteration) as error:
        _log.error("artifact_object_missing", artifact=artifact.name)
        raise Problem("internal_error") from error
    desk.store_outage.worked()
    return StreamedBytes(first, stream, status, headers, artifact.media_type)
