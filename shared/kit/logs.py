"""Logs: one JSON object a line on stdout, redacted by an allow-list of keys.

Text is written only under a key of `ALLOWED_KEYS`; numbers, booleans and null under any key.
What is dropped is named under `dropped`, so a missing key is seen in the first test run. A
second wall scrubs what looks like a credential out of the text that is let through. Tracebacks
hold places and class names; a message only of errors that are our own. Other libraries speak
through here too, most of them without their message. Must never write keys, tokens, cookies,
signed URLs, webhook paths, inputs, outputs or raw provider errors.
"""

import contextlib
import logging
import re
import sys
import time
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO, cast
from uuid import UUID

import structlog

from shared.domain.errors import CoatcheckError

ALLOWED_KEYS = frozenset(
    {
        # what happened, where
        *("event", "level", "room", "loop", "logger", "place", "version", "host", "variable"),
        # a job's life: what every transition tells
        *("job_id", "owner_id", "endpoint", "provider", "model", "provider_job_id", "from", "to"),
        *("actor", "request_id", "trace_id", "stage", "status", "code", "reason", "artifact"),
        # hints, calls, work
        *("topic", "group", "state", "outcome", "result", "verdict", "phase", "method", "route"),
        *("operation", "check", "part", "kind", "media_type", "signal", "retention", "fence"),
        # errors: class names, our own sentences, places
        *("error", "message", "errors", "trace", "sqlstate", "dropped", "settings", "rooms"),
    }
)
"""Keys whose text is written. A new key is added here on purpose, in review."""

SPEAKING_LOGGERS = ("aiokafka", "faststream", "uvicorn.error")
"""Libraries whose messages are written, scrubbed; of all others only logger and place."""

_MAX_TEXT = 500
_MAX_DEPTH = 4
_QUIET_SECONDS = 60.0
_CREDENTIAL_NAMES = "x-amz-[a-z-]+|signature|password|secret|token|api_?key"

_SCRUBS = (
    (re.compile(r"(?<=://)[^/@\s]+@"), "…@"),
    (re.compile(r"(://[^\s?\"']*)\?[^\s\"']*"), r"\1?…"),
    (re.compile(r"(/webhooks/[A-Za-z0-9_-]+/)[^\s\"'?]+"), r"\1…"),
    (re.compile(r"\bcck_[A-Za-z0-9_-]+"), "cck_…"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]+"), "…"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+"), r"\1 …"),
    (re.compile(rf"(?i)\b({_CREDENTIAL_NAMES})=[^\s&\"']+"), r"\1=…"),
)

_transition_log = structlog.get_logger()


def configure_logs(level: str = "info") -> None:
    """Sends every log line of the process, ours and the libraries', through the one renderer."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            _format_error,
            _redact,
            structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, _Stdout())),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_LibraryHandler()]
    root.setLevel(logging.WARNING)
    # These write full URLs, signatures included, at INFO; nobody may turn them on by accident.
    for name in ("httpx", "httpcore", "botocore", "boto3", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.ERROR)


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """A logger: `log.info("event_name", key=value)`; room, loop and ids come from the context."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


def log_transition(
    *,
    event: str,
    job_id: UUID | str,
    from_stage: str | None,
    to_stage: str,
    actor: str,
    owner_id: str | None = None,
    endpoint: str | None = None,
    provider: str | None = None,
    model: str | None = None,
    provider_job_id: str | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
) -> None:
    """The one line of a transition. Ids of request and trace come from the context if absent."""
    context = structlog.contextvars.get_contextvars()
    _transition_log.info(
        event,
        job_id=job_id,
        owner_id=owner_id,
        endpoint=endpoint,
        provider=provider,
        model=model,
        provider_job_id=provider_job_id,
        **{"from": from_stage, "to": to_stage},
        actor=actor,
        request_id=request_id or context.get("request_id"),
        trace_id=trace_id or context.get("trace_id"),
    )


def scrub(text: str) -> str:
    """The text without what looks like a credential, cut to a bounded length."""
    for pattern, replacement in _SCRUBS:
        text = pattern.sub(replacement, text)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def error_fields(error: BaseException) -> dict[str, Any]:
    """What may be said of an error: class, our own sentence, SQL state, places; its causes."""
    fields: dict[str, Any] = {"error": type(error).__name__}
    sentence = _sentence_of(error)
    if sentence:
        fields["message"] = sentence
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str):
        fields["sqlstate"] = sqlstate
    fields["trace"] = _places(error)
    inner = list(error.exceptions) if isinstance(error, BaseExceptionGroup) else []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        inner.append(cause)
    if inner:
        fields["errors"] = [error_fields(item) for item in inner[:8]]
    return fields


def _sentence_of(error: BaseException) -> str | None:
    if isinstance(error, CoatcheckError):
        return scrub(str(error))
    if isinstance(error, OSError) and error.strerror:
        return scrub(error.strerror)
    return None  # texts of libraries hold URLs, parameters, rows


def _places(error: BaseException) -> list[str]:
    places = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        file = "/".join(code.co_filename.rsplit("/", 3)[-3:])
        places.append(f"{file}:{step.tb_lineno} {code.co_name}")
        step = step.tb_next
    return places[-20:]


def _format_error(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    given = event.pop("exc_info", None)
    if given is True:
        given = sys.exc_info()[1]
    if isinstance(given, tuple):
        given = given[1]
    if isinstance(given, BaseException):
        event.update(error_fields(given))
    return event


def _redact(_: object, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    kept: dict[str, Any] = {key: event.pop(key) for key in ("at", "level") if key in event}
    dropped = []
    for key, value in event.items():
        if value is None or isinstance(value, bool | int | float):
            kept[key] = value
        elif key in ALLOWED_KEYS:
            kept[key] = _plain(value, _MAX_DEPTH)
        else:
            dropped.append(key)
    if dropped:
        kept["dropped"] = sorted(dropped)
    return kept


def _plain(value: object, depth: int) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str() | UUID():
            return scrub(str(value))
        case BaseException():
            return type(value).__name__
        case Mapping() if depth:
            return {scrub(str(key)): _plain(item, depth - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if depth:
            return [_plain(item, depth - 1) for item in list(value)[:50]]
        case _:
            return type(value).__name__


class _Stdout:
    """Standard output that loses lines rather than stop the work: a full disk, a reader gone."""

    def write(self, text: str) -> None:
        """Writes, or drops the text where it cannot be taken."""
        with contextlib.suppress(OSError):
            sys.stdout.write(text)

    def flush(self) -> None:
        """Flushes, or drops what was held."""
        with contextlib.suppress(OSError):
            sys.stdout.flush()


class _LibraryHandler(logging.Handler):
    """Turns a library's record into one of our lines; the same one at most once a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._last_at: dict[tuple[str, int], float] = {}
        self._log = structlog.get_logger()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line. A library that retries in a tight loop must not fill the disk."""
        origin = (record.pathname, record.lineno)
        now = time.monotonic()
        if now - self._last_at.get(origin, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return
        self._last_at[origin] = now
        fields: dict[str, Any] = {
            "logger": record.name,
            "place": f"{record.module}:{record.lineno}",
        }
        if record.name.startswith(SPEAKING_LOGGERS):
            fields["message"] = scrub(record.getMessage())
        error = record.exc_info[1] if record.exc_info else None
        write = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        write("library_log", exc_info=error, **fields)
