"""Sizes, names and first lines of source files. Each test lists every offender at once."""

import ast

from tests.rules.tree import PRODUCT, ROOT, files, parsed, place, python_files

MOST_LINES = 400
MOST_FUNCTION_LINES = 60
MOST_DOCSTRING_LINES = 12
VAGUE_NAMES = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "manager",
    "managers",
    "base",
    "misc",
}
ALLOWED_VAGUE = {ROOT / "shared/providers/base.py"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_the_rules_see_the_house() -> None:
    assert {folder for folder in PRODUCT if not python_files(folder)} == set()
    assert len(python_files()) > 100


def test_a_file_stays_readable() -> None:
    sizes = {place(file): len(file.read_text().splitlines()) for file in python_files()}
    assert {name: lines for name, lines in sizes.items() if lines > MOST_LINES} == {}


def test_a_function_stays_on_one_screen() -> None:
    sizes = {
        f"{place(file, node.lineno)} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for file in python_files(*PRODUCT)
        for node in ast.walk(parsed(file))
        if isinstance(node, Function)
    }
    assert {name: lines for name, lines in sizes.items() if lines > MOST_FUNCTION_LINES} == {}


def test_no_name_is_vague() -> None:
    vague = {
        place(file)
        for file in files()
        if VAGUE_NAMES & {part.split(".")[0].lower() for part in file.relative_to(ROOT).parts}
        and file not in ALLOWED_VAGUE
    }
    assert vague == set()


def test_a_module_says_what_it_is() -> None:
    silent = []
    for file in python_files():
        if file.name == "__init__.py" and not file.read_text():
            continue  # a package of tests is its folder's name and nothing more
        docstring = ast.get_docstring(parsed(file)) or ""
        # What is longer belongs into docs/.
        if not 1 <= len(docstring.splitlines()) <= MOST_DOCSTRING_LINES:
            silent.append(place(file))
    assert silent == []


def test_what_others_use_says_what_it_promises() -> None:
    silent = [
        f"{place(file, node.lineno)} {node.name}"
        for file in python_files(*PRODUCT)
        for node in parsed(file).body
        if isinstance(node, Function | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert silent == []
