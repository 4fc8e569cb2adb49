"""The secrets of the Compose stack: made once, closed to others, never shown."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deploy.compose_secrets import EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, main
from shared.domain.webhook_token import WebhookKeys
from tests.contract.compose_file import ROOT

PROVIDER_KEY = {"COATCHECK_RUNPOD_API_KEY": "rpa_given"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where they go."""
    return tmp_path / "secrets"


def contents(folder: Path) -> dict[str, str]:
    """Every secret by name."""
    return {file.name: file.read_text() for file in folder.iterdir() if file.name[0] != "."}


def test_a_second_run_changes_nothing(folder: Path) -> None:
    assert main([str(folder)], {}) == EXIT_DONE
    first = contents(folder)
    assert main([str(folder)], {}) == EXIT_DONE
    assert contents(folder) == first
    assert len(set(first.values())) == len(first)


def test_what_is_missing_or_empty_is_made_and_the_rest_is_kept(folder: Path) -> None:
    main([str(folder)], {})
    first = contents(folder)
    (folder / "session_secret").unlink()
    empty = folder / "webhook_keys"
    empty.unlink()
    empty.write_text("\n")
    main([str(folder)], {})
    second = contents(folder)
    changed = {name for name, value in second.items() if first[name] != value}
    assert changed == {"session_secret", "webhook_keys"}
    assert all(value.strip() for value in second.values())


def test_the_secrets_fit_their_readers(folder: Path) -> None:
    main([str(folder)], {})
    made = contents(folder)
    url = urlsplit(made["database_url"].strip())
    assert url.password == made["postgres_password"].strip()
    assert (url.username, url.hostname, url.path) == ("coatcheck", "postgres", "/coatcheck")
    assert len(WebhookKeys.parse(made["webhook_keys"].strip()).by_kid) == 1


def test_other_users_of_the_machine_cannot_get_in(folder: Path) -> None:
    main([str(folder)], {})
    assert folder.stat().st_mode & 0o777 == 0o700
    # Their containers' users can: each file is mounted by itself, and read-only.
    assert {(folder / name).stat().st_mode & 0o777 for name in contents(folder)} == {0o444}


def test_git_does_not_see_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deploy" / "secrets"
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    main([str(folder)], {})
    status = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert status.stdout == ""


def test_a_key_of_the_provider_is_taken_from_the_environment(folder: Path) -> None:
    assert main([str(folder)], PROVIDER_KEY) == EXIT_DONE
    assert contents(folder)["runpod_api_key"] == "rpa_given\n"


def test_another_key_than_the_one_in_use_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(folder)], {})
    before = contents(folder)
    assert main([str(folder)], PROVIDER_KEY) == EXIT_REFUSED
    assert contents(folder) == before
    assert "rpa_given" not in "".join(capsys.readouterr())


def test_no_secret_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder)], PROVIDER_KEY)
    said = "".join(capsys.readouterr())
    assert not [value for value in contents(folder).values() if value.strip() in said]


def test_wrong_usage_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], {}) == EXIT_USAGE
    assert "usage" in capsys.readouterr().err


def test_it_runs_with_nothing_installed(folder: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "deploy/compose_secrets.py", folder],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "database_url" in answer.stdout
