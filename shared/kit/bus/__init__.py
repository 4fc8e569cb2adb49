"""The bus: topics, producers that can be thrown away, loops that consume hints.

Kafka makes things quick and is never asked for a fact: every loop here works on, or waits,
while no broker answers. The client libraries are imported at first use, so that a room that
starts pays for them only once it talks to Kafka.
"""

from shared.kit.bus.consuming import HintLoop, TopicLoop
from shared.kit.bus.messages import ParkedMessage, ParkReason, Undecodable, decode_hint
from shared.kit.bus.producing import Publisher, dispose, make_producer
from shared.kit.bus.topics import Topic, connection_options, ensure_topics

__all__ = [
    "HintLoop",
    "ParkReason",
    "ParkedMessage",
    "Publisher",
    "Topic",
    "TopicLoop",
    "Undecodable",
    "connection_options",
    "decode_hint",
    "dispose",
    "ensure_topics",
    "make_producer",
]
