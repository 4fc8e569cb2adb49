"""The fake's own settings, from the command line, else from FAKE_RUNPOD_* in the environment.

Owns: names, defaults and checks of every option.
Promises: a wrong or missing value names its option and its variable and ends with status 2.
Never: prints the key.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "FAKE_RUNPOD_"


@dataclass(frozen=True)
class FakeSettings:
    """Everything the fake is told at start."""

    host: str
    port: int
    journal: Path
    media_dir: Path
    api_key: str = field(repr=False)
    public_url: str | None = None
    time_scale: float = 1.0
    queue_seconds: float = 0.3
    run_seconds: float = 1.0
    price_usd: str = "0.05"
    scripts_in_input: bool = True
    encoders: int = 2
    webhook_timeout_seconds: float = 10.0
    seed: int | None = None


def read_settings(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> FakeSettings:
    """Settings from `argv`, then `environ`, then the defaults. Exits with 2 on a bad value."""
    parser = _parser(environ)
    options = parser.parse_args(argv)
    for name in ("port", "journal"):
        if getattr(options, name) is None:
            parser.error(f"--{name} (or {PREFIX}{name.upper()}) is required")
    try:
        key = (
            options.api_key_file.read_text(encoding="utf-8")
            if options.api_key_file is not None
            else environ.get(f"{PREFIX}API_KEY", "")
        ).strip()
    except OSError as error:
        parser.error(f"--api-key-file ({PREFIX}API_KEY_FILE): {error.strerror}")
    if not key:
        parser.error(f"--api-key-file ({PREFIX}API_KEY_FILE or {PREFIX}API_KEY) gives no key")
    return FakeSettings(
        host=options.host,
        port=options.port,
        journal=options.journal,
        media_dir=options.media_dir or options.journal.parent / "media",
        api_key=key,
        public_url=options.public_url.rstrip("/") if options.public_url else None,
        time_scale=options.time_scale,
        queue_seconds=options.queue_seconds,
        run_seconds=options.run_seconds,
        price_usd=options.price_usd,
        scripts_in_input=options.scripts_in_input,
        encoders=options.encoders,
        webhook_timeout_seconds=options.webhook_timeout_seconds,
        seed=options.seed,
    )


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fakes.runpod",
        description=f"A fake Runpod. Every option also as {PREFIX}<OPTION> in the environment.",
    )

    def option(name: str, read: object, ordinary: str | None, help_text: str) -> None:
        variable = PREFIX + name.upper().replace("-", "_")
        given = environ.get(variable, ordinary)
        parser.add_argument(
            f"--{name}",
            type=read,  # type: ignore[arg-type]  # argparse wants a callable, each one is
            default=given,
            help=f"{help_text} [{variable}; {given}]",
        )

    option("host", str, "127.0.0.1", "address to listen on")
    option("port", _port, None, "port to listen on; 0 takes a free one")
    option("journal", Path, None, "file of the append-only journal")
    option("api-key-file", Path, None, "file with the one key that is accepted")
    option("media-dir", Path, None, "folder of the result files (beside the journal)")
    option("public-url", str, None, "start of result links, where it is not host and port")
    option("time-scale", _positive, "1", "divides retention and the provider's own waits")
    option("queue-seconds", _not_negative, "0.3", "how long an ordinary job waits")
    option("run-seconds", _not_negative, "1.0", "how long an ordinary job runs")
    option("price-usd", _price, "0.05", "what an ordinary job costs")
    option("encoders", _count, "2", "results made at a time")
    option("webhook-timeout-seconds", _positive, "10", "how long a webhook answer may take")
    option("seed", int, None, "makes scripted probabilities repeatable")
    scripted = environ.get(f"{PREFIX}SCRIPTS_IN_INPUT", "1").lower() not in ("0", "false", "no")
    parser.add_argument(
        "--scripts-in-input",
        action=argparse.BooleanOptionalAction,
        default=scripted,
        help=f"honour a script under input.fake [{PREFIX}SCRIPTS_IN_INPUT; {scripted}]",
    )
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port")
    return port


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _not_negative(text: str) -> float:
    return 0.0 if float(text) == 0 else _positive(text)


def _count(text: str) -> int:
    return int(_positive(text))


def _price(text: str) -> str:
    _not_negative(text)
    return text
