"""The `coatcheck` program: its words, and how an error becomes an exit code.

Owns the grammar of the command line. Promises `--json` everywhere and exit codes 0 (done), 1
(refused or failed) and 2 (wrong usage or setting), each failure as one line on standard error.
Must never import a part of the product before the command that needs it is known.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

from deploy.local.control import UnknownPart
from deploy.local.given import SettingWrong
from shared.domain.errors import CoatcheckError
from shared.domain.stages import Stage

PARTS = (
    "postgres", "kafka", "s3", "fake_runpod",
    "gateway", "relay", "submitter", "reconciler", "archiver", "webhook",
)  # fmt: skip
EXIT_DONE, EXIT_REFUSED, EXIT_USAGE = 0, 1, 2
MOST_LISTED = 1000

Command = tuple[str, str]
"""Module of this package and function."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    options = _parser().parse_args(argv)
    try:
        return _run(options)
    except (SettingWrong, UnknownPart) as error:
        print(f"coatcheck: {error}", file=sys.stderr)
        return EXIT_USAGE
    except CoatcheckError as error:
        print(f"coatcheck: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_REFUSED
    except BrokenPipeError:
        # The reader has left; a second complaint at interpreter exit would be noise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_REFUSED


def _run(options: argparse.Namespace) -> int:
    module, function = options.command
    command: Callable[..., Any] = getattr(import_module(f"services.operator.{module}"), function)
    if not asyncio.iscoroutinefunction(command):
        return int(command(options))
    import_module("services.operator.showing").logs_to_stderr()
    sources = import_module("services.operator.sources").Sources()
    return int(asyncio.run(command(options, sources)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coatcheck",
        description="Hand in a GPU or video job, keep the ticket, fetch the result.",
    )
    words = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_stack(words)
    _add_rooms(words)
    _add_keys(words)
    _add_jobs(words)
    _add_dead_letters(words)
    for noun, verb, module, text in (
        (
            "epoch",
            "show",
            "store_commands",
            "the raises of the submission epoch, the guard against paying again after a restore",
        ),
        ("endpoints", "list", "endpoint_commands", "the endpoint registry"),
    ):
        verbs = _noun(words, noun, text)
        _verb(verbs, verb, (module, f"{noun}_{verb}"), text)
    return parser


def _add_stack(words: Any) -> None:
    up = _verb(words, "up", ("stack_commands", "up"), "run the whole local stack")
    demo = _verb(words, "demo", ("stack_commands", "demo"), "the stack, then one real job")
    demo.add_argument("--once", action="store_true", help="stop what was started, then exit")
    demo.add_argument("--endpoint", default="demo-video", help="which endpoint (demo-video)")
    demo.add_argument(
        "--input", type=_json, help="the job's input as JSON (the schema's first example)"
    )
    for parser in (up, demo):
        parser.add_argument(
            "--stop-with-parent",
            action="store_true",
            help="stop as well when the process that started this one ends",
        )
    for word, text in (
        ("stop", "take parts of the running stack down"),
        ("start", "bring parts of the running stack up again"),
    ):
        parser = _verb(words, word, ("stack_commands", word), text)
        parser.add_argument("parts", nargs="+", metavar="PART", help=f"any of {', '.join(PARTS)}")
    _verb(words, "reset", ("stack_commands", "reset"), "remove the local stack's data")


def _add_rooms(words: Any) -> None:
    from_environment = "settings come from the environment, else from the running stack"
    _verb(words, "migrate", ("store_commands", "migrate_command"), "bring the database up to date")
    service = _verb(words, "service", ("rooms", "service"), f"run rooms; {from_environment}")
    service.add_argument("rooms", type=_room_names, metavar="NAME[,NAME…]")
    session = _verb(words, "session", ("session_command", "session"), "a session for development")
    session.add_argument("--owner", required=True, type=_owner)


def _add_keys(words: Any) -> None:
    verbs = _noun(words, "keys", "API keys")
    create = _verb(verbs, "create", ("store_commands", "keys_create"), "make a key, shown once")
    create.add_argument("--owner", required=True, type=_owner)
    create.add_argument(
        "--scope", type=_scopes, default="jobs:read,jobs:write", help="comma list (all)"
    )
    create.add_argument("--expires", type=_life, help="such as 90d; never by default")
    listing = _verb(verbs, "list", ("store_commands", "keys_list"), "all keys, secrets excepted")
    listing.add_argument("--owner", type=_owner)
    revoke = _verb(verbs, "revoke", ("store_commands", "keys_revoke"), "make a key useless")
    revoke.add_argument("id", metavar="ID")


def _add_jobs(words: Any) -> None:
    verbs = _noun(words, "jobs", "jobs of all owners")
    listing = _verb(verbs, "list", ("store_commands", "jobs_list"), "the newest jobs")
    listing.add_argument("--owner", type=_owner)
    listing.add_argument("--stage", choices=[stage.value for stage in Stage])
    listing.add_argument("--limit", type=_limit, default=50)
    for word, text in (("show", "a row and its claims"), ("timeline", "each transition")):
        parser = _verb(verbs, word, ("store_commands", f"jobs_{word}"), text)
        parser.add_argument("id", type=UUID, metavar="ID")


def _add_dead_letters(words: Any) -> None:
    verbs = _noun(words, "dead-letters", "messages that could not be read")
    listing = _verb(verbs, "list", ("dead_letters", "dead_letters_list"), "the newest ones")
    listing.add_argument("--limit", type=_limit, default=50)
    for word, text in (("show", "one, with its bytes"), ("replay", "send one again")):
        parser = _verb(verbs, word, ("dead_letters", f"dead_letters_{word}"), text)
        parser.add_argument("id", type=int, metavar="ID")


def _noun(words: Any, name: str, text: str) -> Any:
    parser = words.add_parser(name, help=text, description=text)
    return parser.add_subparsers(title="commands", required=True, metavar="COMMAND")


def _verb(words: Any, name: str, command: Command, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = words.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=command)
    return parser


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error


def _owner(text: str) -> str:
    if not text.strip() or len(text) > 255 or not text.isprintable():
        raise argparse.ArgumentTypeError("an owner is 1 to 255 printable characters")
    return text


def _limit(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MOST_LISTED:
        raise argparse.ArgumentTypeError(f"a number from 1 to {MOST_LISTED}")
    return int(text)


def _scopes(text: str) -> list[str]:
    scopes: list[str] = import_module("services.operator.store_commands").read_scopes(text)
    return scopes


def _life(text: str) -> timedelta:
    life: timedelta = import_module("services.operator.store_commands").read_life(text)
    return life


def _room_names(text: str) -> list[str]:
    names: list[str] = import_module("services.operator.rooms").read_rooms(text)
    return names


if __name__ == "__main__":
    sys.exit(main())
