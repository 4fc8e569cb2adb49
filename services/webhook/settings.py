"""What the webhook room is told at start.

Promises that the keys are readable and long enough before the port opens. The room sees no
provider's key and no bucket: all it can do is record evidence.
"""

from pydantic import Field, SecretStr, field_validator

from shared.domain.errors import Refused
from shared.domain.webhook_token import WebhookKeys
from shared.kit.settings import DatabaseSettings, Port, RuntimeSettings


class WebhookSettings(DatabaseSettings, RuntimeSettings):
    """All of the room's settings.

    `webhook_keys`: `kid:key,…`, the first one signs, all are accepted. `webhook_floor_seconds`:
    the least distance between two checks of one job that callbacks may cause; scaled.
    """

    webhook_port: Port = 8081
    webhook_keys: SecretStr
    webhook_floor_seconds: float = Field(default=2.0, ge=0, le=3600)

    @field_validator("webhook_keys")
    @classmethod
    def _keys_are_readable(cls, value: SecretStr) -> SecretStr:
        try:
            WebhookKeys.parse(value.get_secret_value())
        except Refused as error:
            raise ValueError(str(error)) from None
        return value

    @property
    def keys(self) -> WebhookKeys:
        """The keys, read."""
        return WebhookKeys.parse(self.webhook_keys.get_secret_value())
