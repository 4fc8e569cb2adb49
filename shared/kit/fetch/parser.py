"""The strict reading of a result's URL: one canonical text in, one target or a verdict out.

Owns the rules about text, scheme, host, port and list; it does not touch the network. It
promises that the request target is what was given, byte for byte (only characters beyond
ASCII are percent-encoded), because signatures cover it. It repairs nothing: where readers of
URLs disagree with each other, the answer is a refusal.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv6Address
from urllib.parse import quote

from shared.kit.fetch.hosts import Host, read_host
from shared.kit.fetch.verdicts import Verdict

URL_CHARS_MAX = 8_192

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_PORT = re.compile(r"[0-9]{1,5}")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ENCODED_CONTROL = re.compile(r"%(?:[01][0-9A-Fa-f]|7[Ff])")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_INVISIBLE = {"Cf", "Cs", "Cn", "Co"}


@dataclass(frozen=True)
class FetchRules:
    """What one artifact may be fetched from.

    `hosts`: exact names, "*.suffix" or "*". `private_targets`: "host:port" entries that pass
    scheme, list and address rules (see `private_targets`). `allow_nat64`: judge 64:ff9b::/96
    by the IPv4 address inside instead of refusing it.
    """

    hosts: tuple[str, ...]
    private_targets: frozenset[str] = frozenset()
    allow_nat64: bool = False


@dataclass(frozen=True)
class Target:
    """A URL that may be fetched. Its repr shows no path and no query: they may be signed."""

    scheme: str
    host: str
    port: int
    wire_target: bytes = field(repr=False)
    is_private: bool = False

    @property
    def host_header(self) -> str:
        """The Host header: with the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True)
class _Authority:
    host: str
    port: int | None
    is_bracketed: bool


def private_targets(entries: Iterable[str]) -> frozenset[str]:
    """Checked FETCH_ALLOW_PRIVATE entries ("host:port"). Raises ValueError on another shape."""
    found = set()
    for entry in entries:
        authority = _split_authority(entry)
        if isinstance(authority, Verdict) or authority.port is None or not entry.isascii():
            raise ValueError("entries of FETCH_ALLOW_PRIVATE have the form host:port")
        found.add(_private_key(authority, authority.port))
    return frozenset(found)


def judge_url(value: object, rules: FetchRules) -> Verdict:
    """`allowed`, or why this value is no URL that `rules` let through. No look-up is made."""
    read = parse_target(value, rules)
    return read if isinstance(read, Verdict) else Verdict.allowed


def parse_target(value: object, rules: FetchRules) -> Target | Verdict:
    """The target that `value` names under `rules`, or the refusal."""
    if not isinstance(value, str):
        return Verdict.not_a_string
    refusal = _judge_text(value)
    if refusal is not None:
        return refusal
    match = _SCHEME.fullmatch(value)
    scheme = match.group(1).lower() if match else ""
    if match is None or scheme not in _DEFAULT_PORTS:
        return Verdict.scheme
    rest = match.group(2)
    if not rest.startswith("//"):
        return Verdict.host_missing
    end = next((i for i, char in enumerate(rest) if i > 1 and char in "/?#"), len(rest))
    authority = _split_authority(rest[2:end])
    if isinstance(authority, Verdict):
        return authority
    wire_target = _wire_target(rest[end:])
    if isinstance(wire_target, Verdict):
        return wire_target
    port = authority.port if authority.port is not None else _DEFAULT_PORTS[scheme]
    if _private_key(authority, port) in rules.private_targets:
        return Target(scheme, authority.host.lower(), port, wire_target, is_private=True)
    host = _public_host(scheme, authority, rules)
    if isinstance(host, Verdict):
        return host
    return Target(scheme, host, port, wire_target)


def _judge_text(value: str) -> Verdict | None:
    if len(value) > URL_CHARS_MAX:
        return Verdict.too_long
    if any(char < " " or "\x7f" <= char <= "\x9f" for char in value):
        return Verdict.control_char
    if any(char.isspace() or unicodedata.category(char)[0] == "Z" for char in value):
        return Verdict.whitespace
    if "\\" in value:
        return Verdict.backslash
    if any(unicodedata.category(char) in _INVISIBLE for char in value):
        return Verdict.bad_unicode
    return None


def _split_authority(text: str) -> _Authority | Verdict:
    if not text:
        return Verdict.host_missing
    if "@" in text:
        return Verdict.userinfo
    if text.startswith("["):
        inner, closing, after = text[1:].partition("]")
        if not closing or not _is_ipv6(inner) or (after and not after.startswith(":")):
            return Verdict.host_bracket
        host, colon, port_text = inner, after[:1], after[1:]
    else:
        if "[" in text or "]" in text:
            return Verdict.host_bracket
        host, colon, port_text = text.partition(":")
        if not host:
            return Verdict.host_missing
    if not colon:
        return _Authority(host, None, text.startswith("["))
    if not _PORT.fullmatch(port_text) or int(port_text) > 65_535:
        return Verdict.port_syntax
    return _Authority(host, int(port_text), text.startswith("["))


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return "%" not in text


def _private_key(authority: _Authority, port: int) -> str:
    if authority.is_bracketed:
        return f"[{IPv6Address(authority.host).compressed}]:{port}"
    return f"{authority.host.lower()}:{port}"


def _wire_target(text: str) -> bytes | Verdict:
    if "#" in text:
        return Verdict.fragment
    if _BAD_ESCAPE.search(text):
        return Verdict.bad_escape
    if _ENCODED_CONTROL.search(text):
        return Verdict.encoded_control
    if not text.startswith("/"):
        text = "/" + text
    # Only what cannot stand on the wire is encoded; every ASCII byte stays as it was signed.
    return "".join(char if char.isascii() else quote(char) for char in text).encode("ascii")


def _public_host(scheme: str, authority: _Authority, rules: FetchRules) -> str | Verdict:
    if scheme != "https":
        return Verdict.scheme
    if authority.is_bracketed:
        return Verdict.ip_literal
    host = read_host(authority.host)
    if not isinstance(host, Host):
        return host
    if authority.port not in (None, 443):
        return Verdict.port
    return host.name if host.is_listed(rules.hosts) else Verdict.host_not_listed
