"""How results are printed: one JSON document with `--json`, plain columns without.

Owns the output of every command that answers something. Promises that JSON goes to standard
output alone and is complete. Must never show a secret that the caller did not just make.
"""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import structlog

from shared.kit.logs import configure_logs


def logs_to_stderr() -> None:
    """Warnings of the product's parts go to standard error: standard output holds results."""
    configure_logs("warning")
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=sys.stderr))


def plain(value: object) -> Any:
    """The value as JSON values: dataclasses become objects, times RFC 3339 in UTC."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return value.value
        case str():
            return value
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | UUID() | Decimal():
            return str(value)
        case bytes():
            return value.decode("utf-8", errors="backslashreplace")
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return {name: plain(getattr(value, name)) for name in names}
        case _:
            return str(value)


def show_json(value: object) -> None:
    """One line of JSON."""
    print(json.dumps(plain(value)), flush=True)


def show_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Aligned columns under their names; `-` where there is nothing."""
    texts = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(columns, *texts, strict=True)]
    for cells in [list(columns), *texts]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print(line.rstrip(), flush=True)


def show_fields(row: Mapping[str, Any]) -> None:
    """One field a line."""
    width = max(map(len, row), default=0)
    for name, value in row.items():
        print(f"{name.ljust(width)}  {_cell(value)}", flush=True)


def _cell(value: object) -> str:
    shown = plain(value)
    if shown is None or shown == "":
        return "-"
    return shown if isinstance(shown, str) else json.dumps(shown)
