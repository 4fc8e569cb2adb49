"""Puts the parts together: one process, one port, one journal.

Owns: routing by path, the order of start and stop, the sweep of expired results.
Promises: nothing is answered before the journal was replayed; a stop answers nobody any more and
leaves the journal whole.
Never: holds a rule about jobs or answers itself.
"""

import asyncio
from urllib.parse import unquote

from tests.fakes.runpod.answers import Gates, json_answer
from tests.fakes.runpod.book import JobBook
from tests.fakes.runpod.control import Control
from tests.fakes.runpod.jobs import Rules
from tests.fakes.runpod.journal import Journal
from tests.fakes.runpod.provider import Provider, entry_of
from tests.fakes.runpod.results import Results
from tests.fakes.runpod.scripts import ScriptBook
from tests.fakes.runpod.settings import FakeSettings
from tests.fakes.runpod.shelf import Shelf
from tests.fakes.runpod.wire import Answer, Call, HttpServer

SWEEP_SECONDS = 30.0
PROVIDER_KINDS = ("run", "status", "cancel", "health")


class FakeRunpod:
    """The running fake; `start` before anything else, `stop` last."""

    def __init__(self, settings: FakeSettings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal
        self._gates = Gates()
        self._shelf = Shelf(settings.media_dir, settings.encoders)
        self._server = HttpServer(self.answer)
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Replays the journal, listens; returns the port. Raises JournalRefused, OSError."""
        settings = self._settings
        scripts = ScriptBook(settings.seed)
        # Bound first: the links need the port, and a port of 0 is known only once bound.
        port = self._server.bind(settings.host, settings.port)
        rules = Rules(
            queue_seconds=settings.queue_seconds,
            run_seconds=settings.run_seconds,
            time_scale=settings.time_scale,
            public_url=settings.public_url or f"http://{_reachable(settings.host)}:{port}",
        )
        book = JobBook(rules, scripts)
        for entry in self._journal.replay():
            book.apply(entry)
        self._provider = Provider(settings, book, self._journal, self._shelf, self._gates)
        self._results = Results(book, self._shelf, self._gates, self._provider)
        self._control = Control(
            book, self._journal, self._gates, self._provider, self._results, self._shelf
        )
        for job in book.jobs.values():
            self._provider.deliverer.follow(job)
        self._sweeping = asyncio.create_task(self._sweep(SWEEP_SECONDS / settings.time_scale))
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Stops at once: open calls are dropped, the journal is closed whole."""
        await self._server.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await self._provider.deliverer.stop()
        self._shelf.close()
        await self._journal.close()

    async def _sweep(self, every_seconds: float) -> None:
        while True:
            self._results.sweep()
            await asyncio.sleep(every_seconds)

    async def answer(self, call: Call) -> Answer:
        """The answer to one received call."""
        parts = [unquote(part) for part in call.path.split("/") if part]
        match call.method, parts:
            case _, ["control", *rest]:
                return await self._control.answer(call, rest)
            case "GET" | "HEAD", ["results", name] if name.endswith(".mp4"):
                return await self._results.serve(call, name.removesuffix(".mp4"))
            case _, ["v2", endpoint, *rest]:
                return await self._provider_call(call, endpoint, rest)
            case _:
                return await self._unknown(call, None)

    async def _provider_call(self, call: Call, endpoint: str, rest: list[str]) -> Answer:
        kind = rest[0] if rest else ""
        refusal = None
        if kind in PROVIDER_KINDS:
            refusal = await self._provider.refused(kind, call, endpoint)
        if refusal is not None:
            return refusal
        match call.method, rest:
            case "POST", ["run"]:
                return await self._provider.run(call, endpoint)
            case "GET" | "POST", ["status", job_id]:
                return await self._provider.status(call, endpoint, job_id)
            case "POST", ["cancel", job_id]:
                return await self._provider.cancel(call, endpoint, job_id)
            case "GET", ["health"]:
                return await self._provider.health(call, endpoint)
            case _:
                return await self._unknown(call, endpoint)

    async def _unknown(self, call: Call, endpoint: str | None) -> Answer:
        await self._provider.write(entry_of("other", call, endpoint, 404))
        return json_answer(404, {"message": "Not Found"})


def _reachable(host: str) -> str:
    """A host for links: an address that listens everywhere is no address to go to."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
