"""What the submitter is told, beside the provider keys that each adapter reads itself."""

from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from shared.domain.errors import Refused
from shared.domain.webhook_token import WebhookKeys
from shared.kit.settings import (
    PREFIX,
    DatabaseSettings,
    KafkaSettings,
    RegistrySettings,
    RuntimeSettings,
)

OFF = "off"


class SubmitterSettings(RuntimeSettings, DatabaseSettings, KafkaSettings, RegistrySettings):
    """`webhook_base_url` unset or `off` means polling only; else `webhook_keys` must sign.

    `drain_seconds` covers a paid call that began just before the stop, and its writing.
    """

    drain_seconds: float = Field(default=40.0, ge=0, le=3600)
    webhook_base_url: str | None = None
    webhook_keys: SecretStr | None = None

    @model_validator(mode="after")
    def _webhooks_can_be_signed(self) -> Self:
        if self.webhook_origin is None:
            return self
        if urlsplit(self.webhook_origin).scheme not in ("http", "https"):
            raise ValueError(f"{PREFIX}WEBHOOK_BASE_URL: must be an http(s) URL, or {OFF}")
        if self.webhook_keys is None:
            raise ValueError(
                f"{PREFIX}WEBHOOK_KEYS: required while {PREFIX}WEBHOOK_BASE_URL is set"
            )
        try:
            WebhookKeys.parse(self.webhook_keys.get_secret_value())
        except Refused as error:
            raise ValueError(f"{PREFIX}WEBHOOK_KEYS: {error}") from None
        return self

    @property
    def webhook_origin(self) -> str | None:
        """Where callbacks come in, without a trailing slash; None for polling only."""
        if self.webhook_base_url is None or self.webhook_base_url.lower() == OFF:
            return None
        return self.webhook_base_url.rstrip("/")
