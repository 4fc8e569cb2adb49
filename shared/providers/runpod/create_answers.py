"""What an answer to `/run` proves. Pure.

Owns the classification of a create call. Runpod documents no answer that means "no job was
created", so the list is empty: only a call of which no byte left is one by itself. The operator
may switch on the refusals in `REFUSALS`; they count only when the whole body was read and names
no job. Everything else is ambiguous, with the id that the body names as evidence.
"""

import re

from shared.domain.provider import Accepted, Ambiguous, CreateOutcome, Exchange, Json, NoJob
from shared.providers.lenient_json import Document, Unreadable, read_json, top_level_id
from shared.providers.retry_after import retry_after_seconds

REFUSALS = frozenset(("401", "403", "404", "409", "429"))

_PAUSED = re.compile(r"\bENDPOINT_PAUSED\b")
_JOB_KEY = re.compile(r"id|(job|task|request)_?id", re.IGNORECASE)
_JOB_KEY_IN_TEXT = re.compile(
    rb'"(?:id|(?:job|task|request)_?id)"\s*:\s*+(?!null|""|[,}\]])', re.IGNORECASE
)
_WALKED_VALUES = 1_000


class Unsendable(Exception):
    """A create that can never be sent as it is; its class name stands in the Exchange."""


class InputUnusable(Unsendable):
    """The input is empty, no object, or cannot be written as JSON."""


class RequestTooLarge(Unsendable):
    """The request is larger than the provider takes."""


_PERMANENT = frozenset((InputUnusable.__name__, RequestTooLarge.__name__))


def classify(exchange: Exchange, switched_on: frozenset[str]) -> CreateOutcome:
    """What the call came to. `switched_on`: status codes out of `REFUSALS`."""
    if exchange.phase.is_provably_unsent:
        return NoJob(f"unsent_{exchange.phase}", permanent=exchange.error in _PERMANENT)
    if exchange.status is None:
        return Ambiguous("no_answer")
    document = read_json(exchange.body)
    named = top_level_id(exchange.body, document)
    if not exchange.complete:
        return Ambiguous("answer_cut", named)
    if exchange.status == 200 and named and isinstance(document, Document):
        return Accepted(named)
    if exchange.status == 200:
        return Ambiguous("no_usable_id", named)
    if _is_switched_on_refusal(exchange, document, switched_on):
        return NoJob(f"http_{exchange.status}", retry_after_seconds(exchange.headers))
    return Ambiguous(f"http_{exchange.status}", named)


def _is_switched_on_refusal(
    exchange: Exchange, document: Document | Unreadable, switched_on: frozenset[str]
) -> bool:
    if str(exchange.status) not in REFUSALS & switched_on:
        return False
    if exchange.status == 409 and not _PAUSED.search(" ".join(_stated(document))):
        return False
    return not _names_a_job(exchange.body, document)


def _stated(document: Document | Unreadable) -> list[str]:
    """The strings in which a refusal states its code, in any of its spellings."""
    stated: list[str] = []
    for key in ("code", "error", "message", "type", "title"):
        value = document.named(key) if isinstance(document, Document) else None
        members = value.values() if isinstance(value, dict) else [value]
        stated += [member for member in members if isinstance(member, str)]
    return stated


def _names_a_job(body: bytes, document: Document | Unreadable) -> bool:
    """Whether any member anywhere could be a job's id; a body too odd to tell counts as yes."""
    if not isinstance(document, Document):
        return document is Unreadable.beyond_limits or bool(_JOB_KEY_IN_TEXT.search(body))
    if document.disputed:
        return True
    waiting: list[Json] = [document.value]
    for _ in range(_WALKED_VALUES):
        if not waiting:
            return False
        value = waiting.pop()
        if isinstance(value, dict):
            if any(_JOB_KEY.fullmatch(key) and item for key, item in value.items()):
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return True
