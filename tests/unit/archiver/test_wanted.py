"""What is to be copied: the paths of the purchase, the answer of now, the rules of today."""

from decimal import Decimal
from typing import Any

from services.archiver.wanted import Rules, Wanted, wanted_artifacts
from shared.domain.provider import FoundKind, ProviderState, StatusReading
from shared.domain.registry import EndpointSpec
from shared.providers import ADAPTERS
from tests.unit.some_rows import a_pinned

URL = "https://files.example.com/a.mp4"
TODAY = {
    "name": "master",
    "path": "$.elsewhere",
    "media_types": ["video/mp4"],
    "max_bytes": 7,
    "hosts": ["files.example.com"],
}


def today(*artifacts: dict[str, Any]) -> EndpointSpec:
    return EndpointSpec.model_validate(
        {
            "name": "demo-video",
            "provider": "runpod",
            "endpoint_id": "demo",
            "input_schema": {},
            "estimated_cost_usd": Decimal("0.05"),
            "artifacts": list(artifacts),
        }
    )


def wanted(
    output: Any, spec: EndpointSpec | None, *artifacts: dict[str, Any]
) -> tuple[Wanted, ...] | None:
    pinned = a_pinned(artifacts=list(artifacts)) if artifacts else a_pinned()
    reading = StatusReading(ProviderState.completed, output=output, has_output=output is not None)
    return wanted_artifacts(reading, pinned, spec, ADAPTERS["runpod"], frozenset())


def test_paths_are_the_purchases_and_rules_are_todays() -> None:
    found = wanted({"video_url": URL, "elsewhere": "x"}, today(TODAY))
    assert found is not None
    (master,) = found
    assert (master.name, master.found.value) == ("master", URL)
    assert master.rules == Rules(("files.example.com",), ("video/mp4",), 7)


def test_an_artifact_that_left_the_registry_may_come_from_nowhere() -> None:
    for spec in (None, today()):
        found = wanted({"video_url": URL}, spec)
        assert found is not None
        assert found[0].rules == Rules()
        assert found[0].rules.hosts == ()


def test_a_required_artifact_must_be_there() -> None:
    assert wanted({"image_url": URL}, today(TODAY)) is None
    assert wanted(None, today(TODAY)) is None


def test_an_optional_artifact_may_be_absent() -> None:
    optional = {"name": "extra", "path": "$.extra", "required": False, "kind": "auto"}
    assert wanted({}, today(), optional) == ()


def test_several_values_get_names_of_their_own() -> None:
    many = {"name": "clip", "path": "$.clips", "required": True, "kind": "auto"}
    found = wanted({"clips": [URL, f"{URL}?2"]}, today(), many)
    assert found is not None
    assert [item.name for item in found] == ["clip", "clip-2"]


def test_an_endpoint_without_artifacts_takes_what_is_found() -> None:
    reading = StatusReading(ProviderState.completed, output={"any": URL}, has_output=True)
    pinned = a_pinned(artifacts=[])
    found = wanted_artifacts(reading, pinned, today(), ADAPTERS["runpod"], frozenset())
    assert found is not None
    assert [(item.name, item.found.kind) for item in found] == [("result", FoundKind.url)]
    empty = StatusReading(ProviderState.completed, output={"text": "none"}, has_output=True)
    assert wanted_artifacts(empty, pinned, today(), ADAPTERS["runpod"], frozenset()) is None
