"""Looking for artifacts in an output that nobody described: the search without a declared path.

Owns what counts as a usable reference: a web address that somebody else can reach, a data URI,
base64 whose first bytes are those of a media file. A path on a worker, a loopback or one-label
address, model weights, code, prose and echoes of the request are none. Promises document order
and bounded work.
Must never open anything it finds; a JSON value counts only where an endpoint declares it.
"""

import base64
import re
from collections.abc import Iterator

from shared.domain.provider import FoundArtifact, FoundKind, Json

MAX_VALUES = 100_000
MAX_FOUND = 1_000
MAX_DEPTH = 200
MAX_URL_CHARS = 8_192

_URL = re.compile(
    r"https?://(?P<host>(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+(?P<last>[a-z][a-z0-9-]*))"
    r"(?::[0-9]{1,5})?(?:[/?][^\s\\#\x00-\x1f\x7f\"<>]*)?",
    re.IGNORECASE,
)
_UNREACHABLE = frozenset(
    ("localhost", "local", "internal", "localdomain", "lan", "home", "invalid", "arpa", "onion")
)
_NO_MEDIA = re.compile(r"\.(git|pth|pt|ckpt|safetensors|onnx|html?|py|js)([?]|$)", re.IGNORECASE)
_DATA_URI = re.compile(r"data:[^,\s]{0,200};base64,\s*[A-Za-z0-9+/_-]", re.IGNORECASE)
_BASE64_HEAD = re.compile(r"[A-Za-z0-9+/_-]{16}")
_CALLERS_OWN = re.compile(
    r"(inputs?|requests?|params|parameters|prompts?|workflow|webhook\w*|callback\w*)"
    r"|(input|init|source|reference|ref)_\w+"
    r"|(status|cancel|polling|response|log|logs|docs|stream)_?url",
    re.IGNORECASE,
)
_SHORT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_MAGIC = (
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"GIF87a",
    b"GIF89a",
    b"RIFF",
    b"\x1aE\xdf\xa3",
    b"OggS",
    b"fLaC",
    b"ID3",
    b"glTF",
    b"%PDF-",
    b"PK\x03\x04",
    b"II*\x00",
    b"MM\x00*",
)

Steps = tuple[str | int, ...]


def find_artifacts(output: Json) -> tuple[FoundArtifact, ...]:
    """Every usable reference in the output, in its order."""
    found: list[FoundArtifact] = []
    for value, steps in _strings(output):
        kind = _kind_of(value)
        if kind is not None:
            found.append(FoundArtifact(kind, _path(steps), value))
        if len(found) == MAX_FOUND:
            break
    return tuple(found)


def _strings(output: Json) -> Iterator[tuple[str, Steps]]:
    """All strings that are not the caller's own, depth first, without nesting of calls."""
    waiting: list[tuple[Json, Steps]] = [(output, ())]
    for _ in range(MAX_VALUES):
        if not waiting:
            return
        value, steps = waiting.pop()
        if len(steps) > MAX_DEPTH:
            continue
        match value:
            case str():
                yield value, steps
            case dict():
                waiting += [
                    (item, (*steps, key))
                    for key, item in reversed(value.items())
                    if not _CALLERS_OWN.fullmatch(key)
                ]
            case list():
                waiting += [
                    (item, (*steps, index))
                    for index, item in reversed(tuple(enumerate(value[:MAX_VALUES])))
                ]


def _kind_of(text: str) -> FoundKind | None:
    if _DATA_URI.match(text):
        return FoundKind.data_uri
    if len(text) <= MAX_URL_CHARS:
        address = _URL.fullmatch(text)
        if address:
            is_usable = address["last"].lower() not in _UNREACHABLE and not _NO_MEDIA.search(text)
            return FoundKind.url if is_usable else None
    return FoundKind.base64 if _starts_like_media(text) else None


def _starts_like_media(text: str) -> bool:
    head = _BASE64_HEAD.match(text)
    if not head:
        return False
    first = base64.b64decode(head[0].replace("-", "+").replace("_", "/"))
    return first.startswith(_MAGIC) or first[4:8] == b"ftyp"


def _path(steps: Steps) -> str:
    """The RFC 9535 path, short names in their short form."""
    parts = ["$"]
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif _SHORT_NAME.fullmatch(step):
            parts.append(f".{step}")
        else:
            parts.append(f"['{''.join(map(_escaped, step))}']")
    return "".join(parts)


def _escaped(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    return f"\\u{ord(char):04x}" if ord(char) < 0x20 else char
