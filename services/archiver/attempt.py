"""One attempt to bring a job's artifacts home: what is held, asked, copied, and what is not.

Owns the order: look at what earlier leases prepared, ask the provider anew, copy what is missing.
Promises that one artifact's trouble does not keep the others from being saved, and that an
answer which says nothing spoils nothing that is held. Must never write a stage.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from services.archiver.copying import Copier
from services.archiver.held import Held, HeldArtifact, look_back
from services.archiver.problems import Denied, Missing, Problem, Trouble
from services.archiver.wanted import UNDECLARED_NAME, Wanted, wanted_artifacts
from shared.domain.job import Job
from shared.domain.provider import Handle, ProviderState, StatusReading
from shared.domain.registry import PinnedEndpoint, Registry
from shared.kit.logs import get_logger
from shared.media.objects import ObjectStore
from shared.providers.opening import OpenProvider
from shared.store.pool import Database

_log = get_logger()


@dataclass(frozen=True)
class Attempt:
    """What one attempt came to. `problem` is the weightiest of all, None when nothing is left.

    `has_required`: what is held would be a result, even if nothing more came.
    """

    held: Held
    artifacts: tuple[HeldArtifact, ...] = ()
    reading: StatusReading | None = None
    problem: Problem | None = None
    has_required: bool = False


@dataclass
class _Copies:
    """The weightiest problem so far: a required artifact's, else the first."""

    problem: Problem | None = None
    is_required: bool = False

    def add(self, problem: Problem, *, is_required: bool) -> None:
        if self.problem is None or (is_required and not self.is_required):
            self.problem, self.is_required = problem, is_required


@dataclass
class Attempter:
    """Makes attempts with these parts."""

    database: Database
    store: ObjectStore
    copier: Copier
    providers: Mapping[str, OpenProvider]
    registry: Registry
    private_targets: frozenset[str]
    _missed: set[str] = field(default_factory=set)

    async def make(self, job: Job, pinned: PinnedEndpoint) -> Attempt:
        """One attempt under the job's lease. Raises Unavailable, LeaseLost."""
        held = await look_back(self.database, self.store, job)
        provider = self.providers.get(job.provider)
        if provider is None:
            if job.provider not in self._missed:
                self._missed.add(job.provider)
                _log.error("provider_without_key", provider=job.provider)
            return _without_answer(held, pinned, Trouble("provider_without_key"))
        reading = await provider.client.status(Handle(**(job.provider_handle or {})))
        problem = problem_of(reading)
        if problem is not None:
            return _without_answer(held, pinned, problem)
        wanted = wanted_artifacts(
            reading,
            pinned,
            self.registry.find(job.endpoint),
            provider.adapter,
            self.private_targets,
        )
        if wanted is None:
            return _without_answer(held, pinned, Missing())
        return replace(await self._copied(job, held, wanted), reading=reading)

    async def _copied(self, job: Job, held: Held, wanted: tuple[Wanted, ...]) -> Attempt:
        copies = _Copies()
        for item in wanted:
            if item.name in held.artifacts:
                continue
            copied = await self.copier.copy(job, item)
            if isinstance(copied, HeldArtifact):
                held.artifacts[item.name] = copied
                continue
            copies.add(copied, is_required=item.is_required)
            _log.warning(
                "artifact_not_copied",
                job_id=job.id,
                artifact=item.name,
                kind=type(copied).__name__,
                reason=getattr(copied, "reason", None),
            )
        names = [item.name for item in wanted if item.name in held.artifacts]
        return Attempt(
            held,
            tuple(held.artifacts[name] for name in names),
            problem=copies.problem,
            has_required=not copies.is_required,
        )


def problem_of(reading: StatusReading) -> Problem | None:
    """What an answer other than "completed" means for a result that was there before."""
    state = reading.state
    match state:
        case ProviderState.completed:
            return None
        case (
            ProviderState.gone
            | ProviderState.failed
            | ProviderState.cancelled
            | ProviderState.timed_out
        ):
            return Denied(state.value)
        case ProviderState.queued | ProviderState.running:
            # A late progress post can lie over a finished job; the next answer may be the old one.
            return Trouble(state.value, was_silent=False)
        case ProviderState.unrecognised | ProviderState.retry_later:
            return Trouble(state.value, retry_after_seconds=reading.retry_after_seconds or 0.0)


def _without_answer(held: Held, pinned: PinnedEndpoint, problem: Problem) -> Attempt:
    """What is held, where nobody says what else there is."""
    required = {item.name for item in pinned.artifacts if item.required}
    declared = {item.name for item in pinned.artifacts}
    if not pinned.artifacts:
        required = declared = {UNDECLARED_NAME}
    has_all = _are_held(declared, held)
    return Attempt(
        held,
        tuple(held.artifacts.values()),
        problem=None if has_all else problem,
        has_required=bool(held.artifacts) and _are_held(required, held),
    )


def _are_held(names: Iterable[str], held: Held) -> bool:
    return all(name in held.artifacts for name in names)
