"""Settings: read once from the environment, checked at start, printed redacted.

Every room composes one settings class out of the parts below. Promises: a missing or wrong
value names its variable in one line and the process exits 2; every secret may also come from
the file that `…_FILE` names; nothing of a secret's value ever appears in an error or in what
`describe` returns. There are no default secrets and no settings object at module level.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self, TypeVar, get_args

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from shared.domain.durations import TimeScale
from shared.domain.errors import CoatcheckError

PREFIX = "COATCHECK_"
SETTINGS_EXIT_CODE = 2

Port = Annotated[int, Field(ge=1, le=65535)]

_HOST_AND_PORT = re.compile(r"^[a-z0-9._-]+:[0-9]{1,5}$")
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")

S = TypeVar("S", bound="CoatcheckSettings")


class SettingsInvalid(CoatcheckError):
    """A setting is missing or wrong; the text names each variable and never a value."""


class SecretFileSource(PydanticBaseSettingsSource):
    """Reads each secret field from the file that `COATCHECK_<NAME>_FILE` names."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The file's content without its trailing newline; None where no file is named."""
        variable = variable_of(field_name)
        path = os.environ.get(f"{variable}_FILE")
        if not path or not _is_secret(field):
            return None, field_name, False
        if os.environ.get(variable):
            raise SettingsInvalid(f"{variable} and {variable}_FILE are both set; keep one")
        try:
            value = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise SettingsInvalid(f"{variable}_FILE: {error.strerror}: {path}") from error
        except UnicodeDecodeError as error:
            raise SettingsInvalid(f"{variable}_FILE: {path} is not UTF-8 text") from error
        if not value:
            raise SettingsInvalid(f"{variable}_FILE: {path} is empty")
        return value, field_name, False

    def __call__(self) -> dict[str, Any]:
        """All secrets that come from files, by field name."""
        values = {}
        for name, field in self.settings_cls.model_fields.items():
            value, _, _ = self.get_field_value(field, name)
            if value is not None:
                values[name] = value
        return values


class CoatcheckSettings(BaseSettings):
    """The root of every settings class: prefix, secrets from files, frozen after the start."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then secret files; no `.env` file is read."""
        return init_settings, env_settings, SecretFileSource(settings_cls)


class RuntimeSettings(CoatcheckSettings):
    """What every room has. `drain_seconds` and `start_seconds` are never scaled.

    `bind_host` unset means every address in production and loopback in development.
    """

    env: Literal["prod", "dev"] = "prod"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    bind_host: str | None = None
    drain_seconds: float = Field(default=20.0, ge=0, le=3600)
    start_seconds: float = Field(default=30.0, ge=0, le=3600)
    time_scale: float = Field(default=1.0, ge=1, le=1000)
    failpoints: str | None = None
    fake_runpod: bool | None = None
    fetch_allow_private: Annotated[frozenset[str], NoDecode] = frozenset()

    @field_validator("fetch_allow_private", mode="before")
    @classmethod
    def _split_hosts(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        entries = frozenset(part.strip().lower() for part in value.split(",") if part.strip())
        if any(not _HOST_AND_PORT.match(entry) for entry in entries):
            raise ValueError("must be a comma-separated list of host:port")
        return entries

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _refuse_in_production(self) -> Self:
        if self.env != "prod":
            return self
        on = {
            "FETCH_ALLOW_PRIVATE": bool(self.fetch_allow_private),
            "FAILPOINTS": bool(self.failpoints),
            "TIME_SCALE": self.time_scale != 1.0,
            "FAKE_RUNPOD": bool(self.fake_runpod),
        }
        names = [PREFIX + name for name, is_on in on.items() if is_on]
        if names:
            raise ValueError(f"{', '.join(names)}: refused while {PREFIX}ENV is prod")
        return self

    @property
    def scale(self) -> TimeScale:
        """The factor by which durations of ours are divided."""
        return TimeScale(self.time_scale)

    @property
    def listen_host(self) -> str:
        """The address that the servers of this process bind."""
        return self.bind_host or ("0.0.0.0" if self.env == "prod" else "127.0.0.1")  # noqa: S104


class DatabaseSettings(CoatcheckSettings):
    """Where PostgreSQL is."""

    database_url: SecretStr


class KafkaSettings(CoatcheckSettings):
    """Where Kafka is; unset bootstrap servers mean that sweeps carry the load alone."""

    kafka_bootstrap_servers: str | None = None
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    kafka_sasl_username: str | None = None
    kafka_sasl_password: SecretStr | None = None
    kafka_ssl_cafile: Path | None = None
    kafka_ssl_certfile: Path | None = None
    kafka_ssl_keyfile: Path | None = None
    kafka_topic_partitions: int = Field(default=6, ge=1, le=1000)
    kafka_replication_factor: int = Field(default=1, ge=1, le=9)

    @model_validator(mode="after")
    def _sasl_needs_credentials(self) -> Self:
        is_sasl = self.kafka_security_protocol.startswith("SASL")
        if is_sasl and not (self.kafka_sasl_username and self.kafka_sasl_password):
            raise ValueError(
                f"{PREFIX}KAFKA_SASL_USERNAME, {PREFIX}KAFKA_SASL_PASSWORD: required while "
                f"{PREFIX}KAFKA_SECURITY_PROTOCOL is {self.kafka_security_protocol}"
            )
        return self


class StorageSettings(CoatcheckSettings):
    """The private bucket. `s3_public_endpoint_url`: what signed links name, if different."""

    s3_endpoint_url: str | None = None
    s3_public_endpoint_url: str | None = None
    s3_bucket: str
    s3_region: str = "us-east-1"
    s3_access_key_id: str
    s3_secret_access_key: SecretStr


class RegistrySettings(CoatcheckSettings):
    """Where the endpoint registry is."""

    endpoints_file: Path


class FetchSettings(RuntimeSettings):
    """What a room that fetches from outside needs: `fetch_allow_private` of the runtime."""


def variable_of(field_name: str) -> str:
    """The environment variable of a field."""
    return PREFIX + field_name.upper()


def read_settings(settings_type: type[S]) -> S:
    """The settings, checked. Raises SettingsInvalid with one line naming every bad variable."""
    try:
        return settings_type()
    except ValidationError as error:
        raise SettingsInvalid("; ".join(_sentences(error))) from None
    except SettingsError as error:
        name = re.search(r'field "([^"]+)"', str(error))
        variable = variable_of(name[1]) if name else "a setting"
        raise SettingsInvalid(f"{variable}: cannot be read as its type") from None


def load_settings(settings_type: type[S]) -> S:
    """The settings, or one line on stderr and exit 2."""
    try:
        return read_settings(settings_type)
    except SettingsInvalid as error:
        exit_naming(str(error))


def exit_naming(sentence: str) -> NoReturn:
    """One line on stderr, then exit 2: how every wrong setting ends a start."""
    sys.stderr.write(f"coatcheck: {sentence}\n")
    raise SystemExit(SETTINGS_EXIT_CODE)


def describe(settings: CoatcheckSettings) -> dict[str, object]:
    """The effective values as JSON values: secrets as `set` or null, no URL credentials."""
    return {name: _shown(value) for name, value in settings if not name.startswith("_")}


def _shown(value: object) -> object:
    match value:
        case SecretStr():
            return "set"
        case str() | Path():
            return _URL_CREDENTIALS.sub("…@", str(value))
        case bool() | int() | float() | None:
            return value
        case Mapping():
            return {str(key): _shown(item) for key, item in value.items()}
        case frozenset() | set():
            return sorted(str(_shown(item)) for item in value)
        case list() | tuple():
            return [_shown(item) for item in value]
        case _:
            return type(value).__name__


def _sentences(error: ValidationError) -> list[str]:
    sentences = []
    for item in error.errors(include_url=False, include_input=False, include_context=False):
        text = item["msg"].removeprefix("Value error, ")
        if not item["loc"]:
            sentences.append(text)  # a rule over several fields names its variables itself
            continue
        variable = variable_of(str(item["loc"][0]))
        missing = item["type"] == "missing"
        sentences.append(f"{variable} is missing" if missing else f"{variable}: {text}")
    return sentences


def _is_secret(field: FieldInfo) -> bool:
    return field.annotation is SecretStr or SecretStr in get_args(field.annotation)
