"""Sessions for development: a signed token as the product's own login would make it.

Owns the claims of such a token. Promises the contract's shape: `sub` is the owner; issuer,
audience and expiry are set. Must never be used to check a token: that is the gateway's work.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from joserfc import jwt
from joserfc.jwk import OctKey

ALGORITHM = "HS256"
LIFE = timedelta(days=30)


@dataclass(frozen=True)
class Session:
    """A cookie's value and when it ends."""

    cookie: str
    expires_at: datetime


def new_session(
    owner: str, *, secret: str, issuer: str, audience: str, life: timedelta = LIFE
) -> Session:
    """A session of the owner, signed with the shared secret."""
    now = datetime.now(UTC).replace(microsecond=0)
    expires_at = now + life
    claims = {
        "sub": owner,
        "iss": issuer,
        "aud": audience,
        "iat": int(now.timestamp()),
        "exp": int(expires_at.timestamp()),
    }
    token = jwt.encode({"alg": ALGORITHM, "typ": "JWT"}, claims, OctKey.import_key(secret))
    return Session(token, expires_at)
