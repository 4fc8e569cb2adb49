"""A real room as a process of its own, with its log in a file and its admin port at hand.

Promises that no room outlives its test, and that the environment holds no setting but the given.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from deploy.local.ports import free_block

PROJECT_DIR = Path(__file__).resolve().parents[2]


class RoomProcess:
    """One started room."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, log_path: Path) -> None:
        self.process = process
        self._admin = f"http://127.0.0.1:{port}"
        self._log_path = log_path

    async def get(self, path: str) -> httpx.Response | None:
        """The admin port's answer; None where nobody answers."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
                return await http.get(f"{self._admin}{path}")
        except httpx.TransportError:
            return None

    async def is_ready(self, ready: bool = True) -> None:
        """Returns once `/readyz` says so (or says the opposite). Fails if the room ends first."""
        while True:
            answer = await self.get("/readyz")
            if answer is not None and (answer.status_code == 200) is ready:
                return
            assert self.process.returncode is None, self._log_path.read_text()
            await asyncio.sleep(0.02)

    async def metrics(self) -> dict[str, float]:
        """Every sample of `/metrics` by its name and labels."""
        answer = await self.get("/metrics")
        assert answer is not None
        lines = (line for line in answer.text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def log(self, event: str) -> list[dict[str, Any]]:
        """The log lines of that name so far."""
        lines = self._log_path.read_text().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return [entry for entry in entries if entry["event"] == event]

    async def ended(self, number: signal.Signals | None = None) -> int:
        """The exit code (negative: the signal that ended it), after sending `number` first."""
        if number is not None:
            self.process.send_signal(number)
        return await self.process.wait()


@asynccontextmanager
async def started(name: str, log_path: Path, **settings: str) -> AsyncIterator[RoomProcess]:
    """A room; `settings` are its variables without the prefix."""
    (port,) = free_block(1)
    given = {"ENV": "dev", f"{name.upper()}_ADMIN_PORT": str(port), **settings}
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("COATCHECK_")}
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"services.{name}"),
            cwd=PROJECT_DIR,
            env={**inherited, **{f"COATCHECK_{key}": value for key, value in given.items()}},
            stdout=log,
            stderr=log,
        )
    try:
        yield RoomProcess(process, port, log_path)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
