"""An endpoint's input schema, compiled once, and its findings in words that are safe to show.

Promises JSON Schema 2020-12, findings in the order of the schema, at most 20 of them, and
sentences made of the schema's own values: an input is never echoed. References outside the
schema file are refused at start, so that no request can make the gateway fetch one.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import quote

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry as SchemaRegistry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, Schema

from services.gateway.problems import FieldError
from services.gateway.urls import MARK, UrlRules
from shared.domain.errors import Refused
from shared.domain.provider import Json
from shared.domain.registry import EndpointSpec, Registry
from shared.providers import ADAPTERS, ProviderAdapter

FINDINGS_MAX = 20
ENVELOPE_BYTES = 4_096
"""What an adapter puts around the input in its create call, at most."""

_TEXT_MAX = 120
_POINTER_MAX = 300


@dataclass(frozen=True)
class InputRules:
    """What an endpoint asks of its input."""

    spec: EndpointSpec
    input_bytes_max: int
    validator: Draft202012Validator
    urls: UrlRules

    def findings(self, job_input: Json) -> list[FieldError]:
        """What is wrong with the input; pointers are relative to the request's body."""
        found = (
            item for error in self.validator.iter_errors(job_input) for item in _explained(error)
        )
        return list(islice(found, FINDINGS_MAX))


def compile_rules(registry: Registry) -> Mapping[str, InputRules]:
    """The rules of every endpoint. Raises Refused, naming the endpoint, for a bad reference."""
    return {name: _compile(spec) for name, spec in registry.endpoints.items()}


def _compile(spec: EndpointSpec) -> InputRules:
    schema = spec.input_schema
    resource = DRAFT202012.create_resource(schema)
    known: SchemaRegistry[Schema] = SchemaRegistry().with_resource("", resource)
    resolver = known.resolver_with_root(resource)
    for reference in _values_of(schema, "$ref", "$dynamicRef"):
        if not isinstance(reference, str):
            continue  # a member of an example, say; the meta-schema has judged real references
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise Refused(
                f"endpoints.{spec.name}.input_schema: the reference {reference!r} leads nowhere"
                " inside the schema file"
            ) from None
    for hosts in _values_of(schema, MARK):
        if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
            raise Refused(f"endpoints.{spec.name}.input_schema: {MARK} must be a list of names")
    validator = Draft202012Validator(schema, registry=known)
    bytes_max = _adapter_of(spec).max_request_bytes - ENVELOPE_BYTES
    return InputRules(spec, bytes_max, validator, UrlRules(schema))


def _adapter_of(spec: EndpointSpec) -> ProviderAdapter:
    if spec.provider not in ADAPTERS:
        known = ", ".join(ADAPTERS)
        raise Refused(f"endpoints.{spec.name}.provider: {spec.provider!r} is none of {known}")
    return ADAPTERS[spec.provider]


def _values_of(schema: Any, *keywords: str) -> Iterator[Any]:
    left = [schema]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left.extend(item.values())
            yield from (item[keyword] for keyword in keywords if keyword in item)
        elif isinstance(item, list):
            left.extend(item)


def pointer_to(*steps: str | int) -> str:
    """A JSON Pointer into the body in URI fragment form, cut where it would be very long."""
    escaped = (str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    pointer = "#" + "".join("/" + quote(step, safe="~!$&'()*+,;=:@") for step in escaped)
    return pointer if len(pointer) <= _POINTER_MAX else pointer[:_POINTER_MAX] + "…"


def _explained(error: ValidationError) -> Iterator[FieldError]:
    place = ("input", *error.absolute_path)
    value, instance = error.validator_value, error.instance
    match error.validator:
        case "required" if isinstance(value, list) and isinstance(instance, dict):
            # One error names one missing member, but only inside a sentence with the value.
            missing = [name for name in value if name not in instance]
            named = next((n for n in missing if error.message.startswith(repr(n))), None)
            yield FieldError(pointer_to(*place, named or missing[0]), "is required")
        case "additionalProperties" if value is False:
            for name in _extra_names(error):
                yield FieldError(pointer_to(*place, name), "is not allowed here")
        case _:
            yield FieldError(pointer_to(*place), _sentence(str(error.validator or "false"), value))


def _extra_names(error: ValidationError) -> list[str]:
    instance = error.instance if isinstance(error.instance, dict) else {}
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    names = (
        name
        for name in instance
        if name not in known and not any(re.search(pattern, name) for pattern in patterns)
    )
    return list(islice(names, FINDINGS_MAX))


def _sentence(keyword: str, value: Any) -> str:
    shown = _short(value)
    sentences = {
        "type": f"must be of type {shown}",
        "enum": f"must be one of {shown}",
        "const": f"must be {shown}",
        "minLength": f"must have at least {shown} characters",
        "maxLength": f"must have at most {shown} characters",
        "pattern": f"must match the pattern {shown}",
        "format": f"must have the format {shown}",
        "minimum": f"must be at least {shown}",
        "maximum": f"must be at most {shown}",
        "exclusiveMinimum": f"must be greater than {shown}",
        "exclusiveMaximum": f"must be less than {shown}",
        "multipleOf": f"must be a multiple of {shown}",
        "minItems": f"must have at least {shown} items",
        "maxItems": f"must have at most {shown} items",
        "unevaluatedProperties": "holds a member that is not allowed here",
        "uniqueItems": "must not hold an item twice",
        "contains": "must hold an item that the schema asks for",
        "minProperties": f"must have at least {shown} members",
        "maxProperties": f"must have at most {shown} members",
        "dependentRequired": "lacks a member that another one asks for",
        "anyOf": "must fit one of the schema's alternatives",
        "oneOf": "must fit exactly one of the schema's alternatives",
        "not": "must not be what the schema excludes",
        "false": "is not allowed here",
    }
    return sentences.get(keyword, f"does not satisfy {_short(keyword)}")


def _short(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "…"
