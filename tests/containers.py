"""The tests' parts as containers, for machines where the wheels cannot run but Docker can.

The images are those of `docker-compose.yml`, so their pins stand in one place. Each function
gives a running part and takes it away again; what it gives is the same as the local one.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy, PortWaitStrategy

from deploy.local import ports

COMPOSE_FILE = Path(__file__).parents[1] / "docker-compose.yml"
BUCKET = "coatcheck-test"


def image_of(service: str) -> str:
    """The pinned image of one service of the Compose file."""
    document = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
    return str(document["services"][service]["image"])


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a server on which databases may be made."""
    password = secrets.token_hex(8)
    container = (
        DockerContainer(image_of("postgres"))
        .with_envs(POSTGRES_USER="coatcheck", POSTGRES_PASSWORD=password)
        .with_exposed_ports(5432)
        .with_command("postgres -c fsync=off")
        # Twice: the server that prepares the data directory says so too.
        .waiting_for(LogMessageWaitStrategy("ready to accept connections", times=2))
    )
    with container as server:
        host, port = server.get_container_host_ip(), server.get_exposed_port(5432)
        yield f"postgresql://coatcheck:{password}@{host}:{port}/coatcheck"


@contextmanager
def kafka() -> Iterator[str]:
    """The bootstrap address of a broker; it must know beforehand by which port it is reached."""
    (port,) = ports.free_block(1)
    container = (
        DockerContainer(image_of("kafka"))
        .with_envs(
            KAFKA_NODE_ID="1",
            KAFKA_PROCESS_ROLES="broker,controller",
            KAFKA_LISTENERS="PLAINTEXT://:9092,CONTROLLER://:9093",
            KAFKA_ADVERTISED_LISTENERS=f"PLAINTEXT://{ports.LOOPBACK}:{port}",
            KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9093",
            KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
            KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR="1",
            KAFKA_TRANSACTION_STATE_LOG_MIN_ISR="1",
            KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
            KAFKA_AUTO_CREATE_TOPICS_ENABLE="false",
        )
        .with_bind_ports(9092, port)
        .waiting_for(LogMessageWaitStrategy("Kafka Server started"))
    )
    with container:
        yield f"{ports.LOOPBACK}:{port}"


@contextmanager
def storage() -> Iterator[tuple[str, str, str, str]]:
    """An S3 store: endpoint URL, bucket, access key, secret key."""
    access_key, secret_key = secrets.token_hex(8), secrets.token_hex(16)
    container = (
        DockerContainer(image_of("seaweedfs"))
        .with_envs(
            AWS_ACCESS_KEY_ID=access_key,
            AWS_SECRET_ACCESS_KEY=secret_key,
            S3_BUCKET=BUCKET,
            GOMEMLIMIT="400MiB",
        )
        .with_exposed_ports(8333)
        .with_command(
            "mini -dir=/data -ip=127.0.0.1 -ip.bind=0.0.0.0 -s3.port=8333"
            " -master.telemetry=false -webdav=false -admin.ui=false"
        )
        .waiting_for(PortWaitStrategy(8333))
    )
    with container as server:
        host, port = server.get_container_host_ip(), server.get_exposed_port(8333)
        yield f"http://{host}:{port}", BUCKET, access_key, secret_key
