"""Children: they die with us, their output is kept, their failures become one sentence."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local import processes
from deploy.local.processes import (
    NewLines,
    PartFailed,
    await_exit,
    drive,
    end_now,
    ending,
    has_ended,
    last_words,
    spawn,
    stop_child,
)
from deploy.local.remains import start_ticks

Spawn = Callable[..., subprocess.Popen[bytes]]
SLEEP = ["sleep", "600"]
TIMEOUT_SECONDS = 30.0


@pytest.fixture
def spawned(tmp_path: Path) -> Iterator[Spawn]:
    """`spawn` with a log in the test's folder; what still runs is ended afterwards."""
    children: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **options: object) -> subprocess.Popen[bytes]:
        child = spawn(words, log_path=tmp_path / "log", **options)  # type: ignore[arg-type]
        children.append(child)
        return child

    yield start
    for child in children:
        end_now(child)


def test_a_child_dies_with_the_process_that_spawned_it(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from deploy.local.processes import spawn\n"
        f"child = spawn(['sleep', '600'], log_path=Path({str(tmp_path / 'log')!r}))\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert start_ticks(pid) is not None
        parent.kill()
    drive((f"process {pid}" for _ in iter(lambda: start_ticks(pid), None)), timeout_seconds=30)


def test_a_child_whose_parent_is_gone_before_it_runs_does_not_start() -> None:
    child = os.fork()
    if child == 0:  # pragma: no cover  # another process
        processes._before_exec(os.getppid() + 1, signal.SIGKILL, False)()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_output_goes_to_a_log_for_the_owner_alone(spawned: Spawn, tmp_path: Path) -> None:
    child = spawned("sh", "-c", "cat; echo trouble >&2", stdin_text="hello ")
    drive(await_exit(child, "the program", tmp_path / "log"), timeout_seconds=TIMEOUT_SECONDS)
    assert last_words(tmp_path / "log") == "hello trouble"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_heard_child_speaks_to_us_and_complains_to_the_log(
    spawned: Spawn, tmp_path: Path
) -> None:
    child = spawned("sh", "-c", "echo answer; echo trouble >&2", is_heard=True)
    assert child.stdout is not None
    with child.stdout as output:
        assert output.read() == b"answer\n"
    child.wait()
    assert last_words(tmp_path / "log") == "trouble"


def test_a_failing_program_is_told_with_its_last_words(spawned: Spawn, tmp_path: Path) -> None:
    child = spawned("sh", "-c", "echo no such thing; exit 3")
    steps = await_exit(child, "the making", tmp_path / "log")
    with pytest.raises(PartFailed, match="the making ended with 3: no such thing"):
        drive(steps, timeout_seconds=TIMEOUT_SECONDS)


def test_giving_up_ends_the_program(spawned: Spawn, tmp_path: Path) -> None:
    child = spawned(*SLEEP)
    with pytest.raises(PartFailed, match="gave up after 0 s waiting for the sleep"):
        drive(await_exit(child, "the sleep", tmp_path / "log"), timeout_seconds=0.0)
    assert child.returncode == -signal.SIGKILL


def test_what_the_child_started_ends_with_it(spawned: Spawn) -> None:
    child = spawned("sh", "-c", "sleep 600 & echo $!; wait", is_heard=True)
    assert child.stdout is not None
    with child.stdout as output:
        grandchild = int(output.readline())
    drive(stop_child(child, signal.SIGKILL, grace_seconds=10), timeout_seconds=TIMEOUT_SECONDS)
    gone = (f"process {grandchild}" for _ in iter(lambda: start_ticks(grandchild), None))
    drive(gone, timeout_seconds=TIMEOUT_SECONDS)


def test_a_child_that_will_not_end_is_killed_after_the_grace(spawned: Spawn) -> None:
    child = spawned(
        "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done", is_heard=True
    )
    assert child.stdout is not None
    with child.stdout as output:
        output.readline()
    drive(stop_child(child, signal.SIGTERM, grace_seconds=0), timeout_seconds=TIMEOUT_SECONDS)
    assert child.returncode == -signal.SIGKILL
    drive(stop_child(child, signal.SIGTERM, grace_seconds=0), timeout_seconds=TIMEOUT_SECONDS)
    assert has_ended(child)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to be somebody else")
def test_root_is_somebody_else_for_programs_that_refuse_root(
    spawned: Spawn, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    child = spawned("sh", "-c", f"id -u && ls {tmp_path}", not_as_root=True)
    drive(await_exit(child, "the program", tmp_path / "log"), timeout_seconds=TIMEOUT_SECONDS)
    uid = last_words(tmp_path / "log").split(" | ")[0]
    assert uid.isdigit()
    assert uid != "0"
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to be somebody else")
def test_a_machine_without_user_namespaces_is_told(
    spawned: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "CLONE_NEWUSER", -1)
    with pytest.raises(PartFailed, match=r"sh refuses to run as root .* user namespaces"):
        spawned("sh", "-c", "true", not_as_root=True)


def test_a_missing_program_is_told(spawned: Spawn) -> None:
    with pytest.raises(PartFailed, match="cannot start /no/such/program: No such file"):
        spawned("/no/such/program")


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PartFailed, match="cannot write the log"):
        spawn(SLEEP, log_path=tmp_path / "file" / "log")


def test_last_words_are_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_words(log) == "(no log)"
    log.write_text("")
    assert last_words(log) == "(empty)"
    log.write_text("begin\n" * 1000 + "one\n\ntwo\n")
    assert last_words(log) == "begin | one | two"


def test_only_what_a_log_got_meanwhile_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("old trouble\n")
    logs = NewLines(tmp_path)
    (tmp_path / "b.log").write_text("new\n")
    assert not logs.tell("trouble")
    with (tmp_path / "a.log").open("a") as log:
        log.write("new trouble\n")
    assert logs.tell("trouble")


def test_an_ending_is_told_by_code_or_by_signal() -> None:
    assert ending(3) == "ended with 3"
    assert ending(-9) == "was killed by SIGKILL"
