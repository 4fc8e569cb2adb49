"""Every SQL constant is prepared against the migrated schema, and `UPDATE jobs` has one home."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import shared.store
from shared.store.pool import Database

ROOT = Path(__file__).parents[2]


def sql_constants() -> dict[str, str]:
    """All module constants of the store whose names end in `_SQL`, by dotted name."""
    found: dict[str, str] = {}
    for module in pkgutil.walk_packages(shared.store.__path__, "shared.store."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.endswith("_SQL") and isinstance(value, str):
                found[f"{module.name}.{name}"] = value
    return found


CONSTANTS = sql_constants()


def test_the_search_finds_the_statements() -> None:
    assert "shared.store.statements.CLAIM_SQL" in CONSTANTS
    assert len(CONSTANTS) > 50


async def test_every_statement_is_prepared(database: Database) -> None:
    refused = {}
    for name, text in CONSTANTS.items():
        if name.endswith(("_TRACK_SQL", ".rules_sql")):
            continue
        async with database.connection() as connection:
            try:
                await connection.prepare(text)
            except Exception as error:  # noqa: BLE001 - the sum of all refusals is the finding
                refused[name] = str(error)
    assert refused == {}


def test_jobs_are_written_in_one_file() -> None:
    writes = re.compile(r"\b(UPDATE\s+(ONLY\s+)?|INSERT\s+INTO\s+|DELETE\s+FROM\s+)jobs\b", re.I)
    files = [
        path.relative_to(ROOT).as_posix()
        for folder in ("services", "shared", "deploy")
        for path in (ROOT / folder).rglob("*.py")
        if writes.search(path.read_text(encoding="utf-8"))
    ]
    assert files == ["shared/store/statements.py"]


@pytest.mark.parametrize("name", sorted(n for n in CONSTANTS if ".statements." in n))
def test_updates_of_jobs_name_the_stage_they_expect(name: str) -> None:
    text = CONSTANTS[name]
    for update in re.split(r"\bUPDATE jobs\b", text)[1:]:
        where = update.split("WHERE", 1)[1]
        assert re.search(r"\b(jobs\.)?stage (=|IN)", where), f"{name} lacks a stage guard"
