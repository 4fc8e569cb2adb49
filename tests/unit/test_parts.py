"""Which parts the tests take, and that the containers are those of the Compose file."""

from pathlib import Path

import pytest

from tests import containers, parts


def test_the_local_parts_come_before_containers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    socket = tmp_path / "docker.sock"
    socket.touch()
    monkeypatch.setattr(parts, "DOCKER_SOCKET", socket)
    monkeypatch.delenv("COATCHECK_TEST_PARTS", raising=False)
    assert not parts.wants_containers()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert parts.wants_containers()
    socket.unlink()
    assert not parts.wants_containers()
    monkeypatch.setenv("COATCHECK_TEST_PARTS", "containers")
    assert parts.wants_containers()


@pytest.mark.parametrize("service", ["postgres", "kafka", "seaweedfs"])
def test_a_container_is_the_pinned_image(service: str) -> None:
    assert "@sha256:" in containers.image_of(service)


def test_services_in_the_environment_come_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COATCHECK_TEST_POSTGRES_URL", "postgresql://elsewhere/db")
    monkeypatch.setenv("COATCHECK_TEST_KAFKA_BOOTSTRAP_SERVERS", "elsewhere:9092")
    with parts.postgres(tmp_path) as url, parts.kafka(tmp_path) as bootstrap:
        assert (url, bootstrap) == ("postgresql://elsewhere/db", "elsewhere:9092")
