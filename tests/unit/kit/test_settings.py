"""Settings: what is missing or wrong names its variable, and no secret is ever shown."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from shared.kit.settings import (
    CoatcheckSettings,
    DatabaseSettings,
    FetchSettings,
    KafkaSettings,
    RegistrySettings,
    RuntimeSettings,
    SettingsInvalid,
    StorageSettings,
    describe,
    load_settings,
    read_settings,
    variable_of,
)

SECRET = "postgresql://u:hunter2@db/x"


class EverySettings(
    DatabaseSettings, KafkaSettings, StorageSettings, RegistrySettings, FetchSettings
):
    """All parts in one room."""


class OptionalSecretSettings(CoatcheckSettings):
    """A secret that may be absent."""

    machine_token: SecretStr | None = None


class StructuredSettings(CoatcheckSettings):
    """A field that is read as JSON."""

    limits: dict[str, int] = {}  # noqa: RUF012


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("COATCHECK_"):
            monkeypatch.delenv(name)


def _set(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"COATCHECK_{name}", value)


def _fault(settings_type: type[CoatcheckSettings]) -> str:
    with pytest.raises(SettingsInvalid) as caught:
        read_settings(settings_type)
    return str(caught.value)


def test_every_missing_variable_is_named_at_once() -> None:
    sentence = _fault(EverySettings)
    for name in ("DATABASE_URL", "S3_BUCKET", "S3_ACCESS_KEY_ID", "ENDPOINTS_FILE"):
        assert f"COATCHECK_{name} is missing" in sentence
    assert "\n" not in sentence


def test_an_empty_value_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, DATABASE_URL="")
    assert _fault(DatabaseSettings) == "COATCHECK_DATABASE_URL is missing"


def test_load_settings_prints_one_line_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_settings(DatabaseSettings)
    assert caught.value.code == 2
    assert capsys.readouterr().err == "coatcheck: COATCHECK_DATABASE_URL is missing\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIME_SCALE", "0.5"),
        ("TIME_SCALE", "1001"),
        ("TIME_SCALE", "fast"),
        ("ENV", "staging"),
        ("LOG_LEVEL", "loud"),
        ("DRAIN_SECONDS", "-1"),
        ("FAKE_RUNPOD", "maybe"),
        ("FETCH_ALLOW_PRIVATE", "http://127.0.0.1:9"),
        ("FETCH_ALLOW_PRIVATE", "127.0.0.1"),
    ],
)
def test_a_wrong_value_names_its_variable_and_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    _set(monkeypatch, **{name: value})
    sentence = _fault(RuntimeSettings)
    assert f"COATCHECK_{name}" in sentence
    assert f"'{value}'" not in sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FETCH_ALLOW_PRIVATE", "127.0.0.1:9000"),
        ("FAILPOINTS", "sub.dns.done=kill"),
        ("TIME_SCALE", "60"),
        ("FAKE_RUNPOD", "on"),
    ],
)
def test_what_only_development_may_is_refused_in_production(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    _set(monkeypatch, **{name: value})
    assert _fault(RuntimeSettings) == f"COATCHECK_{name}: refused while COATCHECK_ENV is prod"
    _set(monkeypatch, ENV="dev")
    read_settings(RuntimeSettings)


def test_production_is_the_default_and_takes_harmless_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _set(monkeypatch, TIME_SCALE="1", FAKE_RUNPOD="off")
    settings = read_settings(RuntimeSettings)
    assert settings.env == "prod"
    assert settings.listen_host == "0.0.0.0"  # noqa: S104


def test_development_listens_on_loopback_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, ENV="dev")
    assert read_settings(RuntimeSettings).listen_host == "127.0.0.1"
    _set(monkeypatch, BIND_HOST="10.0.0.1")
    assert read_settings(RuntimeSettings).listen_host == "10.0.0.1"


def test_scale_and_private_hosts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(
        monkeypatch,
        ENV="dev",
        TIME_SCALE="60",
        FETCH_ALLOW_PRIVATE="127.0.0.1:9000, Fake.Local:80",
        LOG_LEVEL="INFO",
    )
    settings = read_settings(FetchSettings)
    assert settings.scale.seconds(1800) == 30
    assert settings.fetch_allow_private == {"127.0.0.1:9000", "fake.local:80"}
    assert settings.log_level == "info"


def test_unknown_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, DATABASE_URL=SECRET, NO_SUCH_THING="1")
    assert read_settings(DatabaseSettings).database_url.get_secret_value() == SECRET


def test_a_secret_comes_from_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    _set(monkeypatch, DATABASE_URL_FILE=str(path))
    assert read_settings(DatabaseSettings).database_url.get_secret_value() == SECRET


def test_an_optional_secret_comes_from_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    path.write_text("token")
    _set(monkeypatch, MACHINE_TOKEN_FILE=str(path))
    token = read_settings(OptionalSecretSettings).machine_token
    assert token is not None
    assert token.get_secret_value() == "token"


def test_only_secrets_come_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("dev")
    _set(monkeypatch, ENV_FILE=str(path))
    assert read_settings(RuntimeSettings).env == "prod"


def test_a_secret_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("b")
    _set(monkeypatch, DATABASE_URL="a", DATABASE_URL_FILE=str(path))
    sentence = _fault(DatabaseSettings)
    assert (
        sentence == "COATCHECK_DATABASE_URL and COATCHECK_DATABASE_URL_FILE are both set; keep one"
    )


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_a_secret_file_that_cannot_serve_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    _set(monkeypatch, DATABASE_URL_FILE=str(path))
    assert _fault(DatabaseSettings).startswith("COATCHECK_DATABASE_URL_FILE: ")


def test_a_value_that_is_not_its_json_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, LIMITS="{")
    assert _fault(StructuredSettings) == "COATCHECK_LIMITS: cannot be read as its type"


def test_sasl_needs_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, KAFKA_SECURITY_PROTOCOL="SASL_SSL", KAFKA_SASL_USERNAME="u")
    assert "COATCHECK_KAFKA_SASL_PASSWORD" in _fault(KafkaSettings)
    _set(monkeypatch, KAFKA_SASL_PASSWORD="p")
    read_settings(KafkaSettings)


def test_describe_shows_values_but_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(
        monkeypatch,
        DATABASE_URL=SECRET,
        S3_BUCKET="b",
        S3_ACCESS_KEY_ID="id",
        S3_SECRET_ACCESS_KEY="hunter2",
        S3_ENDPOINT_URL="http://user:hunter2@s3.local/",
        ENDPOINTS_FILE="/etc/e.toml",
        ENV="dev",
        FETCH_ALLOW_PRIVATE="b:2,a:1",
    )
    shown = describe(read_settings(EverySettings))
    assert "hunter2" not in repr(shown)
    assert shown["database_url"] == "set"
    assert shown["kafka_sasl_password"] is None
    assert shown["s3_endpoint_url"] == "http://…@s3.local/"
    assert shown["endpoints_file"] == "/etc/e.toml"
    assert shown["fetch_allow_private"] == ["a:1", "b:2"]
    assert shown["time_scale"] == 1.0


def test_describe_shows_structures_without_secrets() -> None:
    class Nested(CoatcheckSettings):
        by_name: dict[str, SecretStr] = {"a": SecretStr("hunter2")}  # noqa: RUF012
        listed: tuple[str, ...] = ("x", "https://u:hunter2@h/")
        other: object = object()

    shown = describe(Nested())
    assert shown == {"by_name": {"a": "set"}, "listed": ["x", "https://…@h/"], "other": "object"}


def test_settings_are_frozen() -> None:
    settings = read_settings(RuntimeSettings)
    with pytest.raises(ValueError, match="frozen"):
        settings.env = "dev"  # type: ignore[misc]


def test_variable_of() -> None:
    assert variable_of("database_url") == "COATCHECK_DATABASE_URL"
