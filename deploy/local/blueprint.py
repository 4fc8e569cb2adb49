"""What one stack consists of: which parts are started, which are used, and who is told what.

Owns the decision, per part, between the environment's and ours, and the environment of every
child. Promises that a room sees only the secrets it needs: provider keys reach the submitter,
the reconciler and the archiver alone. Must never start a part that the environment names.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.local import kafka_jars, ports
from deploy.local.given import PREFIX, Given, SettingWrong
from deploy.local.home import Home
from deploy.local.kafka import LocalKafka
from deploy.local.minted import Minted, write_secret_file
from deploy.local.port_plan import PortPlan
from deploy.local.postgres import LocalPostgres
from deploy.local.rooms import ProgramPart, fake_runpod_part, room_part
from deploy.local.seaweedfs import REGION, LocalSeaweed
from shared.domain.errors import Refused
from shared.kit.registry import load_registry

OWNER = "demo"
BUCKET = "coatcheck"
ISSUER = "coatcheck-local"
AUDIENCE = "coatcheck"
RUNPOD_URL = "https://api.runpod.ai/v2"
ROOMS = ("gateway", "relay", "submitter", "reconciler", "archiver", "webhook")
ENDPOINTS_FILE = Path(__file__).with_name("endpoints.toml")

_PAYING = frozenset({"submitter", "reconciler", "archiver"})
_READERS: Mapping[str, frozenset[str]] = {
    "RUNPOD_API_KEY": _PAYING,
    "VIDEOROUTER_API_KEY": _PAYING,
    "S3_ACCESS_KEY_ID": frozenset({"gateway", "archiver"}),
    "S3_SECRET_ACCESS_KEY": frozenset({"gateway", "archiver"}),
    "SESSION_SECRET": frozenset({"gateway"}),
    "WEBHOOK_KEYS": frozenset({"submitter", "webhook"}),
    "MACHINE_TOKEN": frozenset({"reconciler"}),
}
"""Who reads a secret; one that is not listed goes to every room."""


class Blueprint:
    """The stack as it will be. Making it may mint secrets and choose ports."""

    def __init__(self, given: Given, home: Home) -> None:
        self.given, self.home = given, home
        # Before anything is started: the programs that take these come late in the start.
        given.number("TIME_SCALE", 1, 1000)
        _check_endpoints(given)
        self.plan = PortPlan(given, home)
        self.minted = Minted(home)
        self.gateway_url = _local_url(self.plan.number("GATEWAY_PORT"))
        self.webhook_url = _local_url(self.plan.number("WEBHOOK_PORT"))
        self.postgres = self._postgres()
        self.kafka = self._kafka()
        self.s3 = self._s3()
        self.fake_runpod = self._fake_runpod()

    @property
    def database_url(self) -> str:
        """Of the owning role, with its password."""
        if self.postgres is not None:
            return self.postgres.url
        return self.given.required("DATABASE_URL", "no local PostgreSQL is started")

    @property
    def is_provider_real(self) -> bool:
        """Do jobs go to the provider that takes money?"""
        return self.fake_runpod is None and self.given.text("RUNPOD_API_KEY") is not None

    def rooms(self, bootstrap: str | None) -> list[ProgramPart]:
        """The rooms; `bootstrap` is where the broker is, None to run without one."""
        settings = self.settings(bootstrap)
        return [self._room(name, settings) for name in ROOMS]

    def preparation_environment(self) -> dict[str, str]:
        """For the step between PostgreSQL and the rooms: migrations, a key, a session."""
        wanted = ("DATABASE_URL", "SESSION_SECRET", "SESSION_ISSUER", "SESSION_AUDIENCE")
        settings = self.settings(None)
        return {
            **_without_ours(self.given.environ),
            **{PREFIX + name: settings[name] for name in wanted if name in settings},
            **{f"{PREFIX}PREPARED_OWNER": OWNER},
            **{f"{PREFIX}PREPARED_API_KEY": self.minted.find("api_key") or ""},
        }

    def facts(self, *, bootstrap: str | None, cookie: str | None) -> dict[str, Any]:
        """`stack.json` without the pids; the key must have been kept before."""
        settings = self.settings(bootstrap)
        admin = {name: f"{name.upper()}_ADMIN_PORT" for name in ROOMS}
        return {
            "gateway_url": self.gateway_url,
            "webhook_url": self.webhook_url,
            "database_url": self.database_url,
            "kafka_bootstrap_servers": bootstrap,
            "s3": {
                "endpoint_url": settings.get("S3_ENDPOINT_URL"),
                "bucket": settings["S3_BUCKET"],
                "access_key_id": settings["S3_ACCESS_KEY_ID"],
                "secret_access_key": settings["S3_SECRET_ACCESS_KEY"],
                "region": settings["S3_REGION"],
            },
            "provider_urls": {"runpod": settings.get("RUNPOD_BASE_URL", RUNPOD_URL)},
            "owner": OWNER,
            "api_key": self.minted.find("api_key"),
            "session_cookie": cookie,
            "app_origin": settings["APP_ORIGINS"].split(",")[0].strip(),
            "machine_token": settings["MACHINE_TOKEN"],
            "admin_urls": {
                name: _local_url(self.plan.number(port)) for name, port in admin.items()
            },
            "log_dir": str(self.home.log_dir),
        }

    def _postgres(self) -> LocalPostgres | None:
        if self.given.text("DATABASE_URL") is not None:
            return None
        return LocalPostgres(
            self.home.folder("postgres"),
            self.plan.number("LOCAL_POSTGRES_PORT"),
            self.minted.get("postgres_password"),
            self.home.log_of("postgres"),
            durable=True,
        )

    def _kafka(self) -> LocalKafka | None:
        if self.given.text("KAFKA_BOOTSTRAP_SERVERS") is not None:
            return None
        return LocalKafka(
            self.home.folder("kafka"),
            self.plan.number("LOCAL_KAFKA_PORT"),
            self.plan.internal[0],
            self.home.log_of("kafka"),
            kafka_jars.default_cache_dir(),
        )

    def _s3(self) -> LocalSeaweed | None:
        if self.given.text("S3_ENDPOINT_URL") or self.given.text("S3_ACCESS_KEY_ID"):
            return None
        return LocalSeaweed(
            self.home.folder("s3"),
            [self.plan.number("LOCAL_S3_PORT"), *self.plan.internal[1:]],
            self.minted.get("s3_access_key_id"),
            self.minted.get("s3_secret_access_key"),
            self.given.text("S3_BUCKET") or BUCKET,
            self.home.log_of("s3"),
        )

    def _fake_runpod(self) -> ProgramPart | None:
        is_real = self.given.text("RUNPOD_BASE_URL") or self.given.text("RUNPOD_API_KEY")
        wanted = self.given.flag("FAKE_RUNPOD")
        if not (wanted if wanted is not None else not is_real):
            return None
        data_dir = self.home.folder("fake_runpod")
        data_dir.mkdir(exist_ok=True, mode=0o700)
        key_file = write_secret_file(data_dir / "api-key", self.minted.get("runpod_api_key"))
        return fake_runpod_part(
            self.plan.named("LOCAL_FAKE_RUNPOD_PORT"),
            data_dir,
            key_file,
            {
                **_without_ours(self.given.environ),
                **{PREFIX + "TIME_SCALE": self.given.text("TIME_SCALE") or "1"},
            },
            self.home.log_of("fake_runpod"),
        )

    def settings(self, bootstrap: str | None) -> dict[str, str]:
        """What every room could be told, secrets included; names without the prefix."""
        given, minted = self.given, self.minted
        settings = {
            "ENV": "dev",
            "DATABASE_URL": self.database_url,
            "APP_ORIGINS": given.text("APP_ORIGINS") or self.gateway_url,
            "SESSION_ISSUER": given.text("SESSION_ISSUER") or ISSUER,
            "SESSION_AUDIENCE": given.text("SESSION_AUDIENCE") or AUDIENCE,
            "WEBHOOK_BASE_URL": given.text("WEBHOOK_BASE_URL") or self.webhook_url,
            "WEBHOOK_KEYS": given.text("WEBHOOK_KEYS") or f"local:{minted.get('webhook_key')}",
            "MACHINE_TOKEN": given.text("MACHINE_TOKEN") or minted.get("machine_token"),
            "ENDPOINTS_FILE": str(Path(given.text("ENDPOINTS_FILE") or ENDPOINTS_FILE).absolute()),
            **{name: str(number) for name, number in self.plan.room_ports().items()},
            **self._storage_settings(),
            **self._provider_settings(),
        }
        if given.text("SESSION_JWKS_URL") is None:
            settings["SESSION_SECRET"] = given.text("SESSION_SECRET") or minted.get(
                "session_secret"
            )
        if bootstrap is not None:
            settings["KAFKA_BOOTSTRAP_SERVERS"] = bootstrap
        return settings

    def _storage_settings(self) -> dict[str, str]:
        if self.s3 is not None:
            return {
                "S3_ENDPOINT_URL": self.s3.endpoint_url,
                "S3_BUCKET": self.s3.bucket,
                "S3_REGION": REGION,
                "S3_ACCESS_KEY_ID": self.s3.access_key,
                "S3_SECRET_ACCESS_KEY": self.minted.get("s3_secret_access_key"),
            }
        because = "S3 is named in the environment"
        names = ("S3_BUCKET", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY")
        settings = {name: self.given.required(name, because) for name in names}
        settings["S3_REGION"] = self.given.text("S3_REGION") or REGION
        if (endpoint := self.given.text("S3_ENDPOINT_URL")) is not None:
            settings["S3_ENDPOINT_URL"] = endpoint
        return settings

    def _provider_settings(self) -> dict[str, str]:
        if self.fake_runpod is None:
            names = ("RUNPOD_BASE_URL", "RUNPOD_API_KEY")
            return {name: value for name in names if (value := self.given.text(name))}
        port = self.plan.number("LOCAL_FAKE_RUNPOD_PORT")
        let_through = [self.given.text("FETCH_ALLOW_PRIVATE"), f"{ports.LOOPBACK}:{port}"]
        return {
            "RUNPOD_BASE_URL": f"{_local_url(port)}/v2",
            "RUNPOD_API_KEY": self.minted.get("runpod_api_key"),
            "FETCH_ALLOW_PRIVATE": ",".join(entry for entry in let_through if entry),
        }

    def _room(self, name: str, settings: Mapping[str, str]) -> ProgramPart:
        hidden = {secret for secret, readers in _READERS.items() if name not in readers}
        env = self.given.for_children()
        for key in (*settings, *hidden):
            env.pop(PREFIX + key, None)
            env.pop(f"{PREFIX}{key}_FILE", None)
        env |= {PREFIX + key: value for key, value in settings.items() if key not in hidden}
        served = [self.plan.named(f"{name.upper()}_ADMIN_PORT")]
        if name in ("gateway", "webhook"):
            served.insert(0, self.plan.named(f"{name.upper()}_PORT"))
        return room_part(name, tuple(served), env, self.home.log_of(name))


def _local_url(port: int) -> str:
    return f"http://{ports.LOOPBACK}:{port}"


def _check_endpoints(given: Given) -> None:
    path = given.text("ENDPOINTS_FILE")
    if path is None:
        return
    try:
        load_registry(Path(path))
    except Refused as error:
        raise SettingWrong(f"{PREFIX}ENDPOINTS_FILE: {error}") from error


def _without_ours(environ: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environ.items() if not key.startswith(PREFIX)}
