"""One running stack for the tests of this folder that leave it as they found it."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.system.path import stack as stacks

Launch = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stacks.Stack]:
    """A running stack."""
    with stacks.running(tmp_path_factory.mktemp("stack") / "home") as running:
        yield running


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Starts `coatcheck` commands as processes; what still runs is killed afterwards."""
    launched: list[subprocess.Popen[str]] = []

    def start(
        home: Path, *words: str, environ: Mapping[str, str] | None = None, **settings: str
    ) -> subprocess.Popen[str]:
        ours = {f"COATCHECK_{name}": value for name, value in settings.items()}
        process = subprocess.Popen(
            [*stacks.COMMAND, *words],
            cwd=stacks.ROOT,
            env=stacks.environment(home, {**(environ or {}), **ours}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        launched.append(process)
        return process

    yield start
    for process in launched:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
