"""Where the declared results stand in a provider's output.

Owns the reading of an endpoint's artifact paths: each node becomes a URL, a data URI, base64
or a JSON value, or it is no artifact at all. A path on the worker, a loopback URL and prose
are none. It judges shapes only: whether a URL may be fetched is for the fetch rules to say,
what the bytes are for sniffing. It never keeps or logs a value.
"""

import asyncio
import binascii
import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol, assert_never
from urllib.parse import unquote_to_bytes

from shared.domain.errors import CoatcheckError
from shared.domain.provider import FoundArtifact, FoundKind, Json
from shared.domain.registry import ArtifactKind
from shared.kit.fetch.addresses import AddressKind, judge_address
from shared.kit.jsonpaths import Node, find_nodes
from shared.media.sniffing import HEAD_BYTES, OCTETS, sniff

TEXT_SLICE_CHARS = 1024 * 1024
BASE64_DIGITS_MIN = 40
UNKNOWN_BASE64_DIGITS_MIN = 256

_URL = re.compile(r"(https?)://(\[[^\]/?#]*\]|[^:/?#\s]+)(:[0-9]+)?([/?#]\S*)?", re.IGNORECASE)
_DATA_URI = re.compile(r"data:[^,\s]{0,200},", re.IGNORECASE)
# Possessive, so that a long hostile text is read once.
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/\r\n]++|[A-Za-z0-9_\r\n-]++)={0,2}[\r\n]*+")
_OWN_MACHINE = (AddressKind.loopback, AddressKind.this_network)


class InlineMalformed(CoatcheckError):
    """The encoded text of a result is broken."""


class DeclaredArtifact(Protocol):
    """What is needed of a declaration; today's and a pinned one both have it."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> ArtifactKind: ...


def locate(
    output: Json, declared: DeclaredArtifact, private_targets: frozenset[str] = frozenset()
) -> tuple[FoundArtifact, ...]:
    """All usable values at the declared path, in order; empty when there is no artifact.

    `private_targets` are the "host:port" entries whose URLs count although they lead to this
    machine.
    """
    found = []
    for node in find_nodes(declared.path, output):
        for item in _items(node, declared.kind):
            kind = _kind_of(item.value, declared.kind, private_targets)
            if kind is not None:
                found.append(FoundArtifact(kind, item.where, item.value))
    return tuple(found)


def stored_name(declared_name: str, index: int) -> str:
    """The name of the value at `index` (from 0): the declared one, then with "-2", "-3", …"""
    return declared_name if index == 0 else f"{declared_name}-{index + 1}"


def inline_chunks(found: FoundArtifact) -> Iterator[bytes]:
    """The bytes of an artifact that came inside the output. Raises InlineMalformed."""
    match found.kind:
        case FoundKind.data_uri:
            head, _, data = found.value.partition(",")
            if head.lower().endswith(";base64"):
                yield from _decoded(unquote_to_bytes(data).decode("latin-1"))
            else:
                yield unquote_to_bytes(data)
        case FoundKind.base64:
            yield from _decoded(found.value)
        case FoundKind.json:
            yield json.dumps(found.value, ensure_ascii=False, separators=(",", ":")).encode()
        case FoundKind.url:
            raise InlineMalformed("a URL has no bytes of its own")
        case _ as never:
            assert_never(never)


async def inline_source(found: FoundArtifact) -> AsyncIterator[bytes]:
    """`inline_chunks` in the shape that `capture` takes; other work runs between the slices."""
    for chunk in inline_chunks(found):
        yield chunk
        await asyncio.sleep(0)


def _items(node: Node, kind: ArtifactKind) -> Iterator[Node]:
    if isinstance(node.value, list) and kind is not ArtifactKind.json:
        for index, value in enumerate(node.value):
            yield Node(f"{node.where}[{index}]", value)
    else:
        yield node


def _kind_of(value: Any, kind: ArtifactKind, private_targets: frozenset[str]) -> FoundKind | None:
    match kind:
        case ArtifactKind.json:
            return None if value is None else FoundKind.json
        case ArtifactKind.url:
            return _as_url(value, private_targets)
        case ArtifactKind.data_uri | ArtifactKind.base64:
            is_declared = kind is ArtifactKind.base64
            return _as_inline(value, may_be_unknown=is_declared)
        case ArtifactKind.auto:
            found = _as_url(value, private_targets)
            return found or _as_inline(value, may_be_unknown=False)
        case _ as never:
            assert_never(never)


def _as_url(value: Any, private_targets: frozenset[str]) -> FoundKind | None:
    match = _URL.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    host = match.group(2).lower()
    port = match.group(3) or (":443" if match.group(1).lower() == "https" else ":80")
    if host + port in private_targets:
        return FoundKind.url
    name = host.rstrip(".")
    is_here = name == "localhost" or name.endswith(".localhost")
    if is_here or judge_address(name.strip("[]")) in _OWN_MACHINE:
        return None
    return FoundKind.url


def _as_inline(value: Any, *, may_be_unknown: bool) -> FoundKind | None:
    if not isinstance(value, str):
        return None
    uri = _DATA_URI.match(value)
    if uri is not None:
        return FoundKind.data_uri if len(value) > uri.end() else None
    digits = len(value) - sum(value.count(char) for char in "\r\n=")
    if digits < BASE64_DIGITS_MIN or digits % 4 == 1 or not _BASE64.fullmatch(value):
        return None
    head = next(_decoded(value[: HEAD_BYTES * 2]))
    # Short words and paths are valid base64 as well; only known beginnings prove anything.
    is_long = digits >= UNKNOWN_BASE64_DIGITS_MIN
    if sniff(head) is not OCTETS or (may_be_unknown and is_long):
        return FoundKind.base64
    return None


def _decoded(text: str) -> Iterator[bytes]:
    """Decodes slice by slice, so that a large text is not held twice."""
    rest = ""
    for at in range(0, len(text), TEXT_SLICE_CHARS):
        piece = text[at : at + TEXT_SLICE_CHARS]
        piece = rest + re.sub(r"[\r\n]", "", piece).replace("-", "+").replace("_", "/")
        usable = len(piece) - len(piece) % 4
        rest = piece[usable:]
        yield _strict(piece[:usable])
    if rest:
        yield _strict(rest.rstrip("=") + "=" * (-len(rest.rstrip("=")) % 4))


def _strict(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise InlineMalformed from error
