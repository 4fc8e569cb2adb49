"""The relay room: carries outbox rows to Kafka and shows what the tables say."""
