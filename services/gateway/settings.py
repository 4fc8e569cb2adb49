"""What the gateway is told at start.

Promises that sessions are on only with a key that is long enough for the algorithm, and that
application origins are written exactly as browsers send them. It never sees a provider's key.
"""

import re
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from shared.kit.settings import (
    PREFIX,
    CoatcheckSettings,
    DatabaseSettings,
    Port,
    RegistrySettings,
    RuntimeSettings,
    StorageSettings,
)

LEAST_SECRET_CHARACTERS = 32

_ORIGIN = re.compile(
    r"^https?://[a-z0-9.-]+(:[0-9]{1,5})?$|^https?://\[[0-9a-f:]+\](:[0-9]{1,5})?$"
)


class SessionSettings(CoatcheckSettings):
    """Sessions: a shared key (HS256) and what its tokens must claim; without a key, no sessions."""

    session_secret: SecretStr | None = None
    session_issuer: str = Field(default="coatcheck", min_length=1)
    session_audience: str = Field(default="coatcheck", min_length=1)
    app_origins: Annotated[frozenset[str], NoDecode] = frozenset()

    @field_validator("app_origins", mode="before")
    @classmethod
    def _split_origins(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        origins = frozenset(part.strip() for part in value.split(",") if part.strip())
        if any(not _ORIGIN.match(origin) for origin in origins):
            raise ValueError("must be a comma-separated list of origins, as https://app.example")
        return origins

    @model_validator(mode="after")
    def _secret_fits_algorithm(self) -> Self:
        secret = self.session_secret
        if secret is not None and len(secret.get_secret_value()) < LEAST_SECRET_CHARACTERS:
            raise ValueError(
                f"{PREFIX}SESSION_SECRET: at least {LEAST_SECRET_CHARACTERS} characters are needed"
            )
        return self


class GatewaySettings(
    SessionSettings, RegistrySettings, StorageSettings, DatabaseSettings, RuntimeSettings
):
    """All of the gateway's settings."""

    gateway_port: Port = 8080
