"""RFC 9535 paths into a provider's output, without the two functions that can hang.

Owns compiling and evaluating. `match` and `search` run a regular expression over text that a
stranger wrote, which no deadline of ours can end; they are refused when a path is compiled.
It promises that evaluating never raises: what cannot be read has no nodes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathQuery

from shared.domain.errors import Refused

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENVIRONMENT = JSONPathEnvironment()
for _name in ("match", "search"):
    _ENVIRONMENT.function_extensions.pop(_name)


@dataclass(frozen=True)
class Node:
    """One value that a path led to, and the path that leads to it alone."""

    where: str
    value: Any


@lru_cache(maxsize=512)
def compile_path(path: str) -> JSONPathQuery:
    """The compiled path. Raises Refused, saying what is wrong and where."""
    try:
        return _ENVIRONMENT.compile(path)
    except JSONPathError as error:
        raise Refused(f"{path!r} is not a path that can be used: {error}") from error


def find_nodes(path: str, value: Any) -> Iterator[Node]:
    """All nodes under `value` that `path` leads to, in order."""
    query = compile_path(path)
    try:
        for node in query.finditer(value):
            yield Node(_where(node.location), node.value)
    except (JSONPathError, RecursionError):
        return


def _where(location: tuple[int | str, ...]) -> str:
    steps = ["$"]
    for step in location:
        if isinstance(step, int):
            steps.append(f"[{step}]")
        elif _PLAIN_NAME.fullmatch(step):
            steps.append(f".{step}")
        else:
            quoted = step.replace("\\", "\\\\").replace("'", "\\'")
            steps.append(f"['{quoted}']")
    return "".join(steps)
