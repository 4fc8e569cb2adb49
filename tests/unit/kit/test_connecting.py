"""How clients of the bus connect: every security setting reaches the client libraries."""

import ssl
from typing import Any

import pytest
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512
from pydantic import SecretStr

from shared.domain.errors import Unavailable
from shared.kit.bus import connection_options
from shared.kit.bus.session import _as_faststream_security
from shared.kit.settings import KafkaSettings


def _settings(**values: Any) -> KafkaSettings:
    return KafkaSettings(kafka_bootstrap_servers="a:9092, b:9092,", **values)


def _sasl(protocol: str, mechanism: str) -> KafkaSettings:
    return _settings(
        kafka_security_protocol=protocol,
        kafka_sasl_mechanism=mechanism,
        kafka_sasl_username="user",
        kafka_sasl_password=SecretStr("word"),
    )


def test_plain_connections_name_their_servers_only() -> None:
    options = connection_options(_settings())
    assert options["bootstrap_servers"] == ["a:9092", "b:9092"]
    assert options["security_protocol"] == "PLAINTEXT"
    assert not {"ssl_context", "sasl_mechanism"} & set(options)
    security = _as_faststream_security(options)
    assert type(security) is BaseSecurity
    assert not security.use_ssl
    assert "security_protocol" not in options


@pytest.mark.parametrize("servers", [None, "", " , "])
def test_no_server_is_unavailable(servers: str | None) -> None:
    with pytest.raises(Unavailable):
        connection_options(KafkaSettings(kafka_bootstrap_servers=servers))


def test_tls_checks_certificates_and_names() -> None:
    options = connection_options(_settings(kafka_security_protocol="SSL"))
    context = options["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    security = _as_faststream_security(options)
    assert security.use_ssl
    assert security.ssl_context is context


@pytest.mark.parametrize(
    ("mechanism", "kind"),
    [
        ("PLAIN", SASLPlaintext),
        ("SCRAM-SHA-256", SASLScram256),
        ("SCRAM-SHA-512", SASLScram512),
    ],
)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_sasl_takes_mechanism_and_credentials(
    protocol: str, mechanism: str, kind: type[Any]
) -> None:
    options = connection_options(_sasl(protocol, mechanism))
    assert options["sasl_mechanism"] == mechanism
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("user", "word")
    assert ("ssl_context" in options) == (protocol == "SASL_SSL")
    security = _as_faststream_security(options)
    assert type(security) is kind
    assert (security.username, security.password) == ("user", "word")
    assert bool(security.use_ssl) == (protocol == "SASL_SSL")
    assert not any(name.startswith("sasl") for name in options)
