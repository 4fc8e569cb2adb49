"""The cache of jars: pinned digests, a cheap second check, no jar that is not the pinned one."""

import hashlib
import os
import sys
from pathlib import Path

import pytest

from deploy.local import kafka_jars
from deploy.local.kafka_jars import KafkaJarsUnavailable, bring, class_path

CONTENT = {"alpha-1.0.jar": b"alpha", "beta-2.0.jar": b"beta"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with all jars of a short list, and no way to any registry."""
    folder = tmp_path / "cache"
    folder.mkdir()
    pins = ["# a comment", ""]
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
        artifact, version = name.removesuffix(".jar").split("-")
        pins.append(f"{hashlib.sha256(content).hexdigest()} org.test:{artifact}:{version}")
    (tmp_path / "pins").write_text("\n".join(pins))
    monkeypatch.setattr(kafka_jars, "PINS_FILE", tmp_path / "pins")
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    return folder


def test_the_repositorys_list_is_complete_and_names_no_host() -> None:
    jars = kafka_jars.pinned_jars()
    assert len({jar.file_name for jar in jars}) == len(jars) == 46
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)
    assert "kafka_2.13-4.3.1.jar" in {jar.file_name for jar in jars}
    assert "//" not in kafka_jars.PINS_FILE.read_text()


def test_intact_jars_need_no_network(cache: Path) -> None:
    assert class_path(cache) is None
    bring(cache)
    assert class_path(cache) == os.pathsep.join(str(cache / name) for name in CONTENT)
    assert kafka_jars.present_count(cache) == 2


def test_a_touched_jar_is_checked_again(cache: Path) -> None:
    bring(cache)
    os.utime(cache / "alpha-1.0.jar", ns=(1, 1))
    assert class_path(cache) is None
    bring(cache)
    assert class_path(cache) is not None


@pytest.mark.parametrize("content", [b"other", None])
def test_a_jar_that_is_not_the_pinned_one_is_never_used(cache: Path, content: bytes | None) -> None:
    bring(cache)
    jar = cache / "alpha-1.0.jar"
    jar.unlink() if content is None else jar.write_bytes(content)
    with pytest.raises(KafkaJarsUnavailable, match=r"could not be downloaded \(ProxyError\)"):
        bring(cache)
    assert class_path(cache) is None
    assert not (cache / "incoming").exists()


def test_a_download_with_another_digest_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "alpha-1.0.jar").unlink()

    def resolve(artifact: object) -> Path:
        arrived = cache / "incoming" / "alpha-1.0.jar"
        arrived.parent.mkdir(exist_ok=True)
        arrived.write_bytes(b"forged")
        return arrived

    monkeypatch.setattr("jgo.maven.Artifact.resolve", resolve)
    with pytest.raises(KafkaJarsUnavailable, match=r"alpha-1\.0\.jar is not the pinned one"):
        bring(cache)
    assert not (cache / "alpha-1.0.jar").exists()


def test_a_jar_that_no_registry_has_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "alpha-1.0.jar").unlink()

    def resolve(artifact: object) -> Path:
        raise RuntimeError(f"{artifact} not found, with addresses")

    monkeypatch.setattr("jgo.maven.Artifact.resolve", resolve)
    with pytest.raises(KafkaJarsUnavailable, match=r"could not be downloaded \(RuntimeError\)$"):
        bring(cache)


def test_without_the_downloader_that_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "alpha-1.0.jar").unlink()
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(KafkaJarsUnavailable, match="jgo is not installed"):
        bring(cache)


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KafkaJarsUnavailable, match="Not a directory"):
        bring(tmp_path / "file" / "cache")


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kafka_jars.default_cache_dir() == tmp_path / "coatcheck" / "kafka" / "4.3.1"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kafka_jars.default_cache_dir() == tmp_path / ".cache" / "coatcheck" / "kafka" / "4.3.1"


def test_as_a_program_it_ends_with_0_or_a_sentence(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kafka_jars", "--cache-dir", str(cache)])
    assert kafka_jars.main() == 0
    (cache / "alpha-1.0.jar").write_bytes(b"other")
    assert kafka_jars.main() == 1
    assert "could not be downloaded" in capsys.readouterr().err
