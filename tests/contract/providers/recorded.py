"""The corpus of recorded exchanges: real bodies, each with what it must lead to.

Owns reading `tests/corpora/provider-bodies.jsonl`. A line's `expect` was labelled by hand; no
test works out an expectation of its own. Must never be edited to make a test pass.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[2] / "corpora" / "provider-bodies.jsonl"


@dataclass(frozen=True)
class Recorded:
    """One exchange and its label."""

    id: str
    provider: str
    call: str
    http_status: int | None
    body: bytes
    expect: dict[str, Any]

    def allowed(self, field: str) -> list[Any]:
        """Every answer that the label takes as right for a field."""
        return [*self.expect.get(f"{field}_any", []), self.expect.get(field)]


def recorded(providers: set[str], call: str) -> Iterator[Recorded]:
    """The lines of these providers for one kind of call."""
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["provider"] in providers and entry["call"] == call:
            raw = entry["body"]
            body = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
            yield Recorded(
                entry["id"],
                entry["provider"],
                call,
                entry["http_status"],
                body.encode(),
                entry["expect"],
            )
