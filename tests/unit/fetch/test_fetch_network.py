"""The way to a host: names, peers, certificates, and connections that break."""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

import httpcore
import pytest

from shared.kit.fetch import (
    FetchLimits,
    FetchRefused,
    FetchRules,
    Network,
    Verdict,
    open_result,
    private_targets,
)
from shared.kit.fetch.backend import resolve, tls_context
from tests.unit.fetch.loopback import Authority, LeadingBackend, says, scripted_host

ONE_BYTE = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
LIMITS = FetchLimits(bytes_max=1_000_000, total_seconds=60)
PUBLIC = "https://cdn.example.com/v.mp4?sig=a%2Fb"
ANY = FetchRules(hosts=("*",))


async def public_address(host: str, port: int) -> Sequence[str]:
    return ["8.8.8.8"]


async def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    script = says(ONE_BYTE)
    async with scripted_host(script, authority.serve_as("other.example.com")) as host:
        network = Network(public_address, LeadingBackend(host.port), authority.trust())
        with pytest.raises(FetchRefused) as refused:
            async with open_result(PUBLIC, ANY, LIMITS, network):
                pass
    assert refused.value.verdict is Verdict.tls_failed
    assert host.requests == []


async def test_an_unknown_authority_is_refused_by_the_default_context(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with scripted_host(says(b""), authority.serve_as("cdn.example.com")) as host:
        network = Network(public_address, LeadingBackend(host.port))
        with pytest.raises(FetchRefused) as refused:
            async with open_result(PUBLIC, ANY, LIMITS, network):
                pass
    assert refused.value.verdict is Verdict.tls_failed
    assert tls_context().verify_mode is ssl.CERT_REQUIRED


async def test_a_handshake_that_never_ends_is_bounded() -> None:
    async with scripted_host(says(stays_open=True)) as host:
        network = Network(public_address, LeadingBackend(host.port))
        limits = FetchLimits(bytes_max=1, total_seconds=60, connect_seconds=0.2)
        with pytest.raises(FetchRefused) as refused:
            async with open_result(PUBLIC, ANY, limits, network):
                pass
    assert refused.value.verdict is Verdict.connect_failed


async def test_a_connection_to_another_peer_is_refused(tmp_path: Path) -> None:
    async with scripted_host(says(b"")) as host:
        for peer in ("10.0.0.1", "127.0.0.1"):
            network = Network(public_address, LeadingBackend(host.port, peer=peer))
            with pytest.raises(FetchRefused) as refused:
                async with open_result(PUBLIC, ANY, LIMITS, network):
                    pass
            assert refused.value.verdict is Verdict.peer_mismatch


async def test_an_address_of_this_very_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def own_address(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    # The machine's own public address is stood in for by one that the table is told to pass.
    monkeypatch.setattr("shared.kit.fetch.addresses._V4_TABLE", ())
    async with scripted_host(says(b"")) as host:
        network = Network(own_address, LeadingBackend(host.port))
        with pytest.raises(FetchRefused) as refused:
            async with open_result(PUBLIC, ANY, LIMITS, network):
                pass
    assert refused.value.verdict is Verdict.peer_mismatch


@pytest.mark.parametrize("error", [OSError("no such name"), UnicodeError("label"), None])
async def test_a_name_without_answers_is_unresolved(error: Exception | None) -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        if error is not None:
            raise error
        return []

    with pytest.raises(FetchRefused) as refused:
        async with open_result(PUBLIC, ANY, LIMITS, Network(resolver)):
            pass
    assert refused.value.verdict is Verdict.name_unresolved


async def test_a_closed_port_is_a_failed_connection() -> None:
    rules = FetchRules(hosts=(), private_targets=private_targets(["127.0.0.1:9"]))
    with pytest.raises(FetchRefused) as refused:
        async with open_result("http://127.0.0.1:9/", rules, LIMITS):
            pass
    assert refused.value.verdict is Verdict.connect_failed


async def test_a_private_name_is_tried_at_each_of_its_addresses() -> None:
    async def both(host: str, port: int) -> Sequence[str]:
        return ["::1", "127.0.0.1"]

    async with scripted_host(says(ONE_BYTE)) as host:
        rules = FetchRules(hosts=(), private_targets=private_targets([f"media:{host.port}"]))
        async with open_result(f"http://media:{host.port}/", rules, LIMITS, Network(both)) as got:
            assert [chunk async for chunk in got.chunks] == [b"x"]


async def test_the_system_resolves_names_to_addresses() -> None:
    assert "127.0.0.1" in await resolve("127.0.0.1", 443)
    with pytest.raises(OSError, match=r".*"):
        await resolve("no-such-name.invalid", 443)


class _Broken(httpcore.AsyncNetworkStream):
    """A stream that breaks at the first use of one kind."""

    def __init__(self, breaks_at: str) -> None:
        self._breaks_at = breaks_at

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._breaks_at == "write":
            raise httpcore.WriteError
        if self._breaks_at == "stalled write":
            await asyncio.Event().wait()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        raise httpcore.ReadError

    async def aclose(self) -> None:
        return


async def test_the_deadline_of_the_whole_holds_while_connecting_too() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    limits = FetchLimits(bytes_max=1, total_seconds=0.1)
    with pytest.raises(FetchRefused) as refused:
        async with open_result(PUBLIC, ANY, limits, Network(never)):
            pass
    assert refused.value.verdict is Verdict.deadline


@pytest.mark.parametrize(
    ("breaks_at", "verdict"),
    [
        ("write", Verdict.connection_lost),
        ("read", Verdict.connection_lost),
        ("stalled write", Verdict.too_slow),
    ],
)
async def test_a_connection_that_breaks_is_lost(breaks_at: str, verdict: Verdict) -> None:
    class Backend(httpcore.AsyncNetworkBackend):
        async def connect_tcp(self, *_: object, **__: object) -> httpcore.AsyncNetworkStream:
            return _Broken(breaks_at)

    rules = FetchRules(hosts=(), private_targets=private_targets(["media:80"]))
    limits = FetchLimits(bytes_max=1, total_seconds=60, head_seconds=0.2)
    with pytest.raises(FetchRefused) as refused:
        async with open_result("http://media/", rules, limits, Network(public_address, Backend())):
            pass
    assert refused.value.verdict is verdict


async def test_proxy_variables_have_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    async with scripted_host(says(ONE_BYTE)) as host:
        place = f"127.0.0.1:{host.port}"
        rules = FetchRules(hosts=(), private_targets=private_targets([place]))
        async with open_result(f"http://{place}/", rules, LIMITS) as got:
            assert [chunk async for chunk in got.chunks] == [b"x"]
