"""What is started, what is used as given, and who is told which secret."""

from pathlib import Path

import pytest

from deploy.local.blueprint import ROOMS, RUNPOD_URL, Blueprint
from deploy.local.given import Given, SettingWrong
from deploy.local.home import Home
from shared.domain.webhook_token import WebhookKeys
from shared.kit.registry import load_registry

STORAGE = {
    "COATCHECK_S3_ENDPOINT_URL": "http://store.test:9000",
    "COATCHECK_S3_BUCKET": "theirs",
    "COATCHECK_S3_ACCESS_KEY_ID": "id",
    "COATCHECK_S3_SECRET_ACCESS_KEY": "secret",
}
PROVIDER_KEYS = ("COATCHECK_RUNPOD_API_KEY", "COATCHECK_VIDEOROUTER_API_KEY")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.open()
    return made


def environments(blueprint: Blueprint, bootstrap: str | None = None) -> dict[str, dict[str, str]]:
    """Each room's environment by its name."""
    return {room.name: dict(room._env) for room in blueprint.rooms(bootstrap)}


def test_everything_is_started_where_nothing_is_given(home: Home) -> None:
    blueprint = Blueprint(Given({"PATH": "/bin"}), home)
    parts = (blueprint.postgres, blueprint.kafka, blueprint.s3, blueprint.fake_runpod)
    assert all(part is not None for part in parts)
    assert [room.name for room in blueprint.rooms(None)] == list(ROOMS)


def test_what_the_environment_names_is_used_and_not_started(home: Home) -> None:
    given = {
        "COATCHECK_DATABASE_URL": "postgresql://they@db.test/coatcheck",
        "COATCHECK_KAFKA_BOOTSTRAP_SERVERS": "kafka.test:9092",
        "COATCHECK_RUNPOD_API_KEY": "real",
        "COATCHECK_WEBHOOK_BASE_URL": "off",
        **STORAGE,
    }
    blueprint = Blueprint(Given(given), home)
    assert (blueprint.postgres, blueprint.kafka, blueprint.s3) == (None, None, None)
    assert blueprint.fake_runpod is None
    facts = blueprint.facts(bootstrap="kafka.test:9092", cookie=None)
    assert facts["database_url"] == "postgresql://they@db.test/coatcheck"
    assert facts["s3"]["bucket"] == "theirs"
    assert facts["provider_urls"] == {"runpod": RUNPOD_URL}
    submitter = environments(blueprint)["submitter"]
    assert submitter["COATCHECK_RUNPOD_API_KEY"] == "real"
    assert submitter["COATCHECK_WEBHOOK_BASE_URL"] == "off"
    assert "COATCHECK_FETCH_ALLOW_PRIVATE" not in submitter


def test_a_given_store_needs_all_of_its_settings(home: Home) -> None:
    given = {name: value for name, value in STORAGE.items() if "SECRET" not in name}
    with pytest.raises(SettingWrong, match="COATCHECK_S3_SECRET_ACCESS_KEY is missing"):
        Blueprint(Given(given), home).rooms(None)


def test_a_store_without_an_endpoint_is_the_usual_one(home: Home) -> None:
    given = {name: value for name, value in STORAGE.items() if "ENDPOINT" not in name}
    facts = Blueprint(Given(given), home).facts(bootstrap=None, cookie=None)
    assert facts["s3"]["endpoint_url"] is None


def test_the_fake_provider_follows_its_flag(home: Home) -> None:
    assert Blueprint(Given({"COATCHECK_FAKE_RUNPOD": "false"}), home).fake_runpod is None
    real = {"COATCHECK_RUNPOD_BASE_URL": "http://127.0.0.1:1/v2"}
    assert Blueprint(Given(real), home).fake_runpod is None
    assert Blueprint(Given(real | {"COATCHECK_FAKE_RUNPOD": "1"}), home).fake_runpod is not None


def test_settings_that_are_read_late_are_checked_first(home: Home) -> None:
    with pytest.raises(SettingWrong, match="COATCHECK_TIME_SCALE: must be a number"):
        Blueprint(Given({"COATCHECK_TIME_SCALE": "-1"}), home)
    missing = {"COATCHECK_ENDPOINTS_FILE": str(home.path / "missing.toml")}
    with pytest.raises(SettingWrong, match=r"COATCHECK_ENDPOINTS_FILE: .* cannot be read"):
        Blueprint(Given(missing), home)
    assert not (home.path / "secrets.json").exists(), "nothing was begun"


def test_a_provider_is_real_with_a_key_and_without_the_fake(home: Home) -> None:
    key = {"COATCHECK_RUNPOD_API_KEY": "real"}
    assert Blueprint(Given(key), home).is_provider_real
    assert not Blueprint(Given(key | {"COATCHECK_FAKE_RUNPOD": "1"}), home).is_provider_real
    assert not Blueprint(Given({}), home).is_provider_real


def test_rooms_see_only_the_secrets_they_need(home: Home) -> None:
    given = {
        "COATCHECK_VIDEOROUTER_API_KEY": "router",
        "COATCHECK_SESSION_SECRET": "s" * 32,
        "COATCHECK_ENV": "prod",
    }
    told = environments(Blueprint(Given(given), home))
    for name, env in told.items():
        may_pay = name in ("submitter", "reconciler", "archiver")
        assert [key in env for key in PROVIDER_KEYS] == [may_pay, may_pay]
        assert ("COATCHECK_SESSION_SECRET" in env) == (name == "gateway")
        assert ("COATCHECK_MACHINE_TOKEN" in env) == (name == "reconciler")
        assert ("COATCHECK_WEBHOOK_KEYS" in env) == (name in ("submitter", "webhook"))
        assert ("COATCHECK_S3_SECRET_ACCESS_KEY" in env) == (name in ("gateway", "archiver"))
        assert env["COATCHECK_ENV"] == "dev"
        assert "COATCHECK_KAFKA_BOOTSTRAP_SERVERS" not in env


def test_secrets_in_files_are_read_and_hidden_alike(home: Home, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://they@db.test/coatcheck\n")
    (tmp_path / "key").write_text("real\n")
    given = {
        "COATCHECK_DATABASE_URL_FILE": str(tmp_path / "url"),
        "COATCHECK_RUNPOD_API_KEY_FILE": str(tmp_path / "key"),
    }
    blueprint = Blueprint(Given(given), home)
    assert blueprint.postgres is None
    assert blueprint.fake_runpod is None
    told = environments(blueprint)
    assert told["relay"]["COATCHECK_DATABASE_URL"] == "postgresql://they@db.test/coatcheck"
    assert not any("FILE" in key and "ENDPOINTS" not in key for key in told["relay"])
    assert told["submitter"]["COATCHECK_RUNPOD_API_KEY"] == "real"


def test_no_secret_stands_on_a_command_line(home: Home) -> None:
    blueprint = Blueprint(Given({}), home)
    assert blueprint.fake_runpod is not None
    words = [*blueprint.fake_runpod._words]
    for room in blueprint.rooms(None):
        words += room._words
    secrets = home.read_json("secrets.json").values()
    assert secrets
    assert not any(secret in word for secret in secrets for word in words)


def test_a_broker_is_named_to_every_room(home: Home) -> None:
    told = environments(Blueprint(Given({}), home), bootstrap="127.0.0.1:9092")
    assert {env["COATCHECK_KAFKA_BOOTSTRAP_SERVERS"] for env in told.values()} == {"127.0.0.1:9092"}


def test_given_hosts_to_let_through_are_kept_beside_the_fakes(home: Home) -> None:
    given = {"COATCHECK_FETCH_ALLOW_PRIVATE": "localhost:7"}
    archiver = environments(Blueprint(Given(given), home))["archiver"]
    assert archiver["COATCHECK_FETCH_ALLOW_PRIVATE"] == "localhost:7,127.0.0.1:8090"


def test_the_facts_have_the_contracts_shape(home: Home) -> None:
    blueprint = Blueprint(Given({"COATCHECK_APP_ORIGINS": "https://a.test, https://b.test"}), home)
    blueprint.minted.keep("api_key", "cck_key")
    facts = blueprint.facts(bootstrap=None, cookie="cookie")
    assert set(facts) == {
        "gateway_url", "webhook_url", "database_url", "kafka_bootstrap_servers", "s3",
        "provider_urls", "owner", "api_key", "session_cookie", "app_origin", "machine_token",
        "admin_urls", "log_dir",
    }  # fmt: skip
    assert facts["kafka_bootstrap_servers"] is None
    assert (facts["api_key"], facts["session_cookie"]) == ("cck_key", "cookie")
    assert facts["app_origin"] == "https://a.test"
    assert facts["admin_urls"]["webhook"] == "http://127.0.0.1:9105"
    assert set(facts["s3"]) == {
        "endpoint_url", "bucket", "access_key_id", "secret_access_key", "region",
    }  # fmt: skip


def test_the_preparation_is_told_what_it_needs_and_no_more(home: Home) -> None:
    given = {"COATCHECK_RUNPOD_API_KEY": "real", "PATH": "/bin"}
    env = Blueprint(Given(given), home).preparation_environment()
    assert {key for key in env if key.startswith("COATCHECK_")} == {
        "COATCHECK_DATABASE_URL", "COATCHECK_SESSION_SECRET", "COATCHECK_SESSION_ISSUER",
        "COATCHECK_SESSION_AUDIENCE", "COATCHECK_PREPARED_OWNER", "COATCHECK_PREPARED_API_KEY",
    }  # fmt: skip


def test_sessions_by_another_issuer_need_no_secret_of_ours(home: Home) -> None:
    given = {"COATCHECK_SESSION_JWKS_URL": "https://login.test/keys"}
    blueprint = Blueprint(Given(given), home)
    assert "COATCHECK_SESSION_SECRET" not in environments(blueprint)["gateway"]
    assert "COATCHECK_SESSION_SECRET" not in blueprint.preparation_environment()


def test_minted_settings_are_what_the_rooms_accept(home: Home) -> None:
    settings = Blueprint(Given({}), home).settings(None)
    assert len(WebhookKeys.parse(settings["WEBHOOK_KEYS"]).by_kid) == 1
    assert len(settings["SESSION_SECRET"]) >= 32
    assert load_registry(Path(settings["ENDPOINTS_FILE"])).find("demo-video") is not None
