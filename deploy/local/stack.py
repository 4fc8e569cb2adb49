"""The local stack as a whole: what starts when, what is written down, in which order it ends.

Owns the way from an empty home to a ready stack and back. Promises that `stack.json` exists
only while a stack is ready and names the processes that run, that without Kafka's jars it
starts without a broker and says so loudly, and that whatever fails, everything it started is
ended. Must never print a secret: they go to `stack.json`, which is for the owner alone.
"""

import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from deploy.local.blueprint import ROOMS, Blueprint
from deploy.local.console import Console
from deploy.local.control import ControlDesk
from deploy.local.given import Given, SettingWrong
from deploy.local.home import SETTINGS_NAME, Home, HomeUnusable
from deploy.local.kafka_jars import KafkaJarsUnavailable
from deploy.local.ports import PortTaken, require_free
from deploy.local.processes import NewLines, PartFailed, Steps, Waiting, await_exit, spawn
from deploy.local.remains import end_remains, note_children
from deploy.local.rooms import PROJECT_DIR, PartRefused, SettingsRefused, own_failure
from deploy.local.supervisor import StopAsked, Supervisor
from deploy.local.watch import State, Watch
from shared.domain.errors import CoatcheckError, Unavailable

STOP_ORDER = (ROOMS, ("fake_runpod",), ("kafka",), ("s3",), ("postgres",))
INDISPENSABLE = "postgres"
READY_WITH: Mapping[str, str] = {"relay": "kafka", "archiver": "s3"}
"""A room that calls itself ready only while another part is up."""
STARTS_TRIED = 3
PREPARATION = (sys.executable, "-m", "services.operator.prepare")
FULL_MEGABYTES = 8
NO_SPACE = os.strerror(errno.ENOSPC)

Facts = dict[str, Any]
Task = Callable[[Facts], Waiting]
"""What is done once the stack is ready, step by step; the stack ends after the last step."""


class StackFailed(Unavailable):
    """The local stack could not be started."""


class Stack:
    """One run of the stack of one home."""

    def __init__(self, home: Home, console: Console) -> None:
        self.home, self.console = home, console
        self.facts: Facts | None = None
        self._logs = NewLines(home.log_dir)
        self._desk = ControlDesk(home)
        self._supervisor = Supervisor(console, self._desk, self._pids_changed)

    def run(self, task: Task) -> None:
        """Start everything, do the task, end everything.

        Returns also when a signal asked for the end. Raises CoatcheckError when the start or
        the task fails; everything is ended by then. The caller holds the home.
        """
        with self._supervisor.signals_taken():
            try:
                self._supervisor.run(self._start())
                assert self.facts is not None  # noqa: S101  # the start ended well
                self._supervisor.run(task(self.facts))
            except StopAsked:
                self.console.say("asked to stop")
            except PartFailed as error:
                raise StackFailed(self._with_cause(str(error))) from error
            finally:
                self._end()

    def _start(self) -> Waiting:
        self.home.turn_logs()
        self._logs = NewLines(self.home.log_dir)
        yield from end_remains(self.home)
        blueprint = Blueprint(Given(os.environ), self.home)
        parts = [blueprint.postgres, blueprint.s3, blueprint.kafka, blueprint.fake_runpod]
        started = [part for part in parts if part is not None]
        rooms = blueprint.rooms(None)
        require_free([port for part in [*started, *rooms] for port in part.served])
        for part in started:
            self._supervisor.add(part)
        cookie = yield from self._prepare(blueprint)
        # Rooms would start without the broker too, but then find it seconds after it is there.
        yield from self._until_up("s3", "kafka")
        bootstrap = self._bootstrap(blueprint)
        for room in blueprint.rooms(bootstrap):
            self._supervisor.add(room)
        yield from self._until_up(*self._supervisor.watches)
        self.home.write_json(SETTINGS_NAME, blueprint.settings(bootstrap))
        self.facts = blueprint.facts(bootstrap=bootstrap, cookie=cookie)
        self._write_down()
        self._say_ready(blueprint)

    def _prepare(self, blueprint: Blueprint) -> Steps[str | None]:
        """Migrations, the owner's key and session, by a program of the operator's."""
        yield from self._until_up("postgres")
        log_path = self.home.log_of("prepare")
        child = spawn(
            PREPARATION,
            log_path=log_path,
            env=blueprint.preparation_environment(),
            cwd=PROJECT_DIR,
            is_heard=True,
        )
        try:
            for awaited in await_exit(child, "the preparation of the database", log_path):
                self._fail_if_hopeless()
                yield awaited
        except PartFailed as error:
            if (told := own_failure(child.returncode, log_path)) is None:
                raise
            raise told from error
        assert child.stdout is not None  # noqa: S101  # asked for above
        with child.stdout as output:
            prepared = json.loads(output.read())
        blueprint.minted.keep("api_key", prepared["api_key"])
        applied = len(prepared["applied"])
        self.console.say(f"the database is prepared ({applied} migrations applied now)")
        cookie: str | None = prepared["session_cookie"]
        return cookie

    def _bootstrap(self, blueprint: Blueprint) -> str | None:
        """Where Kafka is; None where its jars could not be had."""
        if blueprint.kafka is None:
            return blueprint.given.required("KAFKA_BOOTSTRAP_SERVERS", "Kafka is not started")
        return blueprint.kafka.bootstrap if "kafka" in self._supervisor.watches else None

    def _until_up(self, *names: str) -> Waiting:
        def wanted() -> list[Watch]:
            watches = self._supervisor.watches
            return [watches[name] for name in names if name in watches]

        while awaited := [watch for watch in wanted() if self._is_awaited(watch)]:
            self._fail_if_hopeless()
            yield "; ".join(watch.waits_for for watch in awaited)

    def _is_awaited(self, watch: Watch) -> bool:
        """Must the start wait for it? Not for what somebody has taken down meanwhile."""
        if watch.state is State.up:
            return False
        if watch.name == INDISPENSABLE:
            return True
        needed = self._supervisor.watches.get(READY_WITH.get(watch.name, ""))
        return not watch.is_taken_down and (needed is None or not needed.is_taken_down)

    def _say_ready(self, blueprint: Blueprint) -> None:
        watches = list(self._supervisor.watches.values())
        lacking = [watch.name for watch in watches if watch.state is not State.up]
        down = [watch.name for watch in watches if watch.is_taken_down]
        everything = f"everything but {', '.join(lacking)}" if lacking else "everything"
        self.console.say(f"{everything} is ready: {blueprint.gateway_url}")
        if down:
            self.console.say(
                f"taken down on request: {', '.join(down)}; "
                f"`coatcheck start {' '.join(down)}` brings that up again"
            )
        if blueprint.is_provider_real:
            self.console.say("runpod is the real one: jobs cost money")

    def _fail_if_hopeless(self) -> None:
        """During the start a part may fail a few times; then the start has failed."""
        for watch in list(self._supervisor.watches.values()):
            error = watch.last_error
            if isinstance(error, KafkaJarsUnavailable):
                self._supervisor.drop(watch.name)
                self._say_no_broker(error)
            elif watch.failures_in_a_row and isinstance(error, SettingsRefused):
                raise SettingWrong(str(error))
            elif watch.failures_in_a_row and isinstance(error, PortTaken | PartRefused):
                raise StackFailed(str(error))
            elif watch.failures_in_a_row >= STARTS_TRIED:
                raise StackFailed(self._with_cause(str(error)))

    def _with_cause(self, sentence: str) -> str:
        """A full disk makes every program fail in words of its own; ours come first."""
        if self.home.free_megabytes() >= FULL_MEGABYTES and not self._logs.tell(NO_SPACE):
            return sentence
        return f"the disk that holds {self.home.path} is full: {sentence}"

    def _say_no_broker(self, error: CoatcheckError) -> None:
        for line in (
            "!! NO KAFKA !!",
            f"!! {error}",
            "!! The stack runs without a broker: nothing is lost and every job still gets done,",
            "!! but by the sweeps of the rooms alone, some seconds later than with hints.",
            "!! The next start tries again; COATCHECK_KAFKA_BOOTSTRAP_SERVERS names another one.",
        ):
            self.console.say(line)

    def _pids_changed(self, pids: Mapping[str, int]) -> None:
        try:
            note_children(self.home, pids)
            if self.facts is not None:
                self._write_down()
        except HomeUnusable as error:
            # The parts still run and can be stopped; a home that is full must not end them.
            self.console.say(f"stack.json is out of date: {error}")

    def _write_down(self) -> None:
        assert self.facts is not None  # noqa: S101  # only called once ready
        watches = self._supervisor.watches.values()
        self.facts["pids"] = {watch.name: watch.pid for watch in watches if watch.pid is not None}
        self.home.write_json(self.home.stack_file.name, self.facts)

    def _end(self) -> None:
        self.facts = None
        self._supervisor.stop_all(STOP_ORDER)
        self.home.forget_stack()
        self._supervisor.close()
        self.home.control_socket.unlink(missing_ok=True)
        if self._supervisor.watches:
            self.console.say(f"everything is stopped; the data stays in {self.home.path}")


def forever(_facts: Facts) -> Waiting:
    """The task of a stack that runs until it is asked to stop."""
    while True:
        yield ""
