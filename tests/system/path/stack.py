"""One running stack as a test sees it: the command line, the HTTP doors, the fake's journal.

Speaks to the product only from outside: `coatcheck` commands, HTTP, and the tables that the
contract opens to audits. Waiting is always for a state, with a generous bound that only a hang
can reach.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "services.operator")
HANG_SECONDS = 180.0
OPEN_STATUSES = ("queued", "running", "saving")
ROOMS = ("gateway", "relay", "submitter", "reconciler", "archiver", "webhook")


def environment(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without its Coatcheck settings, with this home and ports."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("COATCHECK_")}
    ours = {"COATCHECK_HOME": str(home), "COATCHECK_PORTS": "auto", **extra}
    return {**kept, **ours}


@dataclass
class Stack:
    """A stack in `home`, started by `running`."""

    home: Path
    extra: dict[str, str]
    process: subprocess.Popen[str]
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    @property
    def facts(self) -> dict[str, Any]:
        """`stack.json` as it is now."""
        facts: dict[str, Any] = json.loads((self.home / "stack.json").read_text())
        return facts

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One `coatcheck` command against this stack."""
        return subprocess.run(
            [*COMMAND, *words],
            cwd=ROOT,
            env=environment(self.home, self.extra),
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )

    def post(self, key: str, fake: Mapping[str, Any] | None = None, **body: Any) -> httpx.Response:
        """Posts one job; `fake` is a script that the fake provider plays for it alone."""
        content: dict[str, Any] = {"prompt": f"a lake, {key}"}
        if fake is not None:
            content["fake"] = dict(fake)
        return self.client.post(
            f"{self.facts['gateway_url']}/v1/jobs",
            json={"endpoint": "demo-video", "input": content, **body},
            headers={**self.authorization, "Idempotency-Key": key},
        )

    def post_many(self, keys: list[str], fake: Mapping[str, Any] | None = None) -> list[str]:
        """Posts one job per key, eight at a time, each until a gateway took it; their ids."""
        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(lambda key: self._posted(key, fake), keys))

    def _posted(self, key: str, fake: Mapping[str, Any] | None) -> str:
        def attempt() -> str | None:
            try:
                answer = self.post(key, fake)
            except httpx.TransportError:
                return None  # the gateway is being killed; the key makes a second try safe
            return str(answer.json()["id"]) if answer.status_code == 202 else None

        return str(wait_for(attempt, f"a gateway to take {key}"))

    @property
    def authorization(self) -> dict[str, str]:
        """The demo owner's credential."""
        return {"Authorization": f"Bearer {self.facts['api_key']}"}

    def get(self, path: str, **headers: str) -> httpx.Response:
        """An authorized GET at the gateway."""
        url = f"{self.facts['gateway_url']}{path}"
        return self.client.get(url, headers={**self.authorization, **headers})

    def job(self, job_id: str) -> dict[str, Any]:
        """The job resource."""
        job: dict[str, Any] = self.get(f"/v1/jobs/{job_id}").json()
        return job

    def settled(self, job_id: str) -> dict[str, Any]:
        """The job once it is neither queued, running nor saving."""

        def look() -> dict[str, Any] | None:
            try:
                job = self.job(job_id)
            except (httpx.TransportError, ValueError):
                return None
            return job if job.get("status") and job["status"] not in OPEN_STATUSES else None

        settled: dict[str, Any] = wait_for(look, f"job {job_id} to settle")
        return settled

    def status_until(self, job_id: str, wanted: str) -> dict[str, Any]:
        """The job once it has that status."""

        def look() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["status"] == wanted else None

        job: dict[str, Any] = wait_for(look, f"job {job_id} to be {wanted}")
        return job

    @property
    def fake_url(self) -> str:
        """The fake provider's root."""
        return str(self.facts["provider_urls"]["runpod"]).removesuffix("/v2")

    def journal(self, kind: str = "run") -> list[dict[str, Any]]:
        """The fake provider's own record of the calls of one kind."""
        entries: list[dict[str, Any]] = []
        while True:
            after = entries[-1]["seq"] if entries else 0
            answer = self.client.get(
                f"{self.fake_url}/control/journal",
                params={"kind": kind, "after": after, "limit": 1000},
            )
            page = answer.json()["entries"]
            if not page:
                return entries
            entries += page

    def creates_by_prompt(self) -> dict[str, int]:
        """How many paid jobs the provider made for each prompt; prompts are unique here."""
        jobs = self.client.get(f"{self.fake_url}/control/jobs").json()["jobs"]
        counts: dict[str, int] = {}
        for job in jobs:
            one = self.client.get(f"{self.fake_url}/control/jobs/{job['id']}").json()
            prompt = one["input"]["prompt"]
            counts[prompt] = counts.get(prompt, 0) + 1
        return counts

    def kill(self, part: str) -> int:
        """SIGKILL to one part; the pid that died. Returns once another pid runs in its place."""
        pid: int = self.facts["pids"][part]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.facts["pids"].get(part, pid) != pid or None, f"{part} to be back")
        return pid

    def wait_ready(self, room: str) -> None:
        """Returns once the room says that it can do its work."""

        def ready() -> bool | None:
            try:
                url = f"{self.facts['admin_urls'][room]}/readyz"
                return self.client.get(url).status_code == 200 or None
            except httpx.TransportError:
                return None

        wait_for(ready, f"{room} to be ready")

    def metric(self, room: str, name: str) -> float:
        """The sum of one metric over its labels."""
        text = self.client.get(f"{self.facts['admin_urls'][room]}/metrics").text
        lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def wait_for(look: Callable[[], Any], what: str) -> Any:
    """Looks until there is something to see. The bound is for hangs, not for slowness."""
    give_up_at = time.monotonic() + HANG_SECONDS
    while time.monotonic() < give_up_at:
        seen = look()
        if seen is not None:
            return seen
        time.sleep(0.1)
    raise AssertionError(f"waited {HANG_SECONDS:.0f} s for {what}")


def is_alive(pid: int) -> bool:
    """Whether a process of that pid runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextmanager
def running(home: Path, **extra: str) -> Iterator[Stack]:
    """`coatcheck up --json` in that home; stopped with SIGTERM, and nothing may stay behind."""
    settings = {f"COATCHECK_{name}": value for name, value in extra.items()}
    process = subprocess.Popen(
        [*COMMAND, "up", "--json"],
        cwd=ROOT,
        env=environment(home, settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    stack = Stack(home, settings, process)
    seen: set[int] = set()
    try:
        _await_ready(process)
        yield stack
        seen = set(stack.facts["pids"].values())
    finally:
        process.terminate()
        try:
            process.communicate(timeout=HANG_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        stack.client.close()
    left = {pid for pid in seen if is_alive(pid)}
    assert not left, f"processes {left} outlived their stack"


def _await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("{"):
            return
    raise AssertionError("the stack did not come up:\n" + "".join(said[-40:]))
