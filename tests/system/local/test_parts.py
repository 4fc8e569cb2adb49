"""Each real part by itself: it starts, keeps its data, gives way to nobody, recovers."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from deploy.local import kafka, kafka_jars, ports, postgres, seaweedfs
from deploy.local.kafka import LocalKafka
from deploy.local.kafka_jars import KafkaJarsUnavailable
from deploy.local.ports import PortTaken
from deploy.local.postgres import LocalPostgres
from deploy.local.processes import PartFailed, spawn
from deploy.local.remains import start_ticks
from deploy.local.seaweedfs import PORT_FLAGS, LocalSeaweed
from shared.kit.bus import Topic, ensure_topics
from shared.kit.settings import KafkaSettings

Local = LocalPostgres | LocalSeaweed | LocalKafka


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalPostgres]:
    (port,) = ports.free_block(1)
    made = LocalPostgres(tmp_path / "pg", port, "pass/word@", tmp_path / "pg.log", durable=False)
    yield made
    made.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalSeaweed]:
    numbers = ports.free_block(len(PORT_FLAGS))
    log_path = tmp_path / "s3.log"
    made = LocalSeaweed(tmp_path / "s3", numbers, "access-key", "secret-key", "bucket", log_path)
    yield made
    made.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalKafka]:
    port, controller_port = ports.free_block(2)
    log_path = tmp_path / "kafka.log"
    cache_dir = kafka_jars.default_cache_dir()
    made = LocalKafka(tmp_path / "kafka", port, controller_port, log_path, cache_dir)
    yield made
    made.stop()


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def killed(part: Local) -> None:
    """The part's process, killed as by the kernel."""
    assert part.process is not None
    part.process.kill()
    part.process.wait()


async def test_postgres_keeps_its_data_over_stop_and_kill(tmp_path: Path) -> None:
    (port,) = ports.free_block(1)
    server = LocalPostgres(tmp_path / "pg", port, "pass", tmp_path / "log", durable=True)
    for end in (server.stop, lambda: killed(server), server.stop):
        pid = server.start()
        assert "pass" not in command_line(pid)
        connection = await asyncpg.connect(server.url)
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (n integer)")
        await connection.execute("INSERT INTO kept VALUES (1)")
        rows = await connection.fetchval("SELECT count(*) FROM kept")
        facts = await connection.fetchrow("SELECT current_user, current_database()")
        await connection.close()
        end()
        assert start_ticks(pid) is None
    assert rows == 3
    assert list(facts or ()) == ["coatcheck", "coatcheck"]


async def test_postgres_wants_the_password_and_has_no_unix_socket(server: LocalPostgres) -> None:
    server.start()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(server.url.replace("pass%2Fword%40", "wrong"))
    connection = await asyncpg.connect(server.url)
    assert await connection.fetchval("SHOW unix_socket_directories") == ""
    assert await connection.fetchval("SHOW listen_addresses") == "127.0.0.1"
    await connection.close()


@pytest.mark.parametrize(("durable", "fsync"), [(True, "on"), (False, "off")])
async def test_only_a_throw_away_cluster_forgoes_fsync(
    tmp_path: Path, durable: bool, fsync: str
) -> None:
    (port,) = ports.free_block(1)
    server = LocalPostgres(tmp_path / "pg", port, "word", tmp_path / "log", durable=durable)
    server.start()
    try:
        connection = await asyncpg.connect(server.url)
        assert await connection.fetchval("SHOW fsync") == fsync
        await connection.close()
    finally:
        server.stop()


def test_postgres_does_not_fear_a_strangers_number_in_its_pid_file(server: LocalPostgres) -> None:
    server.start()
    server.stop()
    pid_file = server.data_dir / "postmaster.pid"
    for text in (f"{os.getpid()}\n{server.data_dir}\n", "garbage\n"):
        pid_file.write_text(text)
        server.start()
        server.stop()


def test_postgres_waits_for_a_predecessor_that_still_ends(server: LocalPostgres) -> None:
    first = server.start()
    assert server.process is not None
    predecessor = server.process
    begin = server.begin()
    assert next(begin) == f"the end of an earlier server (process {first})"
    predecessor.send_signal(signal.SIGINT)
    predecessor.wait()
    for _ in begin:
        continue
    assert server.process.pid != first


def test_a_damaged_cluster_is_told(server: LocalPostgres) -> None:
    server.start()
    server.stop()
    (server.data_dir / "global" / "pg_control").write_bytes(b"")
    with pytest.raises(PartFailed, match="PostgreSQL ended at once"):
        server.start()


def test_a_cluster_that_cannot_be_made_is_told_and_leaves_no_password(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (port,) = ports.free_block(1)
    under_file = tmp_path / "file" / "pg"
    server = LocalPostgres(under_file, port, "word", tmp_path / "log", durable=False)
    with pytest.raises(PartFailed, match="cannot make"):
        server.start()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file"]


def test_a_cluster_without_room_is_told_and_leaves_no_password(
    server: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # initdb cannot write a file of more than 64 KiB: the log comes from us, the cluster does not.
    monkeypatch.setattr(postgres, "spawn", _with_small_files)
    with pytest.raises(PartFailed, match="initdb ended with 1"):
        server.start()
    left = {entry.name for entry in server.data_dir.parent.iterdir()}
    assert left <= {"pg.log", "pg.new"}


def _with_small_files(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
    return spawn(["prlimit", "--fsize=65536", *argv], **options)


def test_missing_programs_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(PartFailed, match="PostgreSQL is not installed"):
        postgres.programs_dir()
    with pytest.raises(PartFailed, match="SeaweedFS is not installed"):
        seaweedfs.weed_program()
    with pytest.raises(KafkaJarsUnavailable, match="no Java 17 or newer"):
        kafka.find_java()


@pytest.mark.parametrize(("version", "is_enough"), [("11.0.2", False), ("21.0.1", True)])
def test_a_system_java_must_be_new_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, is_enough: bool
) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name: str(java))
    if is_enough:
        assert kafka.find_java() == java
    else:
        with pytest.raises(KafkaJarsUnavailable):
            kafka.find_java()


def test_the_store_keeps_its_data_and_listens_on_loopback_only(store: LocalSeaweed) -> None:
    pid = store.start()
    assert "secret-key" not in command_line(pid)
    assert store._signed_status("PUT") == 200
    store.stop()
    assert store._signed_status("GET") == 0
    assert start_ticks(pid) is None
    assert not list(Path("/tmp").glob(f"seaweedfs-*-{store.ports[1]}.sock"))  # noqa: S108
    pid = store.start()
    assert store._signed_status("GET") == 404, "the probe cleans up behind itself"
    for port in store.ports:
        with socket.socket() as elsewhere:
            assert elsewhere.connect_ex(("127.0.0.2", port)) != 0
    killed(store)
    store.start()


def test_a_store_that_dies_while_it_starts_is_told(store: LocalSeaweed) -> None:
    store.data_dir.mkdir()
    (store.data_dir / "filerldb2").write_text("in the way")
    with pytest.raises(PartFailed, match="SeaweedFS ended at once"):
        store.start()


def test_a_store_on_a_file_is_told(store: LocalSeaweed) -> None:
    store.data_dir.write_text("")
    with pytest.raises(PartFailed, match="cannot make"):
        store.start()


def test_a_wrong_number_of_ports_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="10 ports"):
        LocalSeaweed(tmp_path, [1], "a", "b", "c", tmp_path / "log")


@pytest.mark.parametrize("name", ["server", "store", "broker"])
def test_a_taken_port_is_refused_and_never_replaced(
    request: pytest.FixtureRequest, name: str
) -> None:
    part: Local = request.getfixturevalue(name)
    # On another loopback address: enough for a part that would silently move.
    host = "127.0.0.2" if name == "store" else ports.LOOPBACK
    with (
        socket.create_server((host, part.port)),
        pytest.raises(PortTaken, match=rf"{part.port}.*COATCHECK_LOCAL_"),
    ):
        part.start()


async def test_kafka_keeps_its_topics_over_stop_and_kill(broker: LocalKafka) -> None:
    broker.start()
    settings = KafkaSettings(kafka_bootstrap_servers=broker.bootstrap)
    assert await ensure_topics(settings) == frozenset(Topic)
    broker.stop()
    # Another internal port, as after a restart on which the old one was taken.
    port, controller_port = broker.port, ports.free_block(1)[0]
    moved = LocalKafka(broker.home, port, controller_port, broker.log_path, broker.cache_dir)
    try:
        moved.start()
        assert await ensure_topics(settings) == frozenset()
        killed(moved)
        moved.start()
        assert await ensure_topics(settings) == frozenset()
    finally:
        moved.stop()


def test_a_broker_that_dies_while_it_starts_is_told(broker: LocalKafka) -> None:
    broker.start()
    broker.stop()
    (broker.home / "data" / "meta.properties").write_text("cluster.id=another\nversion=1\n")
    with pytest.raises(PartFailed, match="Kafka ended at once"):
        broker.start()


def test_a_broker_on_a_file_is_told(broker: LocalKafka) -> None:
    broker.home.write_text("")
    with pytest.raises(PartFailed, match="cannot write"):
        broker.start()


def test_a_broker_without_jars_says_so(
    broker: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.cache_dir = tmp_path / "empty"
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with pytest.raises(KafkaJarsUnavailable, match="a jar could not be downloaded"):
        broker.start()


def test_a_cache_that_changes_behind_our_back_is_not_used(
    broker: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_jars, "class_path", lambda _dir: None)
    with pytest.raises(KafkaJarsUnavailable, match="keeps changing"):
        broker.start()


def test_parts_die_with_whoever_started_them(tmp_path: Path) -> None:
    (port,) = ports.free_block(1)
    program = (
        "import time; from pathlib import Path; from deploy.local.postgres import LocalPostgres\n"
        f"home = Path({str(tmp_path)!r})\n"
        f"server = LocalPostgres(home / 'pg', {port}, 'word', home / 'log', durable=False)\n"
        "print(server.start(), flush=True); time.sleep(600)"
    )
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    server = LocalPostgres(tmp_path / "pg", port, "word", tmp_path / "log", durable=False)
    server.start()
    assert start_ticks(pid) is None
    server.stop()
