"""The fake as a process of its own: options, signals, exits, and a SIGKILL that forgets no job."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.fakes.runpod.app import _reachable
from tests.fakes.runpod.settings import FakeSettings, read_settings
from tests.unit.fakes.conftest import KEY

ROOT = Path(__file__).parents[3]
Launch = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    (tmp_path / "key").write_text(f"{KEY}\n")
    return ["--port=0", f"--journal={tmp_path / 'journal'}", f"--api-key-file={tmp_path / 'key'}"]


@pytest.fixture
def launch() -> Iterator[Launch]:
    started: list[subprocess.Popen[str]] = []

    def start(
        arguments: list[str], before: Callable[[], None] | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.runpod", *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def url_of(process: subprocess.Popen[str]) -> str:
    """The address printed at start, without the /v2."""
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"listens on (http://\S+)/v2", line)
    assert found is not None, line
    return found.group(1)


def create(url: str) -> str:
    body = {"input": {"a": 1}}
    headers = {"Authorization": f"Bearer {KEY}"}
    answer = httpx.post(f"{url}/v2/demo/run", json=body, headers=headers, trust_env=False)
    return str(answer.json()["id"])


def jobs(url: str) -> list[str]:
    answer = httpx.get(f"{url}/control/jobs", trust_env=False)
    return [job["id"] for job in answer.json()["jobs"]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(
    launch: Launch, options: list[str], number: signal.Signals
) -> None:
    process = launch(options)
    url = url_of(process)
    gate = {"input": {"fake": {"create": {"gate": "shut"}}}}
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(trust_env=False) as http, pytest.raises(httpx.TimeoutException):
        http.post(f"{url}/v2/demo/run", json=gate, headers=headers, timeout=0.5)
    process.send_signal(number)
    assert process.wait(30) == 0
    assert process.stderr is not None
    said = process.stderr.read()
    assert said == "fake runpod: stopped\n"


def test_a_sigkill_forgets_no_paid_job(launch: Launch, options: list[str]) -> None:
    known: list[str] = []
    for _ in range(3):
        process = launch(options)
        url = url_of(process)
        assert jobs(url) == known
        known += [create(url) for _ in range(5)]
        process.kill()
        process.wait()
    assert jobs(url_of(launch(options))) == known


def test_a_taken_port_names_port_and_variable(launch: Launch, options: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = launch([*options[1:], f"--port={port}"])
        said = process.communicate()[1]
    assert process.returncode == 1
    assert f"port {port} on 127.0.0.1 cannot be had (--port, FAKE_RUNPOD_PORT)" in said
    assert said.count("\n") == 1


def test_a_held_journal_is_refused(launch: Launch, options: list[str]) -> None:
    first = launch(options)
    url_of(first)
    second = launch(options)
    assert "is held by another process" in second.communicate()[1]
    assert second.returncode == 1


def test_a_journal_that_cannot_be_opened_is_one_line(
    launch: Launch, options: list[str], tmp_path: Path
) -> None:
    process = launch([*options, f"--journal={tmp_path}"])
    said = process.communicate()[1]
    assert process.returncode == 1
    assert said.startswith("fake runpod: cannot start: ")
    assert said.count("\n") == 1


def test_a_full_disk_ends_it_without_an_answer(launch: Launch, options: list[str]) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    process = launch(options, before=small_files)
    url = url_of(process)
    known: list[str] = []

    def fill() -> None:
        while True:
            known.append(create(url))

    with pytest.raises(httpx.TransportError):
        fill()
    assert process.wait(30) == 1
    assert process.stderr is not None
    assert re.fullmatch(
        r"fake runpod: the journal .* cannot be written: .*\n", process.stderr.read()
    )
    assert known
    # What was answered is there, the torn line is not.
    assert jobs(url_of(launch(options))) == known


def test_every_option_may_stand_in_the_environment(launch: Launch, tmp_path: Path) -> None:
    process = launch(
        [],
        FAKE_RUNPOD_PORT="0",
        FAKE_RUNPOD_HOST="0.0.0.0",  # noqa: S104 - what a container does
        FAKE_RUNPOD_JOURNAL=str(tmp_path / "j"),
        FAKE_RUNPOD_API_KEY=KEY,
        FAKE_RUNPOD_QUEUE_SECONDS="0",
        FAKE_RUNPOD_RUN_SECONDS="0",
        FAKE_RUNPOD_PRICE_USD="1.25",
        FAKE_RUNPOD_PUBLIC_URL="http://fake-runpod:8000/",
    )
    url = url_of(process).replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    job_id = create(url)
    answer = httpx.get(
        f"{url}/v2/demo/status/{job_id}", headers={"Authorization": KEY}, trust_env=False
    )
    link = f"http://fake-runpod:8000/results/{job_id}.mp4"
    assert answer.json()["output"] == {"video_url": link, "cost": 1.25}


def test_settings_and_their_defaults(options: list[str], tmp_path: Path) -> None:
    found = read_settings([*options, "--no-scripts-in-input", "--time-scale=60"], {})
    assert found == FakeSettings(
        host="127.0.0.1",
        port=0,
        journal=tmp_path / "journal",
        media_dir=tmp_path / "media",
        api_key=KEY,
        time_scale=60.0,
        scripts_in_input=False,
    )
    assert KEY not in repr(found)
    off = read_settings(options, {"FAKE_RUNPOD_SCRIPTS_IN_INPUT": "0"})
    assert off.scripts_in_input is False


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (["--port=70000"], "--port"),
        (["--port=x"], "--port"),
        (["--time-scale=0"], "--time-scale"),
        (["--run-seconds=-1"], "--run-seconds"),
        (["--price-usd=free"], "--price-usd"),
        (["--encoders=0"], "--encoders"),
        (["--api-key-file=/nowhere/key"], "FAKE_RUNPOD_API_KEY_FILE"),
        (["--api-key-file=/dev/null"], "FAKE_RUNPOD_API_KEY"),
        (["--what"], "--what"),
    ],
)
def test_a_bad_option_is_named(
    options: list[str],
    changed: list[str],
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings([*options, *changed], {})
    assert ended.value.code == 2
    assert named in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_option_is_named(
    options: list[str], missing: int, capsys: pytest.CaptureFixture[str]
) -> None:
    name = options.pop(missing).partition("=")[0]
    with pytest.raises(SystemExit) as ended:
        read_settings(options, {})
    assert ended.value.code == 2
    assert name in capsys.readouterr().err.splitlines()[-1]


def test_links_never_point_to_an_address_that_is_none() -> None:
    assert _reachable("0.0.0.0") == "127.0.0.1"  # noqa: S104
    assert _reachable("::1") == "[::1]"
    assert _reachable("fake-runpod") == "fake-runpod"
