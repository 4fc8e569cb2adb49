"""Every line of the corpus of fetch targets, on the rule or the wire it speaks about.

Hostile lines run without a list of hosts unless they bring one, so that the list hides no
hole. Names are resolved by the line's own answers; lines that may be fetched are fetched from
a TLS host on loopback, which must see the expected bytes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shared.kit.fetch import (
    FetchLimits,
    FetchRefused,
    FetchRules,
    Network,
    Verdict,
    judge_url,
    open_result,
    parse_target,
)
from shared.kit.fetch.addresses import AddressKind, judge_address
from tests.unit.fetch.loopback import Authority, LeadingBackend, says, scripted_host

CORPUS = Path(__file__).parents[2] / "corpora" / "fetch-targets.jsonl"
LINES: list[dict[str, Any]] = [
    json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()
]
LIMITS = FetchLimits(bytes_max=1_000, total_seconds=60)
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nclip!"


def lines(*kinds: str, verdicts: Sequence[str]) -> list[Any]:
    return [
        pytest.param(line, id=line["id"])
        for line in LINES
        if line["kind"] in kinds and line["verdict"] in verdicts
    ]


def rules(line: dict[str, Any]) -> FetchRules:
    return FetchRules(hosts=tuple(line.get("allow", ["*"])))


@dataclass
class LineResolver:
    """Answers as the line says; a list of lists is one answer per look-up."""

    answers: Sequence[Any]
    lookups: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append(host)
        if isinstance(self.answers[0], list):
            return list(self.answers[min(len(self.lookups), len(self.answers)) - 1])
        return self.answers


def test_the_whole_corpus_is_covered_by_the_tests_of_this_file() -> None:
    kinds = {(line["kind"], line["verdict"]) for line in LINES}
    assert kinds == {
        ("url", "deny"), ("url", "allow"), ("value", "deny"), ("ip", "deny"), ("ip", "allow"),
        ("dns", "deny"), ("dns", "pin"), ("redirect", "deny"),
    }  # fmt: skip
    assert len(LINES) == 283


@pytest.mark.parametrize("line", lines("url", "value", verdicts=["deny"]))
def test_a_hostile_reference_is_refused_without_a_look_up(line: dict[str, Any]) -> None:
    verdict = judge_url(line["value"], rules(line))
    assert verdict is not Verdict.allowed
    assert verdict.sentence


@pytest.mark.parametrize("line", lines("ip", verdicts=["deny", "allow"]))
def test_an_address_is_public_exactly_where_the_corpus_says(line: dict[str, Any]) -> None:
    kind = judge_address(line["value"])
    assert (kind is AddressKind.public) == (line["verdict"] == "allow")


@pytest.mark.parametrize("line", lines("dns", verdicts=["deny"]))
async def test_a_name_with_one_bad_answer_is_never_dialled(line: dict[str, Any]) -> None:
    backend = LeadingBackend(port=1)
    network = Network(resolver=LineResolver(line["answers"]), inner=backend)
    with pytest.raises(FetchRefused) as refusal:
        async with open_result(line["value"], rules(line), LIMITS, network):
            pass
    assert refusal.value.verdict is Verdict.address_not_public
    assert backend.dialled == []


@pytest.mark.parametrize("line", lines("url", verdicts=["allow"]) + lines("dns", verdicts=["pin"]))
async def test_what_may_be_fetched_arrives_byte_for_byte(
    line: dict[str, Any], tmp_path: Path
) -> None:
    target = parse_target(line["value"], rules(line))
    assert not isinstance(target, Verdict)
    host = line.get("connect_host", target.host)
    authority = Authority(tmp_path)
    resolver = LineResolver(line["answers"])
    async with scripted_host(says(BODY), authority.serve_as(host)) as served:
        backend = LeadingBackend(served.port)
        network = Network(resolver, backend, authority.trust())
        async with open_result(line["value"], rules(line), LIMITS, network) as result:
            body = b"".join([chunk async for chunk in result.chunks])
    first = line["answers"][0]
    assert body == b"clip!"
    assert resolver.lookups == [host]
    assert backend.dialled == [(line.get("connect", first), 443)]
    assert served.header(b"Host") == host.encode()
    if "wire_target" in line:
        assert served.targets == [line["wire_target"].encode()]


@pytest.mark.parametrize("line", lines("redirect", verdicts=["deny"]))
async def test_a_redirect_is_the_end(line: dict[str, Any], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    location = line["location"]
    head = f"HTTP/1.1 {line['status']} Elsewhere\r\nContent-Length: 0\r\n".encode()
    if location is not None:
        head += b"Location: " + location.encode() + b"\r\n"
    async with scripted_host(says(head + b"\r\n"), authority.serve_as("cdn.example.com")) as served:
        network = Network(
            LineResolver(line["answers"]), LeadingBackend(served.port), authority.trust()
        )
        with pytest.raises(FetchRefused) as refusal:
            async with open_result(line["value"], rules(line), LIMITS, network):
                pass
    assert refusal.value.verdict is Verdict.redirect
    assert refusal.value.status == line["status"]
    assert len(served.requests) == 1
