"""The routes of jobs: hand in, look, cancel, result.

Promises that a refused request writes nothing and burns no key, that the same request gives
the same job, and that a job is shown to its owner alone: a malformed id, a missing job and a
foreign one get the same answer. Must never talk to Kafka or to a provider.
"""

from typing import assert_never
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from uuid_utils.compat import uuid7

from services.gateway.auth import Reader, Writer
from services.gateway.bodies import off_loop, read_body, read_json, require_json_type
from services.gateway.conditions import is_known
from services.gateway.desk import Desk, desk_of
from services.gateway.idempotency import read_key
from services.gateway.jobids import read_job_id
from services.gateway.problems import Problem
from services.gateway.requested import read_order
from services.gateway.views import (
    artifact_path,
    error_resource,
    etag_of,
    in_declared_order,
    job_path,
    job_resource,
)
from shared.domain.job import Job
from shared.domain.stages import Stage
from shared.store.queries import OwnedJob, first_request, own_job
from shared.store.transitions.admission import (
    JobRequest,
    KeyReused,
    Replayed,
    Requested,
    cancel_requested,
    job_requested,
)
from shared.store.transitions.record import FenceLost, Landed

RETRY_SECONDS = 2
RETRY_ATTENTION_SECONDS = 30


async def request_job(request: Request, principal: Writer) -> Response:
    """Records a job; the same key and request give the first job again."""
    desk = desk_of(request)
    headers = request.headers
    require_json_type(headers, headers.getlist("content-type"))
    key = read_key(headers.getlist("idempotency-key"))
    body = await read_body(request)
    order = await off_loop(len(body), lambda: read_order(read_json(body)))
    try:
        rules = await off_loop(len(body), lambda: order.checked(desk.endpoints))
    except Problem:
        # What was taken once stays taken, also where today's registry would refuse it.
        first = await first_request(desk.database, principal.owner_id, key)
        if first is None:
            raise
        return await _repeated(desk, first.job, first.request_digest == order.digest)
    spec = rules.spec
    wanted = JobRequest(
        id=UUID(str(uuid7())),
        owner_id=principal.owner_id,
        idempotency_key=key,
        request_digest=order.digest,
        endpoint=spec.name,
        endpoint_revision=spec.revision,
        endpoint_pinned=spec.pinned(),
        provider=spec.provider,
        estimated_cost_usd=spec.estimated_cost_usd,
        retention=order.retention,
        input_json=order.input_json,
        metadata_json=order.metadata_json,
        request_id=request.state.request_id,
        traceparent=request.state.traceparent,
    )
    match await job_requested(desk.database, wanted):
        case Requested(job):
            return _accepted(desk, OwnedJob(job, order.metadata_json, ()))
        case Replayed(job):
            return await _repeated(desk, job, is_same=True)
        case KeyReused():
            raise Problem("idempotency_key_reused")
        case _ as never:
            assert_never(never)


async def _repeated(desk: Desk, job: Job, is_same: bool) -> Response:
    if not is_same:
        raise Problem("idempotency_key_reused")
    owned = await _owned(desk, job.id, job.owner_id)
    return _accepted(desk, owned, {"Idempotent-Replayed": "true"})


async def show_job(request: Request, id: str, principal: Reader) -> Response:
    """The job, or 304 where the caller holds its version."""
    desk = desk_of(request)
    owned = await _owned(desk, read_job_id(id), principal.owner_id)
    etag = etag_of(owned.job)
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Prefer"}
    if not owned.job.stage.is_terminal:
        headers["Retry-After"] = _retry_after(owned.job)
    if is_known(request.headers.getlist("if-none-match"), etag):
        return Response(None, 304, headers)
    return _shown(desk, owned, 200, headers)


async def cancel_job(request: Request, id: str, principal: Writer) -> Response:
    """Cancels an unsubmitted job; of any other open one it asks that it be stopped."""
    desk = desk_of(request)
    job_id = read_job_id(id)
    landing = await cancel_requested(desk.database, job_id, principal.owner_id)
    owned = await _owned(desk, job_id, principal.owner_id)
    match landing:
        case Landed():
            return _accepted(desk, owned)
        case FenceLost():
            raise Problem("already_terminal")
        case _ as never:
            assert_never(never)


async def find_result(request: Request, id: str, principal: Reader) -> Response:
    """Leads to the first artifact."""
    desk = desk_of(request)
    owned = await _owned(desk, read_job_id(id), principal.owner_id)
    job = owned.job
    if job.stage is Stage.succeeded:
        first = in_declared_order(owned.artifacts, desk.declared(job.endpoint))[0]
        return Response(None, 303, {"Location": artifact_path(job.id, first.name)})
    if job.stage is Stage.cancelled:
        raise Problem("job_cancelled")
    error = error_resource(job)
    if error is not None:
        raise Problem("job_failed", error.message, extra={"error": error.model_dump(mode="json")})
    raise Problem("not_ready", headers={"Retry-After": _retry_after(job)})


async def _owned(desk: Desk, job_id: UUID, owner_id: str) -> OwnedJob:
    owned = await own_job(desk.database, job_id, owner_id)
    if owned is None:
        raise Problem("not_found")
    if owned.job.purged_at is not None:
        raise Problem("gone")
    return owned


def _accepted(desk: Desk, owned: OwnedJob, headers: dict[str, str] | None = None) -> Response:
    job = owned.job
    standing = {"Location": job_path(job.id), "Retry-After": _retry_after(job)}
    return _shown(desk, owned, 202, standing | (headers or {}))


def _shown(desk: Desk, owned: OwnedJob, status: int, headers: dict[str, str]) -> Response:
    resource = job_resource(owned, desk.declared(owned.job.endpoint))
    body = resource.model_dump_json().encode()
    return Response(body, status, headers, media_type="application/json")


def _retry_after(job: Job) -> str:
    match job.stage:
        case Stage.succeeded | Stage.failed | Stage.cancelled:
            return "0"
        case Stage.unknown | Stage.review:
            return str(RETRY_ATTENTION_SECONDS)
        case Stage.unsubmitted | Stage.submitting | Stage.accepted | Stage.capturing:
            return str(RETRY_SECONDS)
        case _ as never:
            assert_never(never)
