"""Serves the result files: GET and HEAD, single ranges, and every way a file host can misbehave.

Owns: /results/{id}.mp4.
Promises: an ordinary answer is the whole film with its true length; the journal names its digest
before the first byte leaves; 404 before the job has completed and after its retention.
Never: asks for the provider key: like a presigned link, the address is the permission.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from tests.fakes.runpod.answers import Gates, empty_answer, scripted_answer
from tests.fakes.runpod.book import JobBook
from tests.fakes.runpod.film import EncoderFailed
from tests.fakes.runpod.jobs import Ending, Job, life_of, result_url
from tests.fakes.runpod.provider import Provider, entry_of
from tests.fakes.runpod.scripts import ResultPlan
from tests.fakes.runpod.shelf import CHUNK_BYTES, Content, Shelf, text_content
from tests.fakes.runpod.wire import Answer, Call, Cut

ERROR_PAGE = b"<!doctype html><title>Error</title><p>This page is no video.</p>"
RANGE = re.compile(r"bytes=(\d*)-(\d*)")
DRIPS_PER_SECOND = 10


class Results:
    """Hands out results of the jobs in the book."""

    def __init__(self, book: JobBook, shelf: Shelf, gates: Gates, provider: Provider) -> None:
        self._book = book
        self._shelf = shelf
        self._gates = gates
        self._provider = provider

    async def serve(self, call: Call, job_id: str) -> Answer:
        """GET or HEAD /results/{job_id}.mp4."""
        job = self._book.jobs.get(job_id)
        endpoint = job.endpoint if job is not None else None
        refusal = await self._provider.refused("result", call, endpoint)
        if refusal is not None:
            return refusal
        entry = entry_of("result", call, endpoint, 404) | {"job_id": job_id}
        if job is None or not self._promised(job):
            await self._provider.write(entry)
            return empty_answer(404)
        plan = job.script.result
        answer = self._scripted(plan, call, job)
        if answer is None:
            content = await self._content(job, plan)
            if content is None:
                await self._provider.write(entry | {"status": 500})
                return empty_answer(500)
            answer, start, end = _whole_or_part(call, plan, content)
            if answer.status < 300:
                entry |= {"sha256": content.sha256, "size": content.size}
                entry |= {"bytes": end - start if call.method == "GET" else 0}
        await self._provider.write(entry | {"status": answer.status})
        await self._gates.hold(plan)
        return answer

    async def digest(self, job: Job) -> dict[str, str | int] | None:
        """Digest and size of what the job's result URL serves; None where there is no result."""
        if not self._promised(job):
            return None
        content = await self._content(job, job.script.result)
        return None if content is None else {"sha256": content.sha256, "bytes": content.size}

    def sweep(self) -> None:
        """Deletes the films of jobs that are past their retention."""
        for job_id in self._shelf.kept():
            job = self._book.jobs.get(job_id)
            if job is None or life_of(job, self._book.rules).gone(time.time()):
                self._shelf.drop(job_id)

    def _promised(self, job: Job) -> bool:
        life = life_of(job, self._book.rules)
        now = time.time()
        made = life.ending is Ending.planned and job.script.job.outcome != "FAILED"
        return made and life.ended(now) and not life.gone(now)

    def _scripted(self, plan: ResultPlan, call: Call, job: Job) -> Answer | None:
        if plan.redirect_to is not None:
            status = plan.status if plan.status is not None else 302
            return Answer(status, {"Location": plan.redirect_to} | plan.headers)
        if plan.status is not None and plan.status >= 300:
            return scripted_answer(plan, plan.status, {"{job_id}": job.id})
        if plan.query is not None and call.query != plan.query:
            # A presigned link is signed byte for byte.
            denied = b"<?xml version='1.0'?><Error><Code>SignatureDoesNotMatch</Code></Error>"
            return Answer(403, {"Content-Type": "application/xml"}, denied)
        return None

    async def _content(self, job: Job, plan: ResultPlan) -> Content | None:
        if plan.content != "video":
            return text_content(b"" if plan.content == "empty" else ERROR_PAGE)
        try:
            return await self._shelf.content(job.id, plan.bytes)
        except (EncoderFailed, OSError, subprocess.SubprocessError) as error:
            # The fake's own fault: said aloud, or a test would blame the product for it.
            url = result_url(job, self._book.rules)
            sys.stderr.write(f"fake runpod: no film for {url}: {error!r}\n")
            return None


def _whole_or_part(call: Call, plan: ResultPlan, content: Content) -> tuple[Answer, int, int]:
    """The 200, 206 or 416 answer with the first and last byte (exclusive) it carries."""
    media_type = plan.media_type
    if media_type is None:
        media_type = "text/html" if plan.content == "html" else "video/mp4"
    headers = {"Content-Type": media_type, "ETag": f'"{content.sha256[:32]}"'}
    status, start, end = 200, 0, content.size
    if plan.ranges:
        headers["Accept-Ranges"] = "bytes"
        wanted = call.headers.get("range")
        if wanted is not None and call.headers.get("if-range") in (None, headers["ETag"]):
            part = _part(wanted, content.size)
            if part is None:
                refused = {"Content-Range": f"bytes */{content.size}"}
                return Answer(416, refused), 0, 0
            status, start, end = 206, part[0], part[1]
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{content.size}"
    answer = Answer(
        status,
        headers | plan.headers,
        chunks=lambda: _paced(plan, content, start, end),
        declared_bytes=max(0, end - start + plan.length_lie),
    )
    if plan.cut_after_bytes is not None:
        answer = replace(answer, cut=Cut(plan.how, plan.cut_after_bytes))
    return answer, start, end


def _part(wanted: str, size: int) -> tuple[int, int] | None:
    """First byte and end (exclusive) of a single range; the whole for what is no single range."""
    match = RANGE.fullmatch(wanted.strip())
    if match is None or match.group(1) == match.group(2) == "":
        return 0, size
    first, last = match.groups()
    if first == "":
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
    return (start, end) if start < end else None


async def _paced(plan: ResultPlan, content: Content, start: int, end: int) -> AsyncIterator[bytes]:
    rate = plan.drip_bytes_per_s
    piece = CHUNK_BYTES if rate is None else max(1, rate // DRIPS_PER_SECOND)
    async for chunk in content.chunks(start, end, piece):
        yield chunk
        if rate is not None:
            await asyncio.sleep(len(chunk) / rate)
