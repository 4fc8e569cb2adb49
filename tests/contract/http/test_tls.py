"""TLS trouble is provably unsent, and a TLS connection can only carry what came inside it."""

from pathlib import Path

import pytest

from shared.domain.provider import Phase
from shared.kit.http import calls
from tests.contract.http.calling import call
from tests.contract.http.hostile import OK, Certificates, Talk, make_certificates, serving


async def _answer(talk: Talk) -> None:
    await talk.read_request()
    await talk.send(OK)


async def test_a_whole_answer_over_tls(certificates: Certificates) -> None:
    async with serving(_answer, certificates.server) as server:
        exchange = await call(server.tls_url, ssl_context=certificates.client)
    assert (exchange.phase, exchange.status, exchange.complete) == (Phase.body, 200, True)
    assert server.requests == 1


async def test_a_certificate_of_nobody_is_provably_unsent(certificates: Certificates) -> None:
    async with serving(_answer, certificates.server) as server:
        exchange = await call(server.tls_url)
    assert (exchange.phase, exchange.error) == (Phase.tls, "SSLCertVerificationError")
    assert server.requests == 0


async def test_a_certificate_for_another_name_is_provably_unsent(tmp_path: Path) -> None:
    other = make_certificates(tmp_path, "elsewhere.example")
    async with serving(_answer, other.server) as server:
        exchange = await call(server.tls_url, ssl_context=other.client)
    assert (exchange.phase, exchange.error) == (Phase.tls, "SSLCertVerificationError")
    assert server.requests == 0


async def test_the_operators_own_authority_is_honoured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = make_certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "localhost.crt"))
    calls._trusted.cache_clear()
    try:
        async with serving(_answer, own.server) as server:
            exchange = await call(server.tls_url)
    finally:
        calls._trusted.cache_clear()
    assert exchange.complete


async def test_a_plain_answer_before_the_handshake_is_not_believed(
    certificates: Certificates,
) -> None:
    async def script(talk: Talk) -> None:
        await talk.send(OK)
        await talk.wait_for_end()

    async with serving(script) as server:
        exchange = await call(server.tls_url, ssl_context=certificates.client)
    assert (exchange.phase, exchange.status) == (Phase.tls, None)
    assert exchange.error == "SSLError"


@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_an_end_in_the_handshake_is_provably_unsent(
    ending: str, certificates: Certificates
) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_some()
        if ending == "reset":
            talk.reset()

    async with serving(script) as server:
        exchange = await call(server.tls_url, ssl_context=certificates.client)
    assert exchange.phase is Phase.tls
    assert exchange.error in ("ConnectionResetError", "ConnectionAbortedError", "SSLEOFError")


async def test_a_handshake_that_never_ends_is_provably_unsent(certificates: Certificates) -> None:
    async def script(talk: Talk) -> None:
        await talk.wait_for_end()

    async with serving(script) as server:
        exchange = await call(server.tls_url, ssl_context=certificates.client, connect_seconds=1.0)
    assert (exchange.phase, exchange.error) == (Phase.tls, "ConnectDeadlinePassed")


@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_a_cut_after_the_request_over_tls(ending: str, certificates: Certificates) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_request()
        if ending == "reset":
            talk.reset()

    async with serving(script, certificates.server) as server:
        exchange = await call(server.tls_url, ssl_context=certificates.client)
    assert exchange.phase is Phase.request_written
    assert exchange.status is None
    assert server.requests == 1


async def test_a_cut_in_the_middle_of_the_request_over_tls(certificates: Certificates) -> None:
    async def script(talk: Talk) -> None:
        await talk.read_some()
        talk.reset()

    async with serving(script, certificates.server) as server:
        exchange = await call(
            server.tls_url, body=b"a" * 32_000_000, ssl_context=certificates.client
        )
    assert exchange.phase is Phase.request_partly_written
    assert exchange.status is None
