"""Whether an output holds what was declared, and until when its links last."""

from datetime import UTC, datetime
from typing import Any

from services.reconciler.survey import NOTHING, Survey, survey
from shared.domain.provider import ProviderState, StatusReading
from shared.providers import ADAPTERS
from tests.unit.some_rows import a_pinned

HOST = "https://files.example.com"
SOONER = "X-Amz-Date=20260301T120000Z&X-Amz-Expires=60&X-Amz-Signature=0"
LATER = "X-Amz-Date=20260301T120000Z&X-Amz-Expires=600&X-Amz-Signature=0"


def held(output: Any, *artifacts: dict[str, Any], private: frozenset[str] = frozenset()) -> Survey:
    pinned = a_pinned(artifacts=list(artifacts))
    reading = StatusReading(ProviderState.completed, output=output, has_output=output is not None)
    return survey(reading, pinned, ADAPTERS["runpod"], private)


def declared(name: str, path: str, *, required: bool = True) -> dict[str, Any]:
    return {"name": name, "path": path, "required": required, "kind": "auto"}


def test_every_required_artifact_must_be_there() -> None:
    both = declared("a", "$.a"), declared("b", "$.b")
    assert held({"a": f"{HOST}/a.mp4", "b": f"{HOST}/b.mp4"}, *both) == Survey(is_whole=True)
    assert held({"a": f"{HOST}/a.mp4"}, *both) == NOTHING
    assert held(None, *both) == NOTHING


def test_an_optional_artifact_may_be_absent() -> None:
    wanted = declared("a", "$.a"), declared("b", "$.b", required=False)
    assert held({"a": f"{HOST}/a.mp4"}, *wanted) == Survey(is_whole=True)


def test_the_soonest_expiry_of_all_links_counts() -> None:
    wanted = declared("a", "$.a"), declared("b", "$.b", required=False)
    found = held({"a": f"{HOST}/a.mp4?{LATER}", "b": f"{HOST}/b.mp4?{SOONER}"}, *wanted)
    assert found.link_expires_at == datetime(2026, 3, 1, 12, 1, tzinfo=UTC)


def test_without_a_declaration_some_media_must_be_found() -> None:
    assert held({"anything": f"{HOST}/a.mp4"}).is_whole
    assert not held({"text": "a sentence"}).is_whole


def test_an_own_machine_counts_only_where_it_is_let_through() -> None:
    output = {"a": "http://127.0.0.1:9000/a.mp4"}
    assert not held(output, declared("a", "$.a")).is_whole
    allowed = frozenset({"127.0.0.1:9000"})
    assert held(output, declared("a", "$.a"), private=allowed).is_whole
