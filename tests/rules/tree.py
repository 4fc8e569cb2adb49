"""The files of the project as the rules see them.

Promises that what is built, cached or minted beside them is left out, with or without git.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("services", "shared", "deploy")
KEPT_DOTS = {".ci", ".dockerignore", ".gitignore", ".github", ".python-version"}
MINTED = ROOT / "deploy" / "secrets"


@cache
def files() -> tuple[Path, ...]:
    """Every file of the project, sorted."""
    return tuple(sorted(_below(ROOT)))


@cache
def python_files(*folders: str) -> tuple[Path, ...]:
    """The Python files below these folders of the root; of all where none is named."""
    wanted = [ROOT / folder for folder in folders] or [ROOT]
    return tuple(
        file
        for file in files()
        if file.suffix == ".py" and any(file.is_relative_to(folder) for folder in wanted)
    )


@cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def place(file: Path, line: int | None = None) -> str:
    """How a rule names a file, and a line in it."""
    return f"{file.relative_to(ROOT)}" + (f":{line}" if line else "")


def _below(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        name = entry.name
        if name.startswith(".") and name not in KEPT_DOTS:
            continue
        if name == "__pycache__" or name.endswith(".egg-info") or entry == MINTED:
            continue
        if entry.is_dir():
            yield from _below(entry)
        else:
            yield entry
