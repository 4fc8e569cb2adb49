"""Who is calling, and what they may do.

A credential is an API key or a session token as `Authorization: Bearer`, or a session token in
the cookie; a request with both is judged by the bearer. A request that changes something on the
strength of a cookie must prove that the application's own page sent it. Promises that the owner
comes from the credential alone and that every way to fail gives the same 401.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPMethod
from typing import Annotated

from fastapi import Depends
from starlette.datastructures import Headers
from starlette.requests import Request

from services.gateway.bodies import is_json_type
from services.gateway.desk import Desk, desk_of
from services.gateway.problems import CHALLENGE, Problem
from shared.store.keys import SCOPES, key_found, key_used

COOKIE = "coatcheck_session"
READ, WRITE = SCOPES
KEY_PREFIX = "cck_"

_BEARER = re.compile(r"bearer +([\x21-\x7e]+) *", re.IGNORECASE)
_SAFE_METHODS = frozenset({HTTPMethod.GET, HTTPMethod.HEAD})


@dataclass(frozen=True)
class Principal:
    """An authenticated caller."""

    owner_id: str
    scopes: frozenset[str]


async def authenticate(request: Request) -> Principal:
    """The caller. Raises Problem: 401; 403 or 415 for a cookie from the wrong place."""
    desk = desk_of(request)
    given = request.headers.getlist("authorization")
    if given:
        return await _by_bearer(desk, given)
    owner_id = _owner_by_cookie(desk, request.headers)
    if owner_id is None:
        raise Problem("unauthenticated")
    if request.method not in _SAFE_METHODS:
        require_own_page(request.headers, desk.app_origins)
    return Principal(owner_id, frozenset(SCOPES))


async def _by_bearer(desk: Desk, given: list[str]) -> Principal:
    bearer = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if bearer is None:
        raise Problem("unauthenticated")
    if bearer[1].startswith(KEY_PREFIX):
        known = await key_found(desk.database, bearer[1])
        desk.database_outage.worked()
        if known is not None:
            if desk.key_uses.is_due(known.id):
                await key_used(desk.database, known.id)
            return Principal(known.owner_id, known.scopes)
    else:
        owner_id = desk.sessions.owner_of(bearer[1])
        if owner_id is not None:
            return Principal(owner_id, frozenset(SCOPES))
    raise Problem("unauthenticated")


def _owner_by_cookie(desk: Desk, headers: Headers) -> str | None:
    pairs = [part.partition("=") for line in headers.getlist("cookie") for part in line.split(";")]
    tokens = {value.strip() for name, _, value in pairs if name.strip() == COOKIE}
    # Two different sessions: one of them was planted, and nobody can tell which.
    return desk.sessions.owner_of(tokens.pop()) if len(tokens) == 1 else None


def require_own_page(headers: Headers, app_origins: frozenset[str]) -> None:
    """Raises Problem unless a page of the application itself sent this, as JSON."""
    origins = headers.getlist("origin")
    sites = headers.getlist("sec-fetch-site")
    if len(origins) != 1 or origins[0] not in app_origins or sites not in ([], ["same-origin"]):
        raise Problem("origin_not_allowed")
    given = headers.getlist("content-type")
    if len(given) != 1 or not is_json_type(given[0]):
        raise Problem("unsupported_media_type")


def _requiring(scope: str) -> Callable[[Request], object]:
    async def authorised(request: Request) -> Principal:
        principal = await authenticate(request)
        if scope not in principal.scopes:
            challenge = f'{CHALLENGE}, error="insufficient_scope", scope="{scope}"'
            raise Problem("insufficient_scope", headers={"WWW-Authenticate": challenge})
        return principal

    return authorised


Anyone = Annotated[Principal, Depends(authenticate)]
Reader = Annotated[Principal, Depends(_requiring(READ))]
Writer = Annotated[Principal, Depends(_requiring(WRITE))]
