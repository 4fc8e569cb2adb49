"""Builds `.venv` from the hash-checked locks. Standard library only: it runs before anything else.

Owns the virtual environment and a stamp in it, so that a second run costs nothing. Promises a
line of progress at least every five seconds, the sizes of what comes down, and one clear
sentence where the machine lacks something. Packages come through pip's own settings (index,
certificates); uv, fetched with its hash, does the bulk because it is ten times as fast, and where
it fails pip does the same work from the same lock.
"""

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "coatcheck.stamp"
INPUTS = ("requirements.lock", "deploy/bootstrap.lock", "pyproject.toml")
LEAST_PYTHON = (3, 11)
HEARTBEAT_SECONDS = 4.0


class BootstrapFailed(Exception):
    """The environment cannot be built; the message says why and what to do."""


def main() -> int:
    """Builds the environment if it is missing or stale; 0, or 1 with one line on stderr."""
    try:
        build()
    except BootstrapFailed as error:
        print(f"coatcheck: {error}", file=sys.stderr)  # noqa: T201 - a program's own output
        return 1
    except KeyboardInterrupt:
        say("coatcheck: interrupted; the next run begins anew")
        return 130
    return 0


def build() -> None:
    """Makes `.venv` hold exactly what the locks name."""
    if sys.version_info[:2] < LEAST_PYTHON:
        raise BootstrapFailed(f"Python 3.11 or later is needed, this is {sys.version.split()[0]}")
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted and PYTHON.exists():
        return
    say("building .venv: about 260 MB of packages come down once (hash-checked), of it")
    say("  ffmpeg 70 MB, SeaweedFS 50 MB, Java 35 MB, PostgreSQL 15 MB; then 790 MB on disk")
    with heartbeat("making the environment"):
        make_venv()
    with heartbeat("fetching the installer (17 MB)"):
        has_uv = pip("install", "--require-hashes", "-r", "deploy/bootstrap.lock")
    with heartbeat("installing packages"):
        if not (has_uv and uv_install()) and not pip(
            "install", "--require-hashes", "-r", "requirements.lock"
        ):
            raise BootstrapFailed(
                f"packages could not be installed; see {log_path()} (is the package index"
                " reachable, is the disk full?)"
            )
    with heartbeat("installing coatcheck itself"):
        if not pip("install", "--no-deps", "--no-build-isolation", "--editable", "."):
            raise BootstrapFailed(f"coatcheck itself could not be installed; see {log_path()}")
    STAMP.write_text(wanted)
    say("the environment is ready: .venv")


def fingerprint() -> str:
    """Names the inputs and the interpreter that an environment was built from."""
    digest = hashlib.sha256(f"{sys.version_info[:3]} {ROOT}".encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def make_venv() -> None:
    """A fresh virtual environment. Raises BootstrapFailed where the machine has no venv."""
    made = run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    if not made:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise BootstrapFailed(
            f"`python3 -m venv` failed; on Debian and Ubuntu: apt-get install python{version}-venv"
        )


def pip(*arguments: str) -> bool:
    """One pip command inside the environment; its output goes to the log."""
    quiet = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")
    return run([str(PYTHON), "-m", "pip", arguments[0], *quiet, *arguments[1:]])


def uv_install() -> bool:
    """Installs the lock with uv, from the index that pip uses, trusting whom the system trusts."""
    environment = dict(os.environ)
    index = pip_index()
    if index and "UV_INDEX_URL" not in environment:
        environment["UV_INDEX_URL"] = index
    command = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON)]
    command += ["--system-certs", "--require-hashes", "--compile-bytecode"]
    return run([*command, "-r", "requirements.lock"], environment)


def pip_index() -> str | None:
    """The package index that pip is set up for, if it is not the usual one."""
    asked = [str(PYTHON), "-m", "pip", "config", "get", "global.index-url"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return os.environ.get("PIP_INDEX_URL") or answer.stdout.strip() or None


def log_path() -> Path:
    """Where the tools' own output stands."""
    return VENV / "bootstrap.log"


def run(command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Runs one tool, its output appended to the log; whether it ended well."""
    if not VENV.exists():
        VENV.mkdir(parents=True, exist_ok=True)
    with log_path().open("ab") as log:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False
        )
    return ended.returncode == 0


@contextmanager
def heartbeat(what: str) -> Iterator[None]:
    """Says what is going on, at once and then every few seconds."""
    begun = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            say(f"  {what} … {time.monotonic() - begun:.0f} s")

    say(what)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def say(text: str) -> None:
    """One line of progress."""
    print(text, flush=True)  # noqa: T201 - a program's own output


if __name__ == "__main__":
    raise SystemExit(main())
