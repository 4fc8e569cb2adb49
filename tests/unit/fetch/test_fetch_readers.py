"""Other readers of URLs must see the host that we see, in every URL that we allow."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from shared.kit.fetch import FetchRules, Verdict, judge_url, parse_target
from shared.kit.fetch.parser import Target

CORPUS = Path(__file__).parents[2] / "corpora" / "fetch-targets.jsonl"
URLS: list[str] = [
    line["value"]
    for line in map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines())
    if line["kind"] in ("url", "dns") and len(line["value"]) < 300
]
GOOD_URLS = [url for url in URLS if judge_url(url, FetchRules(hosts=("*",))) is Verdict.allowed]
PIECES = [
    *"/?#@:%[].-_\\ \t\r\n\0;,&=+~!$'()*|^`{}<>\"", "//", "..", "%2f", "%00", "xn--", "443",
    "127.0.0.1", "localhost", "a", "Z", "9", "\u3002", "\uff0e", "\uff20", "\u00df", "\u0435",
    "\u200d", "\u212a", "cdn.example.com", ".example.com",
]  # fmt: skip


def damaged_urls(count: int) -> Iterator[str]:
    """Lines of the corpus with a few characters put in, taken out or exchanged; always the same."""
    dice = random.Random(20261130)
    for _ in range(count):
        url = dice.choice(dice.choice((URLS, GOOD_URLS)))
        for _ in range(dice.randint(1, 3)):
            at = dice.randint(0, min(len(url), 60))
            url = url[:at] + dice.choice(PIECES) + url[at + dice.randint(0, 2) :]
        yield url


def test_what_we_allow_others_read_as_the_same_host() -> None:
    allowed = 0
    for url in damaged_urls(20_000):
        target = parse_target(url, FetchRules(hosts=("*",)))
        if not isinstance(target, Verdict):
            allowed += 1
            assert_others_agree(url, target)
    assert allowed > 1_000  # refusals alone would prove nothing


def assert_others_agree(url: str, target: Target) -> None:
    split = urlsplit(url)
    assert split.scheme == "https"
    assert split.hostname is not None
    assert split.port in (None, 443)
    assert split.username is None
    if split.hostname.isascii():
        assert split.hostname == target.host
    try:
        read = httpx.URL(url)
        host = read.raw_host.decode("ascii")
    except (httpx.InvalidURL, UnicodeError):
        return  # a reader that refuses what we allow reaches no other host
    assert host == target.host
    assert read.port in (None, 443)
