"""The words of the rules, the host list, and what a private entry lets through."""

from collections.abc import Sequence

import pytest

from shared.kit.fetch import (
    Blame,
    FetchRefused,
    FetchRules,
    Verdict,
    is_counted_as_blocked,
    judge_url,
    parse_target,
    private_targets,
)
from shared.kit.fetch.addresses import AddressKind, judge_address

ANY = FetchRules(hosts=("*",))
PRIVATE = FetchRules(
    hosts=(), private_targets=private_targets(["127.0.0.1:9000", "media:80", "[::1]:9000"])
)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_sentence_that_names_nothing_and_a_blame(verdict: Verdict) -> None:
    assert verdict.sentence.endswith(".")
    assert "://" not in verdict.sentence
    assert (verdict.blame is Blame.nobody) == (verdict is Verdict.allowed)
    assert str(FetchRefused(verdict)) == verdict.sentence
    assert FetchRefused(verdict).blame is verdict.blame


def test_only_what_no_try_can_mend_is_counted_as_blocked() -> None:
    assert is_counted_as_blocked(Verdict.ip_literal)
    assert is_counted_as_blocked(Verdict.host_not_listed)
    assert not is_counted_as_blocked(Verdict.allowed)
    assert not is_counted_as_blocked(Verdict.gone)
    assert not is_counted_as_blocked(Verdict.connection_lost)


def test_our_own_mistakes_are_never_blamed_on_the_target() -> None:
    ours = (Verdict.host_not_listed, Verdict.address_not_public, Verdict.too_large)
    assert {verdict.blame for verdict in ours} == {Blame.configuration}


@pytest.mark.parametrize(
    ("url", "verdict"),
    [
        ("https://cdn.example.com/v.mp4", Verdict.allowed),
        ("https://cdn.example.com:443/v.mp4", Verdict.allowed),
        ("https://a_b.s3.example.com/v.mp4", Verdict.allowed),
        ("https://r3---sn-x.example.com/v", Verdict.allowed),
        ("http://cdn.example.com/v.mp4", Verdict.scheme),
        ("ftp://cdn.example.com/v.mp4", Verdict.scheme),
        ("cdn.example.com/v.mp4", Verdict.scheme),
        ("", Verdict.scheme),
        ("https://cdn.example.com/v.mp4#t=1", Verdict.fragment),
        ("https://cdn.example.com/v#", Verdict.fragment),
        ("https://u:p@cdn.example.com/", Verdict.userinfo),
        ("https://cdn.example.com/%zz", Verdict.bad_escape),
        ("https://cdn.example.com/?a=%7f", Verdict.encoded_control),
        ("https://cdn.example.com/\x85", Verdict.control_char),
        ("https://cdn.example.com/\u00a0x", Verdict.whitespace),
        ("https://cdn.example.com/\u2028x", Verdict.whitespace),
        ("https://cdn.example.com/\ufeffx", Verdict.bad_unicode),
        ("https://cdn.example.com/\U000e0001", Verdict.bad_unicode),
        ("https://cdn.example.com:443:443/", Verdict.port_syntax),
        ("https://cdn.example.com:00443/", Verdict.allowed),
        ("https://cdn.example.com:\u0664\u0664\u0663/", Verdict.port_syntax),
        ("https://[::1]x/", Verdict.host_bracket),
        ("https://[fe80::1%25eth0]/", Verdict.host_bracket),
        ("https://x]/", Verdict.host_bracket),
        ("https://[2606:4700:4700::1111]/", Verdict.ip_literal),
        ("https://\u00fcber.example.com/", Verdict.allowed),
        ("https://\u00dcber.example.com/", Verdict.idna),
        ("https://" + "a." * 127 + "com/", Verdict.host_syntax),
        ("https://ipv4only.arpa/", Verdict.local_name),
        ("https://db.corp/", Verdict.local_name),
    ],
)
def test_the_rules_name_what_they_refuse(url: str, verdict: Verdict) -> None:
    assert judge_url(url, ANY) is verdict


@pytest.mark.parametrize(
    ("pattern", "host", "is_listed"),
    [
        ("cdn.example.com", "cdn.example.com", True),
        ("CDN.example.com", "cdn.Example.com", True),
        ("cdn.example.com", "a.cdn.example.com", False),
        ("*.example.com", "cdn.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "badexample.com", False),
        ("*", "anything.example.com", True),
    ],
)
def test_a_host_is_listed_by_name_or_by_suffix(pattern: str, host: str, is_listed: bool) -> None:
    verdict = judge_url(f"https://{host}/v", FetchRules(hosts=(pattern,)))
    assert verdict is (Verdict.allowed if is_listed else Verdict.host_not_listed)


def test_no_list_means_no_host() -> None:
    assert judge_url("https://cdn.example.com/", FetchRules(hosts=())) is Verdict.host_not_listed


@pytest.mark.parametrize(
    ("url", "host", "port", "host_header"),
    [
        ("http://127.0.0.1:9000/r?x=1", "127.0.0.1", 9000, "127.0.0.1:9000"),
        ("https://127.0.0.1:9000/r?x=1", "127.0.0.1", 9000, "127.0.0.1:9000"),
        ("http://MEDIA/r?x=1", "media", 80, "media"),
        ("https://media:80/r?x=1", "media", 80, "media:80"),
        ("http://[0:0::1]:9000/r?x=1", "0:0::1", 9000, "[0:0::1]:9000"),
    ],
)
def test_a_private_entry_lets_exactly_its_host_and_port_through(
    url: str, host: str, port: int, host_header: str
) -> None:
    target = parse_target(url, PRIVATE)
    assert not isinstance(target, Verdict)
    assert (target.host, target.port, target.host_header) == (host, port, host_header)
    assert target.is_private
    assert target.wire_target == b"/r?x=1"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9001/",
        "http://127.0.0.2:9000/",
        "http://127.1:9000/",
        "http://127.0.0.1/",
        "https://media/",
        "http://x.media/",
        "http://[::2]:9000/",
        "ftp://127.0.0.1:9000/",
        "http://u@127.0.0.1:9000/",
        "http://127.0.0.1:9000/a b",
        "http://127.0.0.1:9000/#x",
        "http://127.0.0.1:9000/%00",
    ],
)
def test_a_private_entry_lets_nothing_else_through(url: str) -> None:
    assert judge_url(url, PRIVATE) is not Verdict.allowed


@pytest.mark.parametrize("entry", ["", "media", "media:", ":80", "media:99999", "u@m:80", "мир:80"])
def test_a_private_entry_has_a_host_and_a_port(entry: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        private_targets([entry])


def test_a_target_never_shows_its_path_or_query() -> None:
    target = parse_target("https://cdn.example.com/secret?sig=secret", ANY)
    assert "secret" not in repr(target)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", AddressKind.public),
        ("64:ff9b::808:808", AddressKind.public),
        ("64:ff9b::a00:1", AddressKind.private),
        ("64:ff9b::7f00:1", AddressKind.loopback),
        ("64:ff9b:1::808:808", AddressKind.nat64),
        ("2002:808:808::1", AddressKind.tunnel_6to4),
        ("::ffff:8.8.8.8", AddressKind.v4_mapped),
    ],
)
def test_a_nat64_address_is_judged_by_what_it_carries_where_that_is_on(
    address: str, kind: AddressKind
) -> None:
    assert judge_address(address, allow_nat64=True) is kind


@pytest.mark.parametrize("text", ["", "8.8.8", "8.8.8.8.", "fe80::1%2", "2606::1%lo", "::g", "x"])
def test_what_cannot_be_read_is_not_public(text: str) -> None:
    assert judge_address(text) is AddressKind.unreadable


def test_the_tables_edges_are_where_they_should_be() -> None:
    def kinds(addresses: Sequence[str]) -> list[bool]:
        return [judge_address(address) is AddressKind.public for address in addresses]

    assert kinds(["100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"]) == [
        True, False, False, True,
    ]  # fmt: skip
    assert kinds(["168.63.129.15", "168.63.129.16", "168.63.129.17"]) == [True, False, True]
    assert kinds(["1fff::1", "2001:1ff::1", "2001:200::", "3fff:fff::1", "3fff:1000::1"]) == [
        False, False, True, False, True,
    ]  # fmt: skip
