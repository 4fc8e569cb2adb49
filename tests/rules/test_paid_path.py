"""Nothing may repeat the paid call: no library that retries, and no loop around it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.tree import PRODUCT, ROOT, parsed, place, python_files

RETRYING = {"stamina", "tenacity", "backoff", "retrying", "retry", "retrying_async", "aioretry"}
PAID = {"paid_call", "create"}
"""The transport's call, and the method of an adapter's client that makes it."""

PAID_FILES = [
    file
    for folder in ("services", "shared/kit/http", "shared/providers")
    for file in python_files(folder)
]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOPS = (ast.For, ast.AsyncFor, ast.While, *COMPREHENSIONS)


def imported(file: Path) -> set[str]:
    """The packages that a file imports."""
    names: set[str] = set()
    for node in ast.walk(parsed(file)):
        match node:
            case ast.Import():
                names |= {alias.name.split(".")[0] for alias in node.names}
            case ast.ImportFrom(module=str() as module, level=0):
                names.add(module.split(".")[0])
    return names


def paid_calls(tree: ast.AST, *, in_loop: bool = False) -> Iterator[tuple[ast.Call, bool]]:
    """Every call of that name, and whether a loop of its own function goes round it."""
    for node in ast.iter_child_nodes(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        inside = False if is_function else in_loop or isinstance(node, LOOPS)
        if isinstance(node, ast.Call) and name_of(node.func) in PAID:
            yield node, inside
        yield from paid_calls(node, in_loop=inside)


def name_of(function: ast.expr) -> str | None:
    """The last part of what is called."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


def test_no_library_that_retries_is_imported() -> None:
    found = {place(file): imported(file) & RETRYING for file in python_files(*PRODUCT)}
    assert {name: packages for name, packages in found.items() if packages} == {}


def test_no_library_that_retries_is_installed() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)) & RETRYING == set()


def test_the_paid_call_is_made_in_two_places() -> None:
    places = {
        f"{file.relative_to(ROOT).as_posix()} {name_of(call.func)}"
        for file in PAID_FILES
        for call, _ in paid_calls(parsed(file))
    }
    adapters = {place for place in places if place.startswith("shared/providers/")}
    assert places - adapters == {
        "services/submitter/calling.py create",
        "shared/kit/http/calls.py paid_call",
    }


def test_no_loop_goes_round_the_paid_call() -> None:
    looped = [
        place(file, call.lineno)
        for file in PAID_FILES
        for call, in_loop in paid_calls(parsed(file))
        if in_loop
    ]
    assert looped == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async def f():\n  await client.create(x)", False),
        ("async def f():\n  while True:\n    await client.create(x)", True),
        ("async def f():\n  for _ in range(3):\n    try:\n      await paid_call(x)\n"
         "    except OSError: pass", True),
        ("async def f():\n  return [await paid_call(x) for x in y]", True),
        ("while True:\n  async def f():\n    await paid_call(x)", False),
    ],
)  # fmt: skip
def test_the_search_tells_a_loop(source: str, expected: bool) -> None:
    ((_, in_loop),) = paid_calls(ast.parse(source))
    assert in_loop is expected
