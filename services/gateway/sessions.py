"""Session tokens: signed JWTs (HS256) whose `sub` is the owner.

Promises that only the one algorithm and the one key count, that issuer and audience match
exactly, and that any text at all is judged without an error. A token is a credential: it is
never logged, and why it was refused is never told.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from services.gateway.settings import SessionSettings

ALGORITHM = "HS256"
LEEWAY_SECONDS = 60.0
TOKEN_CHARACTERS_MAX = 8_192

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_OWNER = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
_HEADERS = frozenset({"alg", "typ", "kid"})


class Sessions:
    """The judge of session tokens; without a key it knows none."""

    def __init__(self, settings: SessionSettings, clock: Callable[[], float] = time.time) -> None:
        secret = settings.session_secret
        self._key = None if secret is None else OctKey.import_key(secret.get_secret_value())
        self._issuer = settings.session_issuer
        self._audience = settings.session_audience
        self._clock = clock

    def owner_of(self, token: str) -> str | None:
        """The owner that a valid token names, else None."""
        if self._key is None or len(token) > TOKEN_CHARACTERS_MAX or not _COMPACT.fullmatch(token):
            return None
        try:
            read = jwt.decode(token, self._key, algorithms=[ALGORITHM])
        except (JoseError, ValueError):
            return None
        return self._owner_in(read.header, read.claims)

    def _owner_in(self, header: Mapping[str, Any], claims: Mapping[str, Any]) -> str | None:
        typ = header.get("typ", "JWT")
        if not _HEADERS.issuperset(header) or not isinstance(typ, str) or typ.upper() != "JWT":
            return None
        audience = claims.get("aud")
        if claims.get("iss") != self._issuer or audience not in (self._audience, [self._audience]):
            return None
        if not self._is_current(claims):
            return None
        owner = claims.get("sub")
        return owner if isinstance(owner, str) and _is_owner(owner) else None

    def _is_current(self, claims: Mapping[str, Any]) -> bool:
        now = self._clock()
        if not _is_time(claims.get("exp")) or claims["exp"] <= now:
            return False
        begun = [claims[name] for name in ("nbf", "iat") if name in claims]
        return all(_is_time(at) and at <= now + LEEWAY_SECONDS for at in begun)


def _is_time(value: Any) -> bool:
    # The comparison also keeps out NaN, infinity and integers that no clock reaches.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53


def _is_owner(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return _OWNER.fullmatch(text) is not None
