"""The registry file: what is accepted, and that each refusal names its place."""

from pathlib import Path

import pytest

from shared.domain.errors import Refused
from shared.kit.registry import load_registry

GOOD = """
[endpoints.demo-video]
provider = "runpod"
endpoint_id = "demo"
input_schema = "schema.json"
estimated_cost_usd = "0.05"
poll = { first_s = 2, min_s = 2, max_s = 60 }
[[endpoints.demo-video.artifacts]]
name = "master"
path = "$.video_url"
hosts = ["*.example.com"]
"""


def write(folder: Path, text: str, schema: str = '{"type": "object"}') -> Path:
    """A registry file with its schema beside it."""
    (folder / "schema.json").write_text(schema)
    path = folder / "endpoints.toml"
    path.write_text(text)
    return path


def test_a_good_registry_is_read(tmp_path: Path) -> None:
    registry = load_registry(write(tmp_path, GOOD))
    endpoint = registry.find("demo-video")
    assert endpoint is not None
    assert endpoint.artifacts[0].hosts == ("*.example.com",)
    assert registry.find("other") is None


def test_the_revision_names_the_pinned_part_only(tmp_path: Path) -> None:
    def revision(text: str) -> str:
        endpoint = load_registry(write(tmp_path, text)).find("demo-video")
        assert endpoint is not None
        return endpoint.revision

    base = revision(GOOD)
    assert revision(GOOD.replace("*.example.com", "cdn.example.com")) == base
    assert revision(GOOD + "max_bytes = 5\n") == base
    assert revision(GOOD.replace("$.video_url", "$.url")) != base
    assert revision(GOOD.replace('"0.05"', '"0.06"')) != base
    assert revision(GOOD.replace("max_s = 60", "max_s = 50")) != base


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('provider = "runpod"', "", "provider"),
        ('"0.05"', '"-1"', "estimated_cost_usd"),
        ("max_s = 60", "max_s = 1", "poll"),
        ('hosts = ["*.example.com"]', "", "hosts"),
        ('hosts = ["*.example.com"]', 'hosts = ["10.0.0.1"]', "hosts"),
        ('"$.video_url"', '"video_url"', "path"),
        ('"$.video_url"', "'$[?match(@.a, \"(a|aa)+b\")]'", "path"),
        ('endpoint_id = "demo"', 'endpoint_id = "demo"\nretention = 5', "retention"),
        ('input_schema = "schema.json"', "", "input_schema"),
        ('input_schema = "schema.json"', 'input_schema = "none.json"', "none.json"),
        ("[endpoints.demo-video]", "[endpoints.Demo_Video!]", "TOML"),
    ],
)
def test_a_refusal_names_its_place(tmp_path: Path, old: str, new: str, named: str) -> None:
    assert old in GOOD
    with pytest.raises(Refused, match=named):
        load_registry(write(tmp_path, GOOD.replace(old, new)))


@pytest.mark.parametrize("schema", ["{", '{"type": "thing"}', "true"])
def test_a_bad_schema_is_refused(tmp_path: Path, schema: str) -> None:
    with pytest.raises(Refused, match=r"schema\.json"):
        load_registry(write(tmp_path, GOOD, schema))


def test_a_missing_or_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        load_registry(tmp_path / "none.toml")
    with pytest.raises(Refused, match="at least one"):
        load_registry(write(tmp_path, ""))
    with pytest.raises(Refused, match="must be a table"):
        load_registry(write(tmp_path, "[endpoints]\nx = 1"))


def test_two_artifacts_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = GOOD + GOOD[GOOD.index("[[") :]
    with pytest.raises(Refused, match="differ"):
        load_registry(write(tmp_path, twice))
