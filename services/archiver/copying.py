"""Copies one artifact under one lease, or says why not.

Owns the way from a reference to an object of ours: a fetch within the rules, or the bytes that
came inside the answer. Promises that the row knows of the object before it can exist, that every
byte is counted as it comes, and that each refusal is told by whose fault it is. Bytes of a kind
that our settings do not expect are kept in quarantine, once. Must never log a reference.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import assert_never

from services.archiver.held import QUARANTINE, HeldArtifact
from services.archiver.leases import LeaseLost
from services.archiver.problems import Barred, Denied, Problem, Trouble, Unusable
from services.archiver.wanted import Wanted
from shared.domain.durations import TimeScale
from shared.domain.errors import Unavailable
from shared.domain.job import Job
from shared.domain.provider import FoundArtifact, FoundKind
from shared.kit import telemetry
from shared.kit.fetch import (
    Blame,
    FetchedResult,
    FetchLimits,
    FetchRefused,
    FetchRules,
    is_counted_as_blocked,
    open_result,
)
from shared.kit.logs import get_logger
from shared.media.artifacts import InlineMalformed, inline_chunks
from shared.media.capture import (
    CaptureOrder,
    CaptureRefusal,
    CaptureRefused,
    PreparedObject,
    capture,
)
from shared.media.objects import ObjectStore
from shared.store.pool import Database
from shared.store.transitions.capture import NewArtifact, capture_prepared
from shared.store.transitions.record import FenceLost

CONNECT_SECONDS = 10.0
HEAD_SECONDS = 60.0
WINDOW_SECONDS = 30.0

_log = get_logger()


@dataclass(frozen=True)
class FetchTerms:
    """How results are fetched here. `transfer_seconds` is the longest one may take, unscaled."""

    scale: TimeScale
    private_targets: frozenset[str]
    transfer_seconds: float

    def limits(self, bytes_max: int) -> FetchLimits:
        """The limits of one fetch."""
        return FetchLimits(
            bytes_max=bytes_max,
            total_seconds=self.scale.transport_seconds(self.transfer_seconds),
            connect_seconds=self.scale.transport_seconds(CONNECT_SECONDS),
            head_seconds=self.scale.transport_seconds(HEAD_SECONDS),
            window_seconds=self.scale.transport_seconds(WINDOW_SECONDS),
        )


class Copier:
    """Copies artifacts into the bucket."""

    def __init__(self, database: Database, store: ObjectStore, terms: FetchTerms) -> None:
        self._database = database
        self._store = store
        self._terms = terms

    async def copy(self, job: Job, wanted: Wanted) -> HeldArtifact | Problem:
        """The stored artifact, or what stood in the way. Raises LeaseLost, Unavailable."""

        async def prepared(copied: PreparedObject) -> None:
            landing = await capture_prepared(self._database, job, _new_artifact(copied))
            if isinstance(landing, FenceLost):
                raise LeaseLost

        if job.lease_token is None:
            raise ValueError("only a leased row is copied")
        started_at = time.monotonic()
        try:
            async with self._opened(wanted) as chunks:
                copied = await capture(chunks, _order(job, wanted), self._store, prepared)
        except FetchRefused as refusal:
            return _told(refusal)
        except CaptureRefused as refusal:
            return await self._refused(job, wanted, refusal)
        except InlineMalformed:
            return Unusable("undecodable")
        return HeldArtifact(
            name=copied.artifact,
            lease_token=job.lease_token,
            media_type=copied.media_type,
            bytes=copied.bytes,
            sha256=copied.sha256,
            key=copied.key,
            is_adopted=False,
            seconds=time.monotonic() - started_at,
        )

    @asynccontextmanager
    async def _opened(self, wanted: Wanted) -> AsyncIterator[AsyncIterator[bytes]]:
        found = wanted.found
        if found.kind is not FoundKind.url:
            async with aclosing(_inline(found)) as chunks:
                yield chunks
            return
        rules = FetchRules(wanted.rules.hosts, self._terms.private_targets)
        limits = self._terms.limits(wanted.rules.bytes_max)
        async with (
            open_result(found.value, rules, limits) as fetched,
            aclosing(_counted(fetched)) as chunks,
        ):
            yield chunks

    async def _refused(self, job: Job, wanted: Wanted, refusal: CaptureRefused) -> Problem:
        match refusal.refusal:
            case CaptureRefusal.empty:
                return Trouble("empty", was_silent=False)
            case CaptureRefusal.too_large:
                return Barred(refusal.refusal.value)
            case CaptureRefusal.media_type:
                await self._quarantine(job, wanted)
                return Barred(refusal.refusal.value)
            case _ as never:
                assert_never(never)

    async def _quarantine(self, job: Job, wanted: Wanted) -> None:
        """Keeps the bytes, whatever they are, for the person who will decide; once per job."""
        prefix = f"{QUARANTINE}{job.id}/{wanted.name}."
        async for _ in self._store.list_prefix(prefix):
            return
        order = _order(job, wanted, is_quarantine=True)
        try:
            async with self._opened(wanted) as chunks:
                await capture(chunks, order, self._store, _untold)
        except (FetchRefused, CaptureRefused, Unavailable) as error:
            _log.warning(
                "not_quarantined", job_id=job.id, artifact=wanted.name, error=type(error).__name__
            )


def _order(job: Job, wanted: Wanted, *, is_quarantine: bool = False) -> CaptureOrder:
    return CaptureOrder(
        job_id=str(job.id),
        artifact=wanted.name,
        lease_token=str(job.lease_token),
        bytes_max=wanted.rules.bytes_max,
        media_types=() if is_quarantine else wanted.rules.media_types,
        area="quarantine" if is_quarantine else "results",
    )


async def _untold(_: PreparedObject) -> None:
    """What lies in quarantine is in no row: no row may ever count it as a result."""


async def _inline(found: FoundArtifact) -> AsyncGenerator[bytes, None]:
    for chunk in inline_chunks(found):
        telemetry.capture_rendered_bytes.inc(len(chunk))
        yield chunk


async def _counted(fetched: FetchedResult) -> AsyncGenerator[bytes, None]:
    telemetry.capture_rendered_bytes.inc(fetched.declared_bytes or 0)
    async for chunk in fetched.chunks:
        telemetry.capture_downloaded_bytes.inc(len(chunk))
        yield chunk


def _told(refusal: FetchRefused) -> Problem:
    if is_counted_as_blocked(refusal.verdict):
        telemetry.fetch_blocked.labels(refusal.verdict.value).inc()
    reason = refusal.verdict.value
    match refusal.blame:
        case Blame.provider:
            return Denied(reason)
        case Blame.configuration:
            return Barred(reason)
        case Blame.target:
            return Unusable(reason)
        case Blame.transport | Blame.nobody:
            return Trouble(reason)
        case _ as never:
            assert_never(never)


def _new_artifact(copied: PreparedObject) -> NewArtifact:
    layout = copied.part_layout
    return NewArtifact(
        name=copied.artifact,
        media_type=copied.media_type,
        bytes=copied.bytes,
        sha256=copied.sha256,
        key=copied.key,
        upload_id=copied.upload_id,
        part_layout=None if layout is None else layout.as_json(),
    )
