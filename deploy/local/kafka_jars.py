"""The jars of Apache Kafka: a pinned list, a cache, and the way from one to the other.

Owns `kafka-jars.sha256` (every coordinate with its SHA-256) and the folder of jars per user.
Promises that no jar is ever used whose digest is not the pinned one, and that a second start
needs neither network nor hashing: sizes and times noted after the last check are compared.
Must never guess a version; without all jars there is no broker, which the caller says aloud.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local.processes import PartFailed

KAFKA_VERSION = "4.3.1"
DOWNLOAD_MEGABYTES = 45
PINS_FILE = Path(__file__).with_name("kafka-jars.sha256")
STAMP_NAME = "checked.json"
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
INCOMING_NAME = "incoming"
DOWNLOAD_THREADS = 8
HTTP_TIMEOUT_SECONDS = 15


class KafkaJarsUnavailable(PartFailed):
    """The jars of Apache Kafka cannot be had."""

    may_pass = False


@dataclass(frozen=True)
class PinnedJar:
    """One jar of the list."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def pinned_jars() -> tuple[PinnedJar, ...]:
    """The list of the repository, in its order."""
    jars = []
    for line in PINS_FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            digest, coordinates = line.split()
            group, artifact, version = coordinates.split(":")
            jars.append(PinnedJar(group, artifact, version, digest))
    return tuple(jars)


def default_cache_dir() -> Path:
    """`coatcheck/kafka/<version>` in the user's cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(caches) / "coatcheck" / "kafka" / KAFKA_VERSION


def class_path(cache_dir: Path) -> str | None:
    """Java's class path if every jar is there and as it was when last checked, else None."""
    if not _stamp_holds(cache_dir):
        return None
    return os.pathsep.join(str(cache_dir / jar.file_name) for jar in pinned_jars())


def present_count(cache_dir: Path) -> int:
    """How many jars have arrived, counting those of a download under way."""
    # `walk` passes over what vanishes meanwhile: the download moves and removes as it goes.
    names = [name for _, _, files in os.walk(cache_dir) for name in files]
    return sum(name.endswith(".jar") for name in names)


def bring(cache_dir: Path) -> None:
    """Make the cache complete and checked, downloading what lacks or differs.

    Raises `KafkaJarsUnavailable`; safe against a second process doing the same.
    """
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _only_one(cache_dir):
            wanted = [jar for jar in pinned_jars() if not _is_intact(cache_dir, jar)]
            if wanted:
                _download(cache_dir, wanted)
            _write_stamp(cache_dir)
    except OSError as error:
        raise KafkaJarsUnavailable(f"{cache_dir}: {error.strerror or error}") from error


def _download(cache_dir: Path, wanted: Sequence[PinnedJar]) -> None:
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise KafkaJarsUnavailable("jgo is not installed: install coatcheck[local]") from error
    incoming = cache_dir / INCOMING_NAME
    shutil.rmtree(incoming, ignore_errors=True)
    source = MavenContext(repo_cache=incoming, timeout=HTTP_TIMEOUT_SECONDS)

    def take(jar: PinnedJar) -> None:
        component = source.project(jar.group, jar.artifact).at_version(jar.version)
        arrived = Path(component.artifact().resolve())
        if _sha256(arrived) != jar.sha256:
            raise KafkaJarsUnavailable(f"{jar.file_name} is not the pinned one")
        arrived.replace(cache_dir / jar.file_name)

    try:
        _for_all(wanted, take)
    except (OSError, RuntimeError) as error:
        # The library tells trouble by these; its texts hold addresses, so only the kind is kept.
        raise KafkaJarsUnavailable(
            f"a jar could not be downloaded ({type(error).__name__})"
        ) from error
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _for_all(jars: Sequence[PinnedJar], take: Callable[[PinnedJar], None]) -> None:
    """Several at a time; after a failure none is begun any more, and the failure is raised."""
    with ThreadPoolExecutor(DOWNLOAD_THREADS) as pool:
        downloads = [pool.submit(take, jar) for jar in jars]
        try:
            for download in downloads:
                download.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _is_intact(cache_dir: Path, jar: PinnedJar) -> bool:
    path = cache_dir / jar.file_name
    return path.is_file() and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _facts(cache_dir: Path) -> dict[str, list[object]]:
    """What the stamp notes of each jar: pinned digest, size, time of the last change."""
    facts: dict[str, list[object]] = {}
    for jar in pinned_jars():
        seen = (cache_dir / jar.file_name).stat()
        facts[jar.file_name] = [jar.sha256, seen.st_size, seen.st_mtime_ns]
    return facts


def _stamp_holds(cache_dir: Path) -> bool:
    try:
        noted = json.loads((cache_dir / STAMP_NAME).read_text())
        return bool(noted == _facts(cache_dir))
    except (OSError, ValueError):
        return False


def _write_stamp(cache_dir: Path) -> None:
    fresh = cache_dir / f"{STAMP_NAME}.new"
    fresh.write_text(json.dumps(_facts(cache_dir)))
    fresh.replace(cache_dir / STAMP_NAME)


@contextmanager
def _only_one(cache_dir: Path) -> Iterator[None]:
    with (cache_dir / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """`python -m deploy.local.kafka_jars`: fill the cache; 1 and a sentence when it cannot be."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cache-dir", type=Path, default=None)
    if SYSTEM_CERTIFICATES.is_file():
        # Whom this machine trusts, its company's proxy included, not a list out of a package.
        os.environ.setdefault("REQUESTS_CA_BUNDLE", str(SYSTEM_CERTIFICATES))
    try:
        bring(parser.parse_args().cache_dir or default_cache_dir())
    except KafkaJarsUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
