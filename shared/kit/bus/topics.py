"""Topics: their names, how they are made, and how every client connects.

Topics are made by whoever finds one missing, never by the broker on its own. Promises that
two makers at once are no error and that an absent broker is `Unavailable`.
"""

import asyncio
from enum import StrEnum
from typing import Any

from shared.domain.errors import Unavailable
from shared.domain.hints import HintKind
from shared.kit.logs import get_logger
from shared.kit.settings import KafkaSettings

ADMIN_SECONDS = 15.0
REQUEST_TIMEOUT_MS = 15_000
TOPIC_ALREADY_EXISTS = 36

_log = get_logger()

_MONTH_MS = str(30 * 24 * 3600 * 1000)


class Topic(StrEnum):
    """The six topics of the contract; the key of every record is the job's id."""

    submit = HintKind.submit.topic
    check = HintKind.check.topic
    capture = HintKind.capture.topic
    transitions = HintKind.transitions.topic
    callbacks = "coatcheck.callbacks.v1"
    dead_letters = "coatcheck.dead-letters.v1"


# A foreign producer's codec must not stop our consumers: the broker stores records plain.
_PLAIN = {"compression.type": "uncompressed"}
# A restored database is compared with these, so they outlive the age of a usual backup.
_KEPT = {"retention.ms": _MONTH_MS}

TOPIC_CONFIGS: dict[Topic, dict[str, str]] = {
    Topic.submit: _PLAIN,
    Topic.check: _PLAIN,
    Topic.capture: _PLAIN,
    Topic.transitions: _PLAIN | _KEPT,
    Topic.callbacks: _PLAIN | _KEPT,
    Topic.dead_letters: _PLAIN | _KEPT,
}


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """Arguments that every aiokafka client takes. Raises Unavailable where no broker is named."""
    servers = (settings.kafka_bootstrap_servers or "").split(",")
    options: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in servers if server.strip()],
        "security_protocol": settings.kafka_security_protocol,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "retry_backoff_ms": 250,
        "metadata_max_age_ms": 60_000,
    }
    if not options["bootstrap_servers"]:
        raise Unavailable("no Kafka broker is configured")
    if "SSL" in settings.kafka_security_protocol:
        options["ssl_context"] = _ssl_context(settings)
    if settings.kafka_security_protocol.startswith("SASL"):
        password = settings.kafka_sasl_password
        options["sasl_mechanism"] = settings.kafka_sasl_mechanism
        options["sasl_plain_username"] = settings.kafka_sasl_username
        options["sasl_plain_password"] = password.get_secret_value() if password else None
    return options


async def ensure_topics(settings: KafkaSettings) -> frozenset[Topic]:
    """Makes the topics that are missing, and returns those it made. Raises Unavailable."""
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.errors import KafkaError

    admin = AIOKafkaAdminClient(**connection_options(settings))
    try:
        async with asyncio.timeout(ADMIN_SECONDS):
            await admin.start()
            present = set(await admin.list_topics())
            missing = sorted(topic for topic in Topic if topic not in present)
            made: frozenset[Topic] = frozenset()
            if missing:
                answer = await admin.create_topics(
                    [
                        NewTopic(
                            topic.value,
                            settings.kafka_topic_partitions,
                            settings.kafka_replication_factor,
                            topic_configs=TOPIC_CONFIGS[topic],
                        )
                        for topic in missing
                    ]
                )
                made = _made(answer.topic_errors)
    except (KafkaError, OSError) as error:  # a timeout is an OSError
        raise Unavailable("Kafka does not answer") from error
    finally:
        # The admin client's own `close` believes that it was closed before and does nothing.
        await admin._client.close()
    for topic in sorted(made):
        _log.info("topic_created", topic=topic.value)
    return made


def _made(topic_errors: Any) -> frozenset[Topic]:
    """The topics made now; another maker may have been quicker with some of them."""
    for name, code, *_ in topic_errors:
        if code not in (0, TOPIC_ALREADY_EXISTS):
            raise Unavailable(f"Kafka refuses to make the topic {name} (error code {code})")
    return frozenset(Topic(name) for name, code, *_ in topic_errors if code == 0)


def _ssl_context(settings: KafkaSettings) -> Any:
    from aiokafka.helpers import create_ssl_context

    return create_ssl_context(
        cafile=settings.kafka_ssl_cafile,
        certfile=settings.kafka_ssl_certfile,
        keyfile=settings.kafka_ssl_keyfile,
    )
