"""Whether Compose takes the file: its specification's schema, and its own loader.

Neither is copied into the project: both come, pinned, as the Go module that Compose itself is
built from. Without Go the tests are skipped by name.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.contract.compose_file import COMPOSE_FILE

MODULE = "github.com/compose-spec/compose-go/v2"
MODULE_VERSION = "v2.16.2"
MODULE_SUM = "h1:pTp1DqQwJzFd85GzlWsSszKA1ABrV/ySqsClujIcWA8="
GO_SECONDS = 500

GO_MOD = f"module reader\n\ngo 1.24\n\nrequire {MODULE} {MODULE_VERSION}\n"
READER = f"""
package main

import (
	"context"
	"fmt"
	"os"

	"{MODULE}/cli"
)

func main() {{
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithName("coatcheck"),
		cli.WithProfiles([]string{{"*"}}))
	if err == nil {{
		_, err = options.LoadProject(context.Background())
	}}
	if err != nil {{
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}}
}}
"""

Loads = Callable[[Path], "subprocess.CompletedProcess[str]"]


def go(*words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs Go; skips the test where there is none."""
    program = shutil.which("go")
    if program is None:
        pytest.skip("needs the tool: go")
    return subprocess.run(
        [program, *words],
        cwd=folder,
        env={**os.environ, "GOFLAGS": "-mod=mod"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GO_SECONDS,
        check=False,
    )


def skip_without_modules(answer: "subprocess.CompletedProcess[str]") -> None:
    """A machine that cannot reach the modules is no reason to fail; one that has them must run."""
    if answer.returncode != 0:
        last = (answer.stderr or answer.stdout).strip().splitlines()[-1:]
        pytest.skip(f"needs the tool: go, with its modules within reach ({' '.join(last)})")


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The schema of the Compose specification."""
    folder = tmp_path_factory.mktemp("schema")
    answer = go("mod", "download", "-json", f"{MODULE}@{MODULE_VERSION}", folder=folder)
    skip_without_modules(answer)
    facts = json.loads(answer.stdout)
    assert facts["Sum"] == MODULE_SUM
    text = (Path(facts["Dir"]) / "schema/compose-spec.json").read_text()
    return dict(json.loads(text))


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Loads:
    """Has the loader of Compose read a file; its exit code and complaint."""
    folder = tmp_path_factory.mktemp("loader")
    (folder / "go.mod").write_text(GO_MOD)
    (folder / "main.go").write_text(READER)
    skip_without_modules(go("build", "-o", "reader", ".", folder=folder))

    def load(file: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [folder / "reader", file], capture_output=True, text=True, check=False, timeout=60
        )

    return load


def test_the_file_is_valid_by_the_schema(schema: dict[str, Any]) -> None:
    validator = Draft202012Validator(schema)
    document = yaml.safe_load(COMPOSE_FILE.read_text())
    assert [error.message for error in validator.iter_errors(document)] == []


def test_the_schema_refuses_a_misspelt_key(schema: dict[str, Any]) -> None:
    document = yaml.safe_load(COMPOSE_FILE.read_text())
    document["services"]["relay"]["helthcheck"] = document["services"]["relay"].pop("healthcheck")
    assert not Draft202012Validator(schema).is_valid(document)


def test_compose_loads_the_file(loads: Loads) -> None:
    answer = loads(COMPOSE_FILE)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_compose_refuses_a_dependency_that_is_not_there(loads: Loads, tmp_path: Path) -> None:
    broken = tmp_path / "docker-compose.yml"
    text = COMPOSE_FILE.read_text()
    broken.write_text(text.replace("fake-runpod: {condition", "fake-rumpod: {condition"))
    answer = loads(broken)
    assert answer.returncode != 0
    assert "fake-rumpod" in answer.stderr
