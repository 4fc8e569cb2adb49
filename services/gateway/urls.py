"""URLs inside an input: which strings are URLs, and which of them the schema lets through.

A provider's worker fetches what an input names, so a URL is a way to make somebody else's
machine fetch something. Every string that any reader of URLs would take for one is refused,
unless the schema marks its place with `x-allowed-hosts` and the strict reading of result URLs
accepts it for one of those hosts. Must never look anything up.
"""

import re
from collections.abc import Iterator
from typing import Any

from shared.domain.provider import Json
from shared.kit.fetch import FetchRules, Verdict, judge_url

MARK = "x-allowed-hosts"

# Readers of URLs drop tabs and line ends anywhere, and blanks and controls at the beginning.
_BEFORE = re.compile(r"[\s\x00-\x20\ufeff]*")
_DROPPED = re.compile(r"[\t\r\n]")
_URL = re.compile(
    r"(?:[a-z][a-z0-9+.-]*:)?[/\\]{2}[^\s/\\]|(?:https?|ftps?|wss?|file):\S", re.IGNORECASE
)
_HEAD_CHARACTERS = 512
_IN_PLACE = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE = ("if", "then", "else")


def looks_like_url(text: str) -> bool:
    """Whether some reader would take this text for a URL that can be fetched."""
    start = _BEFORE.match(text)
    head = text[start.end() if start else 0 :][:_HEAD_CHARACTERS]
    return _URL.match(_DROPPED.sub("", head)) is not None


class UrlRules:
    """The marks of one schema. References were resolved once before, so they lead somewhere."""

    def __init__(self, schema: Any) -> None:
        self._root = schema

    def refused(self, job_input: Json) -> Iterator[tuple[str | int, ...]]:
        """The places, below the input, of all URLs that may not stand there."""
        yield from self._refused(job_input, [self._root], ())

    def _refused(
        self, value: Json, schemas: list[Any], place: tuple[str | int, ...]
    ) -> Iterator[tuple[str | int, ...]]:
        if isinstance(value, str):
            if looks_like_url(value) and not self._allows(value, schemas):
                yield place
        elif isinstance(value, dict):
            applied = self._applied(schemas)
            for name, item in value.items():
                yield from self._refused(item, list(_of_member(applied, name)), (*place, name))
        elif isinstance(value, list):
            applied = self._applied(schemas)
            for at, item in enumerate(value):
                yield from self._refused(item, list(_of_item(applied, at)), (*place, at))

    def _allows(self, url: str, schemas: list[Any]) -> bool:
        hosts: list[str] = []
        for schema in self._applied(schemas):
            hosts.extend(item for item in schema.get(MARK, ()) if isinstance(item, str))
        return bool(hosts) and judge_url(url, FetchRules(tuple(hosts))) is Verdict.allowed

    def _applied(self, schemas: list[Any]) -> list[dict[str, Any]]:
        """These schemas and all that they apply to the same value, each once."""
        found: list[dict[str, Any]] = []
        left = list(schemas)
        while left:
            schema = left.pop()
            if not isinstance(schema, dict) or any(schema is known for known in found):
                continue
            found.append(schema)
            if isinstance(schema.get("$ref"), str):
                left.append(self._lookup(schema["$ref"]))
            for keyword in _IN_PLACE:
                left.extend(schema.get(keyword, ()))
            left.extend(schema[keyword] for keyword in _IN_PLACE_ONE if keyword in schema)
        return found

    def _lookup(self, reference: str) -> Any:
        """A pointer into the file; a mark behind any other kind of reference counts as absent."""
        if reference == "#":
            return self._root
        if not reference.startswith("#/"):
            return None
        found = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                return None
        return found


def _of_member(schemas: list[dict[str, Any]], name: str) -> Iterator[Any]:
    for schema in schemas:
        properties = schema.get("properties", {})
        patterns = [
            item
            for pattern, item in schema.get("patternProperties", {}).items()
            if re.search(pattern, name)
        ]
        if name in properties:
            yield properties[name]
        yield from patterns
        if name not in properties and not patterns and "additionalProperties" in schema:
            yield schema["additionalProperties"]


def _of_item(schemas: list[dict[str, Any]], at: int) -> Iterator[Any]:
    for schema in schemas:
        prefix = schema.get("prefixItems", [])
        if at < len(prefix):
            yield prefix[at]
        elif "items" in schema:
            yield schema["items"]
