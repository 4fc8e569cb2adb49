"""What no file of the project may speak of, and that its pages lead somewhere.

The words looked for are put together here, so that this file does not hold them either.
"""

import re
from pathlib import Path

import pytest

from tests.rules.tree import ROOT, files, place

HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("deb", "debian", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
    )
]
"""Where packages come from is a setting of whoever builds, never of the project."""

FOLDERS = "|".join(("root", "farm", "work", "home", "Users"))
DESK = re.compile(rf"(?<![\w.~-])/(?:{FOLDERS})/")
"""An absolute path of somebody's machine."""

TRACKER = re.compile(r"\b(?:issue|ticket|task|story) (?:no\.? ?|number |#)?\d+\b|\bsee #\d+", re.I)
"""A reader of the code has the code, not our notes."""

CORPORA = ROOT / "tests/corpora"
"""What others said, word for word: not our wording."""

LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Each place where the pattern stands in a text file."""
    found = []
    for file in files():
        if file.is_relative_to(CORPORA):
            continue
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [place(file, n) for n, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def test_no_package_registry_is_named() -> None:
    hosts = "|".join(map(re.escape, HOSTS))
    assert lines_with(re.compile(rf"(?<![\w-])(?:{hosts})(?![\w-])", re.I)) == []


def test_no_path_of_somebodys_machine_is_named() -> None:
    assert lines_with(DESK) == []


def test_no_note_of_a_tracker_is_named() -> None:
    assert lines_with(TRACKER) == []


@pytest.mark.parametrize(
    "page", [file for file in files() if file.suffix == ".md"], ids=lambda page: place(page)
)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    targets = LINK.findall(page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    decisions = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    numbers = [int(page.name[:4]) for page in decisions]
    assert numbers == list(range(1, len(numbers) + 1))
    linked = set(LINK.findall((ROOT / "docs/README.md").read_text()))
    assert {f"decisions/{page.name}" for page in decisions} <= linked


@pytest.mark.parametrize("part", ["## What", "## Why", "## Rejected", "## Revisit when"])
def test_every_decision_has_its_parts(part: str) -> None:
    pages = (ROOT / "docs/decisions").glob("[0-9]*.md")
    assert [page.name for page in pages if f"\n{part}\n" not in page.read_text()] == []
