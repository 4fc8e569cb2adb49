"""Reads the endpoint registry: TOML, with schema files beside it.

Promises a checked `Registry` or a `Refused` whose text names the file, the endpoint and the
field. Must never reach the network: a schema's references are not followed outside the file.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import ValidationError

from shared.domain.errors import Refused
from shared.domain.registry import EndpointSpec, Registry
from shared.kit.jsonpaths import compile_path


def load_registry(path: Path) -> Registry:
    """The registry in the TOML file at `path`. Raises Refused, naming what is wrong."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: not valid TOML: {error}") from error
    tables = document.get("endpoints")
    if not isinstance(tables, dict) or not tables:
        raise Refused(f"{path}: at least one [endpoints.NAME] table is required")
    endpoints = {name: _load_endpoint(path, name, table) for name, table in tables.items()}
    return Registry(endpoints=endpoints)


def _load_endpoint(path: Path, name: str, table: Any) -> EndpointSpec:
    if not isinstance(table, dict):
        raise Refused(f"{path}: endpoints.{name} must be a table")
    schema_name = table.get("input_schema")
    if not isinstance(schema_name, str):
        raise Refused(f"{path}: endpoints.{name}.input_schema must name a JSON Schema file")
    schema = _load_schema(path.parent / schema_name)
    try:
        endpoint = EndpointSpec.model_validate({**table, "name": name, "input_schema": schema})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Refused(f"{path}: endpoints.{name}.{place}: {first['msg']}") from error
    paths = [artifact.path for artifact in endpoint.artifacts]
    if endpoint.cost is not None and endpoint.cost.path is not None:
        paths.append(endpoint.cost.path)
    for text in paths:
        try:
            compile_path(text)
        except Refused as error:
            raise Refused(f"{path}: endpoints.{name}: path {text!r}: {error}") from error
    return endpoint


def _load_schema(path: Path) -> dict[str, Any]:
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
        Draft202012Validator.check_schema(schema)
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Refused(f"{path}: not valid JSON: {error}") from error
    except SchemaError as error:
        raise Refused(f"{path}: not a JSON Schema 2020-12: {error.message}") from error
    if not isinstance(schema, dict):
        raise Refused(f"{path}: the schema must be an object")
    return schema
