"""The token in a webhook's path: it names one claim of one job and proves that we named it.

Text: `kid.job_id.claim_token.mac`, where mac = HMAC-SHA256(key[kid], "wh1|" provider "|" job_id
"|" claim_token) in unpadded base64url. The submitter mints it, the webhook room checks it
without the database. Promises that any bytes at all are judged without an error, that a token
has exactly one spelling, and that the comparison takes the same time wherever it fails.
Must never be logged, and neither may the path that holds it.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from shared.domain.errors import Refused

LEAST_KEY_CHARACTERS = 16

_KID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TOKEN = re.compile(
    rb"([A-Za-z0-9_-]{1,32})\.(%b)\.(%b)\.[A-Za-z0-9_-]{43}" % (_UUID.encode(), _UUID.encode())
)
_PROVIDER = re.compile(r"[a-z][a-z0-9_]{0,30}")


class NamedClaim(NamedTuple):
    """What an authentic token names."""

    job_id: UUID
    claim_token: UUID


@dataclass(frozen=True)
class WebhookKeys:
    """Keys by their id; the first one signs, all of them are accepted."""

    by_kid: tuple[tuple[str, bytes], ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "WebhookKeys":
        """Reads `kid:key,kid:key,…`. Raises Refused, whose text never holds a key."""
        pairs = []
        for position, part in enumerate(text.split(","), start=1):
            kid, separator, key = part.strip().partition(":")
            if not separator or not _KID.fullmatch(kid):
                raise Refused(f"entry {position} must be kid:key, the kid of letters, digits, _, -")
            if len(key) < LEAST_KEY_CHARACTERS:
                raise Refused(f"the key of {kid} needs at least {LEAST_KEY_CHARACTERS} characters")
            pairs.append((kid, key.encode()))
        if len({kid for kid, _ in pairs}) != len(pairs):
            raise Refused("every kid must be named once")
        return cls(tuple(pairs))

    def find(self, kid: str) -> bytes | None:
        """The key of that id, or None."""
        return dict(self.by_kid).get(kid)


def mint(keys: WebhookKeys, provider: str, job_id: UUID, claim_token: UUID) -> str:
    """The token that goes into the webhook address sent with a paid call."""
    kid, key = keys.by_kid[0]
    return _spell(kid, key, provider, NamedClaim(job_id, claim_token))


def verify(keys: WebhookKeys, provider: str, token: bytes) -> NamedClaim | None:
    """What the token names, or None where it is not exactly one that we minted.

    `token` is the path segment as it came, after percent-decoding; `provider` is the path's.
    """
    match = _TOKEN.fullmatch(token)
    if match is None or not _PROVIDER.fullmatch(provider):
        return None
    kid, job_id, claim_token = (part.decode("ascii") for part in match.groups())
    named = NamedClaim(UUID(job_id), UUID(claim_token))
    key = keys.find(kid)
    # An unknown kid costs the same work as a wrong mac.
    expected = _spell(kid, key or b"no such key", provider, named)
    if not hmac.compare_digest(expected.encode("ascii"), token) or key is None:
        return None
    return named


def _spell(kid: str, key: bytes, provider: str, named: NamedClaim) -> str:
    signed = f"wh1|{provider}|{named.job_id}|{named.claim_token}"
    mac = hmac.digest(key, signed.encode(), hashlib.sha256)
    spelled = base64.urlsafe_b64encode(mac).rstrip(b"=").decode("ascii")
    return f"{kid}.{named.job_id}.{named.claim_token}.{spelled}"
