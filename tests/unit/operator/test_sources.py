"""Where settings come from, what a session says, how results are printed."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from deploy.local.given import SettingWrong
from deploy.local.home import SETTINGS_NAME, Home
from services.operator.sessions import new_session
from services.operator.showing import plain, show_fields, show_json, show_table
from services.operator.sources import Sources
from shared.domain.stages import Stage

FACTS = {
    "database_url": "postgresql://stack",
    "kafka_bootstrap_servers": None,
    "s3": {"bucket": "b", "endpoint_url": "http://s3"},
    "provider_urls": {"runpod": "http://fake/v2"},
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    made.open()
    made.write_json("stack.json", FACTS)
    with made.held():
        yield made


def test_the_environment_comes_before_the_stack(home: Home) -> None:
    environ = {"COATCHECK_DATABASE_URL": "postgresql://given"}
    assert Sources(home, environ).database_url == "postgresql://given"
    assert Sources(home, {}).database_url == "postgresql://stack"


def test_stack_json_alone_is_enough(home: Home) -> None:
    sources = Sources(home, {})
    assert sources.find("S3_BUCKET") == "b"
    assert sources.find("RUNPOD_BASE_URL") == "http://fake/v2"
    assert sources.find("KAFKA_BOOTSTRAP_SERVERS") is None


def test_the_rooms_own_settings_complete_it(home: Home) -> None:
    home.write_json(SETTINGS_NAME, {"SESSION_SECRET": "secret", "SESSION_ISSUER": "issuer"})
    assert Sources(home, {}).session == ("secret", "issuer", "coatcheck")


def test_a_missing_setting_names_both_ways(tmp_path: Path) -> None:
    told = r"no stack runs on .*`coatcheck up`, or set COATCHECK_DATABASE_URL"
    with pytest.raises(SettingWrong, match=told):
        _ = Sources(Home(tmp_path), {}).database_url


def test_what_a_killed_stack_left_is_not_believed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.write_json("stack.json", FACTS)
    home.write_json(SETTINGS_NAME, {"SESSION_SECRET": "secret"})
    left = Sources(home, {"COATCHECK_SESSION_SECRET": "given"})
    assert left.find("SESSION_SECRET") == "given"
    with pytest.raises(SettingWrong, match="no stack runs on"):
        _ = left.database_url


def test_a_stack_that_still_starts_is_told_apart(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.held(), pytest.raises(SettingWrong, match="is not ready yet"):
        _ = Sources(home, {}).database_url


def test_settings_are_lent_where_the_environment_has_none(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COATCHECK_S3_BUCKET", "given")
    monkeypatch.delenv("COATCHECK_DATABASE_URL", raising=False)
    Sources(home).lend_to_environment()
    assert os.environ["COATCHECK_S3_BUCKET"] == "given"
    assert os.environ["COATCHECK_DATABASE_URL"] == "postgresql://stack"
    for name in ("DATABASE_URL", "S3_ENDPOINT_URL", "RUNPOD_BASE_URL"):
        monkeypatch.delenv(f"COATCHECK_{name}", raising=False)


def test_the_registry_is_the_stacks_unless_another_is_named(home: Home) -> None:
    assert Sources(home, {}).endpoints_file.name == "endpoints.toml"
    environ = {"COATCHECK_ENDPOINTS_FILE": "/mine.toml"}
    assert Sources(home, environ).endpoints_file == Path("/mine.toml")


def test_a_session_says_who_for_whom_and_until_when() -> None:
    secret = "s" * 32
    session = new_session(
        "ann", secret=secret, issuer="me", audience="coatcheck", life=timedelta(hours=1)
    )
    claims = jwt.decode(session.cookie, OctKey.import_key(secret)).claims
    assert {name: claims[name] for name in ("sub", "iss", "aud")} == {
        "sub": "ann",
        "iss": "me",
        "aud": "coatcheck",
    }
    assert claims["exp"] - claims["iat"] == 3600
    assert datetime.fromtimestamp(claims["exp"], UTC) == session.expires_at


@dataclass
class Shown:
    """Something with a field."""

    at: datetime


def test_values_become_json() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert plain(Shown(at)) == {"at": "2026-01-02T03:04:05Z"}
    assert plain([Stage.accepted, UUID(int=1), Decimal("0.05"), date(2026, 1, 2)]) == [
        "accepted",
        "00000000-0000-0000-0000-000000000001",
        "0.05",
        "2026-01-02",
    ]
    assert plain({"a": b"\xff", "b": None, "c": (1, 2.5, True)}) == {
        "a": "\\xff",
        "b": None,
        "c": [1, 2.5, True],
    }
    assert plain(timedelta(seconds=1)) == "0:00:01"


def test_output_is_a_line_of_json_or_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [{"id": 1, "name": "a"}, {"id": 22, "name": None}]
    show_json(rows)
    assert json.loads(capsys.readouterr().out) == rows
    show_table(rows, ("id", "name"))
    assert capsys.readouterr().out == "id  name\n1   a\n22  -\n"
    show_fields({"id": 1, "scopes": ["a"]})
    assert capsys.readouterr().out == 'id      1\nscopes  ["a"]\n'
    show_table([], ("id",))
    assert capsys.readouterr().out == "id\n"
