"""An endpoint's schema: what is found, how it is said, and which URLs it lets through."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.gateway.urls import looks_like_url
from services.gateway.validation import InputRules, compile_rules, pointer_to
from shared.domain.errors import Refused
from shared.domain.registry import Registry
from shared.kit.registry import load_registry

TABLE = """
[endpoints.one]
provider = "{provider}"
endpoint_id = "demo"
input_schema = "one.json"
estimated_cost_usd = "0.05"
"""


def registry(folder: Path, schema: Any, provider: str = "runpod") -> Registry:
    """A registry with one endpoint of that schema."""
    (folder / "one.json").write_text(json.dumps(schema))
    (folder / "endpoints.toml").write_text(TABLE.format(provider=provider))
    return load_registry(folder / "endpoints.toml")


def rules(folder: Path, schema: Any, provider: str = "runpod") -> InputRules:
    """The rules of an endpoint with that schema."""
    return compile_rules(registry(folder, schema, provider))["one"]


@pytest.mark.parametrize(
    ("schema", "value", "detail"),
    [
        ({"type": "string"}, 7, "must be of type string"),
        ({"type": ["string", "null"]}, 7, "must be of type string, null"),
        ({"enum": ["a", "b"]}, "marzipan", "must be one of a, b"),
        ({"const": 4.0}, "marzipan", "must be 4"),
        ({"minLength": 3}, "a", "must have at least 3 characters"),
        ({"maxLength": 3}, "marzipan", "must have at most 3 characters"),
        ({"pattern": "^x+$"}, "marzipan", "must match the pattern ^x+$"),
        ({"minimum": 1.5}, 1, "must be at least 1.5"),
        ({"maximum": 1}, 2, "must be at most 1"),
        ({"exclusiveMinimum": 1}, 1, "must be greater than 1"),
        ({"exclusiveMaximum": 1}, 1, "must be less than 1"),
        ({"multipleOf": 8}, 9, "must be a multiple of 8"),
        ({"minItems": 1}, [], "must have at least 1 items"),
        ({"maxItems": 1}, [1, 2], "must have at most 1 items"),
        ({"uniqueItems": True}, [1, 1], "must not hold an item twice"),
        ({"oneOf": [{}, {}]}, 1, "must fit exactly one of the schema's alternatives"),
        ({"not": {"type": "string"}}, "marzipan", "must not be what the schema excludes"),
        ({"enum": ["x" * 500]}, "marzipan", "must be one of " + "x" * 120 + "…"),
        ({"propertyNames": {"maxLength": 1}}, {"marzipan": 1}, "must have at most 1 characters"),
        (
            {"unevaluatedProperties": False},
            {"marzipan": 1},
            "holds a member that is not allowed here",
        ),
    ],
)
def test_findings_speak_of_the_schema_alone(
    tmp_path: Path, schema: Any, value: Any, detail: str
) -> None:
    endpoint = rules(tmp_path, {"properties": {"x": schema}})
    (finding,) = endpoint.findings({"x": value})
    assert (finding.pointer, finding.detail) == ("#/input/x", detail)


def test_a_place_that_allows_nothing(tmp_path: Path) -> None:
    (finding,) = rules(tmp_path, {"properties": {"x": False}}).findings({"x": "marzipan"})
    assert finding.detail == "is not allowed here"


def test_findings_name_members_by_their_place(tmp_path: Path) -> None:
    schema = {
        "required": ["a", "b", "c"],
        "properties": {"a": {}, "b": {}, "c": {}},
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
        "dependentRequired": {"a": ["b"]},
    }
    findings = rules(tmp_path, schema).findings({"a": 1, "x-y": 1, "~/ü": 1, "z": 1})
    found = {(finding.pointer, finding.detail) for finding in findings}
    assert found == {
        ("#/input/b", "is required"),
        ("#/input/c", "is required"),
        ("#/input/~0~1%C3%BC", "is not allowed here"),
        ("#/input/z", "is not allowed here"),
        ("#/input", "lacks a member that another one asks for"),
    }


def test_pointers_are_bounded() -> None:
    assert pointer_to() == "#"
    assert len(pointer_to("x" * 10_000)) == 301


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "https://schemas.example.com/one.json"}, "leads nowhere"),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, "leads nowhere"),
        ({"properties": {"a": {"x-allowed-hosts": "a.example.com"}}}, "must be a list"),
        ({"properties": {"a": {"x-allowed-hosts": [7]}}}, "must be a list"),
    ],
)
def test_a_schema_that_cannot_work_is_refused_at_start(
    tmp_path: Path, schema: Any, says: str
) -> None:
    with pytest.raises(Refused, match=rf"endpoints\.one\.input_schema.*{says}"):
        rules(tmp_path, schema)


def test_a_provider_that_nobody_knows_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"endpoints\.one\.provider: 'nobody' is none of .*runpod"):
        rules(tmp_path, {}, provider="nobody")


def test_members_that_are_only_called_like_a_reference_are_none(tmp_path: Path) -> None:
    assert rules(tmp_path, {"examples": [{"$ref": 7}]}).findings({"a": 1}) == []


MARKED = {"x-allowed-hosts": ["a.example.com"]}
URL = "https://a.example.com/x.png"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"x": MARKED}}, {"x": URL}),
        ({"patternProperties": {"^x": MARKED}}, {"x1": URL}),
        ({"additionalProperties": MARKED}, {"x": URL}),
        ({"properties": {"x": {"items": MARKED}}}, {"x": [URL, URL]}),
        ({"properties": {"x": {"prefixItems": [{}, MARKED]}}}, {"x": [1, URL]}),
        ({"$defs": {"m": MARKED}, "properties": {"x": {"$ref": "#/$defs/m"}}}, {"x": URL}),
        ({"properties": {"x": {"anyOf": [{"type": "null"}, MARKED]}}}, {"x": URL}),
        ({"allOf": [{"properties": {"x": MARKED}}]}, {"x": URL}),
        ({"if": {}, "then": {"properties": {"x": MARKED}}}, {"x": URL}),
        ({"properties": {"x": {"$ref": "#"}, "y": MARKED}}, {"x": {"x": {"y": URL}}}),
        (
            {
                "allOf": [{"properties": {"x": MARKED}}],
                "properties": {"y": {"$ref": "#/allOf/0/properties/x"}},
            },
            {"y": URL},
        ),
    ],
)
def test_marks_are_found_wherever_the_schema_puts_them(
    tmp_path: Path, schema: Any, value: Any
) -> None:
    assert list(rules(tmp_path, schema).urls.refused(value)) == []


@pytest.mark.parametrize(
    ("schema", "value", "places"),
    [
        ({"properties": {"x": MARKED}}, {"y": URL, "z": [{"x": URL}]}, [("y",), ("z", 0, "x")]),
        ({"properties": {"x": MARKED}, "additionalProperties": True}, {"y": URL}, [("y",)]),
        ({"properties": {"x": {"prefixItems": [MARKED]}}}, {"x": [URL, URL]}, [("x", 1)]),
        ({"$defs": {"m": MARKED | {"$anchor": "m"}}, "$ref": "#m"}, {"y": URL}, [("y",)]),
        ({"properties": {"x": {"$ref": "#"}}}, {"x": {"x": URL}}, [("x", "x")]),
        (True, {"x": URL}, [("x",)]),
    ],
)
def test_a_mark_counts_for_its_own_place_alone(
    tmp_path: Path, schema: Any, value: Any, places: list[tuple[str | int, ...]]
) -> None:
    if schema is True:
        schema = {"properties": {"x": True}}
    assert list(rules(tmp_path, schema).urls.refused(value)) == places


@pytest.mark.parametrize(
    "text",
    [
        "a lake at dawn",
        "see https://example.com for more",
        "ratio 16:9",
        "http: the protocol",
        "a // b",
        "data:image/png;base64,AAAA",
        "C:/pictures",
        "note: this //is// text",
        "",
        " ",
        "https",
    ],
)
def test_text_is_no_url(text: str) -> None:
    assert not looks_like_url(text)


@pytest.mark.parametrize(
    "text",
    [
        *("https://a.example", "HTTPS://A", "http:a.example", "https:/a", "https:\\\\a", "//a"),
        *("\\\\a.example\\share", "/\\a.example", "gopher://a", "x-y.z+1://a", "\t\n https://a"),
        *("h\tt\ntp\rs://a", "\x00\x1fhttps://a", "\ufeffhttps://a", "\u3000https://a"),
        " " * 100_000 + "https://a",
    ],
)
def test_what_any_reader_takes_for_a_url_is_one(text: str) -> None:
    assert looks_like_url(text)
