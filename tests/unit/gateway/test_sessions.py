"""Session tokens: one right one, and many that are almost right."""

import base64
import json
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import OctKey
from joserfc.jws import JWSRegistry

from services.gateway.sessions import Sessions
from services.gateway.settings import SessionSettings
from shared.kit.settings import SettingsInvalid, read_settings

SECRET = "a session secret for tests alone, made up"
NOW = 1_800_000_000
CLAIMS: dict[str, Any] = {
    "iss": "coatcheck",
    "aud": "coatcheck",
    "sub": "owner-1",
    "exp": NOW + 600,
    "iat": NOW,
}
NAN = float("nan")


@pytest.fixture
def sessions() -> Sessions:
    """A judge whose clock stands still."""
    settings = SessionSettings.model_validate({"session_secret": SECRET})
    return Sessions(settings, clock=lambda: NOW)


def signed(changes: dict[str, Any] | None = None, secret: str = SECRET, **header: Any) -> str:
    """A token with these changes; a claim changed to None is left out."""
    claims = {**CLAIMS, **(changes or {})}
    kept = {name: value for name, value in claims.items() if value is not None}
    algorithm = header.pop("alg", "HS256")
    header = {"alg": algorithm, "typ": "JWT", **header}
    payload = json.dumps(kept)
    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    return jws.serialize_compact(header, payload, OctKey.import_key(secret), registry=registry)


def spelled(value: Any) -> str:
    """One part of a token."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_right_tokens_name_their_owner(sessions: Sessions) -> None:
    right = [
        signed(),
        signed(typ="jwt"),
        signed(kid="2026"),
        signed({"aud": ["coatcheck"]}),
        signed({"iat": None, "nbf": NOW + 59, "exp": NOW + 0.5}),
        signed({"sub": "Üser/1"}),
    ]
    assert [sessions.owner_of(token) for token in right] == ["owner-1"] * 5 + ["Üser/1"]


WRONG_VALUES: dict[str, list[Any]] = {
    "exp": [None, NOW, NOW - 1, str(NOW + 9), True, NAN, 10**400, []],
    "nbf": [NOW + 61, "0", NAN],
    "iat": [NOW + 61, "0", {}],
    "iss": [None, "", "other", ["coatcheck"], "coatcheck "],
    "aud": [None, "", "x", [], ["coatcheck", "x"], {"coatcheck": 1}],
    "sub": [None, "", 7, "a\n", "a\x00", "x" * 256, "\ud800", ["owner"]],
}
WRONG_CLAIMS = [{name: value} for name, values in WRONG_VALUES.items() for value in values]


@pytest.mark.parametrize("claims", WRONG_CLAIMS, ids=repr)
def test_wrong_claims_name_nobody(sessions: Sessions, claims: dict[str, Any]) -> None:
    assert sessions.owner_of(signed(claims)) is None


def test_forged_tokens_name_nobody(sessions: Sessions) -> None:
    head, body, mac = signed().split(".")
    other_body = spelled({**CLAIMS, "sub": "owner-2"})
    forged = [
        *("", "a", "a.b", "a.b.c", "a.b.c.d", "..", f"{head}.{body}.", f"{head}.{body}"),
        *(f"{head}.{other_body}.{mac}", f"{head}.{body}.{mac[:-1]}", f"{head}.{body}.{mac}="),
        *(f" {head}.{body}.{mac}", f"{head}.{body}.{mac}\n", f"{head}.{body}.{mac}é"),
        signed(secret=SECRET + "x"),
        signed(alg="HS512"),
        f"{spelled({'alg': 'none'})}.{body}.",
        f"{spelled({'alg': 'none'})}.{body}.{mac}",
        f"{spelled({'alg': ['HS256']})}.{body}.{mac}",
        f"{spelled({'alg': None})}.{body}.{mac}",
        f"{spelled([])}.{body}.{mac}",
        f"{spelled(b'[' * 300)}.{body}.{mac}",
        f"{spelled(b'[' * 6000)}.{body}.{mac}",
        f"{spelled(bytes([255, 254]))}.{body}.{mac}",
        signed(typ="at+jwt"),
        signed(cty="JWT"),
        signed(jku="https://evil.example/keys"),
        signed(x5u="https://evil.example/keys"),
        f"{head}.{body}.{mac}" + "A" * 9000,
    ]
    assert {sessions.owner_of(token) for token in forged} == {None}


def test_a_body_that_is_signed_but_no_object_names_nobody(sessions: Sessions) -> None:
    key = OctKey.import_key(SECRET)
    for payload in (b"", b"[]", b"7", b"not json", b"\xff"):
        token = jws.serialize_compact({"alg": "HS256"}, payload, key)
        assert sessions.owner_of(token) is None


def test_without_a_key_there_are_no_sessions() -> None:
    assert Sessions(SessionSettings(), clock=lambda: NOW).owner_of(signed()) is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("COATCHECK_SESSION_SECRET", "too short"),
        ("COATCHECK_APP_ORIGINS", "https://app.example/"),
        ("COATCHECK_APP_ORIGINS", "app.example"),
        ("COATCHECK_APP_ORIGINS", "*"),
    ],
)
def test_a_wrong_setting_names_itself(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsInvalid, match=variable) as caught:
        read_settings(SessionSettings)
    assert "too short" not in str(caught.value)
