"""The image: what it is built from, and that its list of packages is true.

No engine is needed: the list is compared with what the project's own dependencies ask for, and the
Dockerfile's filter runs here as it runs there.
"""

import re
import subprocess
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.contract.compose_file import ROOT

DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()
PACKAGES_FILE = ROOT / "deploy/image-packages.txt"
LOCK = ROOT / "requirements.lock"
LEAST_PYTHON = (3, 11, 12)


def listed() -> list[str]:
    """The list, in its order."""
    lines = PACKAGES_FILE.read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def needed() -> set[str]:
    """What the project's dependencies install, whatever it is that they need themselves."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    todo = [Requirement(text) for text in project["dependencies"]]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        for text in metadata.requires(requirement.name) or []:
            inner = Requirement(text)
            extras = {"", *requirement.extras}
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in extras):
                todo.append(inner)
    return {name for name, _ in seen}


def filtered() -> str:
    """What the Dockerfile's first filter makes of the lock."""
    program = re.search(r"RUN awk '([^']*)'", DOCKERFILE)
    assert program is not None
    answer = subprocess.run(
        ["awk", program[1], PACKAGES_FILE, LOCK], capture_output=True, text=True, check=True
    )
    return answer.stdout


def test_the_list_is_what_the_rooms_need() -> None:
    wanted = sorted(needed())
    assert listed() == wanted, "write this into the list:\n" + "\n".join(wanted)


def test_the_filter_takes_each_listed_package_with_its_hashes() -> None:
    blocks = re.split(r"^(?=\S)", filtered(), flags=re.MULTILINE)[1:]
    assert [block.split("==")[0] for block in blocks] == listed()
    assert all("--hash=sha256:" in block for block in blocks)


@pytest.mark.parametrize("word", ["--require-hashes", "--no-deps", "--only-binary=:all:"])
def test_every_install_is_checked_by_hash(word: str) -> None:
    installs = re.findall(r"pip --python \S+ install[^&]*", DOCKERFILE)
    assert len(installs) == DOCKERFILE.count(" install --no-cache-dir")
    assert installs
    assert all(word in install for install in installs)


def test_the_base_is_pinned_and_young_enough() -> None:
    base = re.search(r"^ARG PYTHON_IMAGE=python:([\d.]+)-slim-\w+@sha256:", DOCKERFILE, re.M)
    assert base is not None
    assert tuple(map(int, base[1].split("."))) >= LEAST_PYTHON
    sources = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", DOCKERFILE, re.MULTILINE)
    stages = {name for _, name in sources if name}
    assert {source for source, _ in sources} - stages == {"${PYTHON_IMAGE}"}


def test_the_product_runs_as_nobody_under_an_init() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)
    (product,) = [stage for stage in stages if stage.startswith("${PYTHON_IMAGE} AS rooms")]
    assert re.findall(r"^USER (\S+)", product, re.MULTILINE) == ["10001:10001"]
    # Process 1 is deaf to a signal's default action, which is what the dead man's timer uses.
    assert 'ENTRYPOINT ["tini", "--"]' in product
    assert not [
        line for line in re.findall(r"^COPY (.*)$", product, re.MULTILINE) if "tests" in line
    ]
    assert stages[-1].strip() == "rooms", "without a target the product is built"


def test_only_what_is_named_gets_into_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert "deploy/secrets" in rules[rules.index("!deploy") :]
    copied = {
        source
        for words in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in words.split()[:-1]
    }
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    assert {source for source in copied if not (ROOT / source).exists()} == set()
    assert all(
        any(source == one or source.startswith(f"{one}/") for one in allowed) for source in copied
    )
