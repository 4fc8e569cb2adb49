"""What the relay is told: where PostgreSQL is and, if there is one, where the broker is."""

from pathlib import Path

from shared.kit.settings import DatabaseSettings, KafkaSettings, RuntimeSettings


class RelaySettings(RuntimeSettings, DatabaseSettings, KafkaSettings):
    """Without KAFKA_BOOTSTRAP_SERVERS the relay throws hints away instead of sending them.

    The registry only tells which endpoints have gauges of their own.
    """

    endpoints_file: Path | None = None
