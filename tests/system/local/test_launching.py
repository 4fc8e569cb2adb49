"""Starts and ends of a stack: what survives, what is left behind, what is refused."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.local.processes import drive
from deploy.local.seaweedfs import SOCKET_DIR
from tests.system.local.conftest import Launch
from tests.system.path.stack import ROOMS, is_alive

NO_ROUTE = {name: "http://127.0.0.1:9" for name in ("https_proxy", "HTTPS_PROXY", "http_proxy")}


def facts_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The line of JSON that `up --json` prints once everything is ready."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("{"):
            facts: dict[str, Any] = json.loads(line)
            return facts
    raise AssertionError("the stack did not come up:\n" + "".join(said))


def await_gone(pids: list[int]) -> None:
    """Returns when none of them runs any more."""
    drive((f"processes {pids}" for _ in iter(lambda: any(map(is_alive, pids)), False)),
          timeout_seconds=60)  # fmt: skip


def store_sockets(ports: list[int]) -> list[Path]:
    """The files that the store keeps outside the home."""
    return [path for port in ports for path in SOCKET_DIR.glob(f"seaweedfs-*-{port}.sock")]


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what was still to be read."""
    output, _ = process.communicate()
    return process.returncode, output


def test_a_killed_launcher_leaves_nothing_and_the_next_start_has_its_data(
    launch: Launch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    first = launch(home, "up", "--json")
    before = facts_of(first)
    internal = json.loads((home / "ports.json").read_text())["internal"]
    assert len(store_sockets(internal)) == 5
    first.kill()
    first.wait()
    await_gone(list(before["pids"].values()))
    assert (home / "stack.json").exists()
    code, output = ended(launch(home, "jobs", "list"))
    assert code == 2
    assert output.startswith(f"coatcheck: no stack runs on {home}: start it with `coatcheck up`")

    # A stack that is killed while it starts must not spoil the home either.
    second = launch(home, "up")
    assert second.stdout is not None
    second.stdout.readline()
    second.kill()
    second.wait()

    third = launch(home, "up", "--json")
    after = facts_of(third)
    same = ("gateway_url", "database_url", "api_key", "machine_token", "s3", "admin_urls")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert not set(after["pids"].values()) & set(before["pids"].values())
    third.send_signal(signal.SIGINT)
    code, output = ended(third)
    assert code == 0
    parts = (ROOMS[0], "fake_runpod", "kafka", "s3", "postgres")
    order = [output.index(f"{name} is stopped") for name in parts]
    assert order == sorted(order)
    await_gone(list(after["pids"].values()))
    assert not (home / "stack.json").exists()
    assert launch(home, "reset").wait() == 0
    assert not home.exists()
    assert not store_sockets(internal)


def test_a_demo_once_stops_what_it_started(launch: Launch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    code, output = ended(launch(home, "demo", "--once"))
    assert code == 0, output
    assert output.splitlines()[-1].startswith("DEMO OK job=")
    assert "submission_claimed" in output
    children = json.loads((home / "children.json").read_text())
    assert children == {}


def test_without_the_jars_of_kafka_everything_works_and_that_is_said_aloud(
    launch: Launch, tmp_path: Path
) -> None:
    environ = {**NO_ROUTE, "XDG_CACHE_HOME": str(tmp_path / "empty")}
    process = launch(tmp_path / "home", "demo", "--once", "--json", environ=environ)
    code, output = ended(process)
    assert code == 0, output
    assert "!! NO KAFKA !!" in output
    assert '"event": "result_stored"' in output


def test_a_taken_port_is_refused_by_number_and_variable(launch: Launch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, output = ended(launch(tmp_path / "home", "up", GATEWAY_PORT=port))
    assert code == 1
    assert f"port {port} is taken" in output
    assert "COATCHECK_GATEWAY_PORT" in output


def test_a_port_that_is_none_is_wrong_usage(launch: Launch, tmp_path: Path) -> None:
    code, output = ended(launch(tmp_path / "home", "up", GATEWAY_PORT="none"))
    assert code == 2
    assert "COATCHECK_GATEWAY_PORT" in output


def test_a_time_scale_that_is_none_is_told_before_anything_starts(
    launch: Launch, tmp_path: Path
) -> None:
    code, output = ended(launch(tmp_path / "home", "up", TIME_SCALE="-1"))
    assert code == 2
    assert output == "coatcheck: COATCHECK_TIME_SCALE: must be a number, 1 to 1000\n"


def test_a_room_that_refuses_its_settings_ends_the_start(launch: Launch, tmp_path: Path) -> None:
    code, output = ended(launch(tmp_path / "home", "up", SESSION_SECRET="short"))
    assert code == 2
    assert "coatcheck: gateway: COATCHECK_SESSION_SECRET" in output.splitlines()[-1]
    assert "postgres is stopped" in output


def test_a_database_that_does_not_answer_ends_the_start(launch: Launch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = f"postgresql://nobody@127.0.0.1:{port}/nothing"
    code, output = ended(launch(tmp_path / "home", "up", DATABASE_URL=url))
    assert code == 1
    last_line = output.splitlines()[-1]
    assert last_line == "coatcheck: PostgreSQL cannot be reached at COATCHECK_DATABASE_URL"


def test_a_home_on_a_file_is_refused(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, output = ended(launch(tmp_path / "file" / "home", "up"))
    assert code == 1
    assert len(output.splitlines()) == 1
    assert "COATCHECK_HOME" in output


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of that size of its own."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(words, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root may mount, and not on every machine")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leaves no room on the disk."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        for size in (1024 * 1024, 4096):
            try:
                while filler.write(b"\0" * size) == size:
                    continue
            except OSError:
                continue


def test_a_full_disk_is_one_clear_error(launch: Launch, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 40) as disk:
        code, output = ended(launch(disk / "home", "up"))
    assert code == 1
    assert len(output.splitlines()) == 1
    assert "is full" in output


def test_a_disk_that_fills_while_the_stack_starts_is_told(launch: Launch, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 300) as disk:
        process = launch(disk / "home", "up")
        assert process.stdout is not None
        process.stdout.readline()
        fill(disk)
        code, output = ended(process)
    assert code == 1
    assert "is full" in output.splitlines()[-1]
