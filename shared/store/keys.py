"""API keys: made once, shown once, kept as a digest.

A key is `cck_` and 256 random bits in base 62 with a checksum, so that secret scanners can tell
one from chance. The database holds its SHA-256 only; since the secret is random and long, an
unsalted digest is enough, and looking one up by it leaks nothing by timing.
"""

import hashlib
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from uuid_utils.compat import uuid7

from shared.store.pool import Database

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_DIGITS = 43
_CHECK_DIGITS = 6
SCOPES = ("jobs:read", "jobs:write")

CREATE_KEY_SQL = """
INSERT INTO api_keys (id, owner_id, key_sha256, scopes, expires_at)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5::interval)
"""
FIND_KEY_SQL = """
SELECT id, owner_id, scopes FROM api_keys
WHERE key_sha256 = $1 AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > clock_timestamp())
"""
LIST_KEYS_SQL = """
SELECT id, owner_id, scopes, created_at, expires_at, revoked_at, last_used_at
FROM api_keys WHERE $1::text IS NULL OR owner_id = $1 ORDER BY created_at
"""
REVOKE_KEY_SQL = """
UPDATE api_keys SET revoked_at = clock_timestamp()
WHERE id = $1 AND revoked_at IS NULL RETURNING id
"""
TOUCH_KEY_SQL = """
UPDATE api_keys SET last_used_at = clock_timestamp()
WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute')
"""


@dataclass(frozen=True)
class NewKey:
    """A key as it is shown once."""

    id: str
    key: str
    owner: str


@dataclass(frozen=True)
class KnownKey:
    """A valid key's owner and scopes."""

    id: str
    owner_id: str
    scopes: frozenset[str]


@dataclass(frozen=True)
class KeyEntry:
    """A key as operators list it; the secret is not in the database."""

    id: str
    owner_id: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


def new_secret() -> str:
    """A fresh key text."""
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_DIGITS))
    return f"cck_{secret}{_checksum(secret)}"


def is_well_formed(key: str) -> bool:
    """Whether the text can be one of our keys at all; saves the database a look-up."""
    body = key[4:]
    return (
        key.startswith("cck_")
        and len(body) == _SECRET_DIGITS + _CHECK_DIGITS
        and body.isascii()
        and body.isalnum()
        and _checksum(body[:_SECRET_DIGITS]) == body[_SECRET_DIGITS:]
    )


def _checksum(secret: str) -> str:
    number = zlib.crc32(secret.encode())
    digits = ""
    for _ in range(_CHECK_DIGITS):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


async def key_created(
    database: Database,
    owner: str,
    *,
    scopes: Sequence[str] = SCOPES,
    life: timedelta | None = None,
    key: str | None = None,
) -> NewKey:
    """Stores a new key (or the given text, once) and returns it. `life` None: no expiry."""
    text = key or new_secret()
    new = NewKey(id=f"key_{uuid7().hex}", key=text, owner=owner)
    async with database.transaction() as connection:
        await connection.execute(CREATE_KEY_SQL, new.id, owner, _digest(text), list(scopes), life)
    return new


async def key_found(database: Database, key: str) -> KnownKey | None:
    """The valid key of that text; None when unknown, revoked or expired."""
    if not is_well_formed(key):
        return None
    async with database.connection() as connection:
        row = await connection.fetchrow(FIND_KEY_SQL, _digest(key))
    if row is None:
        return None
    return KnownKey(row["id"], row["owner_id"], frozenset(row["scopes"]))


async def key_used(database: Database, key_id: str) -> None:
    """Notes the use, at most once a minute."""
    async with database.connection() as connection:
        await connection.execute(TOUCH_KEY_SQL, key_id)


async def keys_listed(database: Database, owner: str | None = None) -> list[KeyEntry]:
    """All keys, or one owner's, oldest first."""
    async with database.connection() as connection:
        rows = await connection.fetch(LIST_KEYS_SQL, owner)
    return [KeyEntry(**dict(row)) for row in rows]


async def key_revoked(database: Database, key_id: str) -> bool:
    """Revokes a key; False when there is none, or it was revoked before."""
    async with database.transaction() as connection:
        return await connection.fetchval(REVOKE_KEY_SQL, key_id) is not None
