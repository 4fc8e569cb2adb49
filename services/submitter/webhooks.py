"""The address at which a provider calls back for one claim.

The token in it names the claim and carries our MAC, so the address is a secret of that claim:
it goes to the provider and nowhere else. Must never be logged.
"""

from dataclasses import dataclass, field
from uuid import UUID

from shared.domain.webhook_token import WebhookKeys, mint
from shared.providers import ProviderAdapter


@dataclass(frozen=True)
class WebhookAddresses:
    """`origin` and `keys` are both None where there is polling only."""

    origin: str | None = None
    keys: WebhookKeys | None = field(default=None, repr=False)

    def url(self, adapter: ProviderAdapter, job_id: UUID, claim_token: UUID) -> str | None:
        """The claim's address; None where nobody listens or the provider cannot call."""
        if self.origin is None or self.keys is None or adapter.webhook_scheme is None:
            return None
        token = mint(self.keys, adapter.name, job_id, claim_token)
        return f"{self.origin}/webhooks/{adapter.name}/{token}"
