"""One real job through a running stack, by its public front door.

Owns the demo's steps: post, watch, fetch, compare, play. Promises that success means that the
bytes came by the public URL with the API key, equal what the provider served, and play. Must
never take a short cut into the bucket or the database for anything but the printed timeline.
"""

import asyncio
import hashlib
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.console import Console
from deploy.local.processes import Steps, Waiting, has_ended, last_words, spawn, surely_ended
from services.operator.calls import Answer, CallFailed, call, download
from services.operator.sources import Sources
from services.operator.store_commands import on_database, timeline_lines, timeline_rows
from shared.domain.errors import CoatcheckError, Refused
from shared.kit.registry import load_registry
from shared.store.pool import Database
from shared.store.queries import any_job

LEAST_BYTES = 1024 * 1024
CONTAINERS = {"video/mp4": "mp4", "video/webm": "matroska"}
LOOK_SECONDS = 0.25
TERMINAL = ("succeeded", "failed", "cancelled")


class DemoFailed(CoatcheckError):
    """The demo did not end as it should."""


@dataclass(frozen=True)
class DemoResult:
    """What the last line says, and the timeline as JSON values."""

    job: str
    bytes: int
    sha256: str
    timeline: list[dict[str, Any]]

    @property
    def last_line(self) -> str:
        return f"DEMO OK job={self.job} bytes={self.bytes} sha256={self.sha256}"


class Demo:
    """One demo; `result` is set when it went well."""

    def __init__(
        self, console: Console, sources: Sources, endpoint: str, given_input: Any = None
    ) -> None:
        self.result: DemoResult | None = None
        self._console, self._sources = console, sources
        self._endpoint, self._given_input = endpoint, given_input

    def steps(self, facts: Mapping[str, Any]) -> Waiting:
        """All of it, step by step. Raises DemoFailed, Refused or Unavailable."""
        job = self._post(facts)
        job_id = job["id"]
        self._console.say(f"job {job_id} is posted to {self._endpoint}")
        job = yield from self._watch(facts, job)
        if job["status"] != "succeeded":
            raise DemoFailed(f"the job ended {job['status']}: {_reason(job)}")
        entries = asyncio.run(timeline_rows(self._sources, uuid.UUID(job_id)))
        self._console.say("the job has succeeded; its transitions:")
        for line in timeline_lines(entries):
            self._console.print(f"  {line}")
        artifact = job["result"]["artifacts"][0]
        with tempfile.TemporaryDirectory(prefix="coatcheck-demo-") as folder:
            clip = Path(folder) / "clip.mp4"
            sha256 = yield from self._fetch(facts, artifact, clip)
            yield from self._compare(facts, job_id, sha256)
            yield from self._play(artifact["media_type"], clip, Path(folder) / "player.log")
            self.result = DemoResult(job_id, clip.stat().st_size, sha256, entries)

    def _post(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        body = {"endpoint": self._endpoint, "input": self._input()}
        answer = call(
            "POST",
            f"{facts['gateway_url']}/v1/jobs",
            headers={**_bearer(facts), "Idempotency-Key": f"demo-{uuid.uuid4()}"},
            body=body,
        )
        return _expected(answer, 202, "posting the job")

    def _input(self) -> Any:
        """What the caller gave, else the first example of the endpoint's schema."""
        if self._given_input is not None:
            return self._given_input
        spec = load_registry(self._sources.endpoints_file).find(self._endpoint)
        if spec is None:
            raise Refused(f"there is no endpoint {self._endpoint}")
        examples = spec.input_schema.get("examples") or [{}]
        return examples[0]

    def _watch(self, facts: Mapping[str, Any], job: dict[str, Any]) -> Steps[dict[str, Any]]:
        seen, look_at = "", 0.0
        while job["status"] not in TERMINAL:
            if job["status"] != seen:
                seen = job["status"]
                self._console.say(f"the job is {seen}")
            if seen in ("unknown", "review"):
                raise DemoFailed(f"the job needs a person: {_reason(job)}")
            while time.monotonic() < look_at:
                yield f"the job, which is {seen}"
            look_at = time.monotonic() + LOOK_SECONDS
            url = f"{facts['gateway_url']}{job['links']['self']}"
            job = _expected(call("GET", url, headers=_bearer(facts)), 200, "looking at the job")
        return job

    def _fetch(
        self, facts: Mapping[str, Any], artifact: Mapping[str, Any], clip: Path
    ) -> Steps[str]:
        digest = hashlib.sha256()
        url = f"{facts['gateway_url']}{artifact['href']}"
        with clip.open("wb") as file:
            for piece in download(url, headers=_bearer(facts)):
                digest.update(piece)
                file.write(piece)
                yield "the bytes of the result"
        size = clip.stat().st_size
        self._console.say(f"downloaded {size} bytes from {artifact['href']}")
        if (size, digest.hexdigest()) != (artifact["bytes"], artifact["sha256"]):
            raise DemoFailed("the bytes are not the ones that the job names")
        if "fake_runpod" in facts["pids"] and size < LEAST_BYTES:
            raise DemoFailed(f"the result has {size} bytes, less than a MiB")
        return digest.hexdigest()

    def _compare(self, facts: Mapping[str, Any], job_id: str, sha256: str) -> Waiting:
        """Against what the fake provider served; a real provider tells no digest."""
        yield "the provider's own digest"
        base_url = facts["provider_urls"]["runpod"]
        if "fake_runpod" not in facts["pids"]:
            self._console.say(f"{base_url} tells no digest; compared with the job's own only")
            return

        async def work(database: Database) -> Any:
            return await any_job(database, uuid.UUID(job_id))

        row = asyncio.run(on_database(self._sources, work))
        control_url = f"{base_url.removesuffix('/v2')}/control/jobs/{row.provider_job_id}"
        served = _expected(call("GET", control_url, headers={}), 200, "asking the provider")
        if (served.get("result") or {}).get("sha256") != sha256:
            raise DemoFailed("the bytes differ from what the provider served")
        self._console.say("they equal what the provider served")

    def _play(self, media_type: str, clip: Path, log: Path) -> Waiting:
        """Decode every frame; any complaint of the decoder fails the demo."""
        container = CONTAINERS.get(media_type)
        if container is None:
            self._console.say(f"it is {media_type}, which is not played here")
            return
        # The container is given: a decoder that guesses may take a playlist for a film, and
        # open whatever that names.
        how = ["-v", "error", "-xerror", "-protocol_whitelist", "file", "-f", container]
        child = spawn([_decoder(), *how, "-i", clip, "-f", "null", "-"], log_path=log)
        with surely_ended(child):
            while not has_ended(child):
                yield "the decoding of every frame"
        if child.returncode != 0 or log.stat().st_size:
            raise DemoFailed(f"the result does not play: {last_words(log)}")
        self._console.say("every frame of it plays")


def _decoder() -> str:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise Refused("the player is not installed: install coatcheck[local]") from error
    return str(imageio_ffmpeg.get_ffmpeg_exe())


def _bearer(facts: Mapping[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {facts['api_key']}"}


def _reason(job: Mapping[str, Any]) -> str:
    told = job.get("error") or job.get("attention") or {}
    return str(told.get("message") or told.get("explanation") or told.get("reason") or "unknown")


def _expected(answer: Answer, status: int, doing: str) -> dict[str, Any]:
    if answer.status != status:
        code = answer.json.get("code", "no code") if answer.json else "no body"
        raise CallFailed(f"{doing} was answered {answer.status} ({code})")
    return answer.json
