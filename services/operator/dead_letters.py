"""Commands on parked messages: list, show, and send one again.

Owns the replay of a message that could not be read as a hint. Promises that a replay goes to
the topic it came from, and only if it can be read by now: sending it again unread would park
it once more. Must never print a message's bytes unless one is asked for by number.
"""

import argparse
from typing import Any

from services.operator.showing import plain, show_fields, show_json, show_table
from services.operator.sources import Sources
from services.operator.store_commands import on_database
from shared.domain.errors import Refused
from shared.kit.bus import Publisher, Topic, Undecodable, decode_hint
from shared.kit.settings import KafkaSettings, read_settings
from shared.store.dead_letters import (
    DeadLetter,
    dead_letter_found,
    dead_letter_replayed,
    dead_letters_listed,
)
from shared.store.pool import Database

HINT_TOPICS = (Topic.submit, Topic.check, Topic.capture)
_LISTED = ("id", "topic", "partition", "offset", "error", "received_at", "replayed_at")


async def dead_letters_list(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck dead-letters list`."""
    letters = await on_database(
        sources, lambda database: dead_letters_listed(database, limit=options.limit)
    )
    rows = [{name: row[name] for name in _LISTED} for row in plain(letters)]
    if options.json:
        show_json({"dead_letters": rows})
    else:
        show_table(rows, _LISTED)
    return 0


async def dead_letters_show(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck dead-letters show ID`: with its bytes, as far as they are kept."""
    letter = await _found(options, sources)
    if options.json:
        show_json(letter)
    else:
        show_fields(plain(letter))
    return 0


async def dead_letters_replay(options: argparse.Namespace, sources: Sources) -> int:
    """`coatcheck dead-letters replay ID`."""
    letter = await _found(options, sources)
    if letter.topic not in set(Topic):
        raise Refused(f"{letter.topic} is not a topic of ours")
    sources.required("KAFKA_BOOTSTRAP_SERVERS")
    sources.lend_to_environment()
    await _sent_again(letter)
    await on_database(sources, lambda database: dead_letter_replayed(database, letter.id))
    if options.json:
        show_json({"id": letter.id, "topic": letter.topic, "replayed": True})
    else:
        print(f"dead letter {letter.id} was sent to {letter.topic} again")
    return 0


async def _found(options: argparse.Namespace, sources: Sources) -> DeadLetter:
    async def work(database: Database) -> Any:
        return await dead_letter_found(database, options.id)

    letter: DeadLetter | None = await on_database(sources, work)
    if letter is None:
        raise Refused(f"there is no dead letter {options.id}")
    return letter


async def _sent_again(letter: DeadLetter) -> None:
    topic = Topic(letter.topic)
    if topic in HINT_TOPICS:
        try:
            decode_hint(letter.value)
        except Undecodable as error:
            raise Refused(f"it still cannot be read: {error}") from error
    publisher = Publisher(read_settings(KafkaSettings), client_id="coatcheck-operator")
    try:
        await publisher.send(topic, letter.value or b"", key=letter.key)
    finally:
        await publisher.close()
