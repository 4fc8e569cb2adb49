"""W3C trace context as a string that is passed on: request → outbox row → record → handler.

Owns the current `traceparent` of a task. Promises that only well-formed values are passed on
and that the trace id stands in every log line. There is no SDK here; whoever adds one starts
from these strings.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from structlog.contextvars import bound_contextvars

_FORMAT = re.compile(r"^00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")

_current: ContextVar[str | None] = ContextVar("traceparent", default=None)


def current_traceparent() -> str | None:
    """The `traceparent` of the work under way, or None outside of any."""
    return _current.get()


def trace_id_of(traceparent: str | None) -> str | None:
    """The 32 hex digits of the trace, or None where the value is not well-formed."""
    found = _FORMAT.match(traceparent or "")
    return found[1] if found else None


@contextmanager
def continued_trace(traceparent: str | None) -> Iterator[str]:
    """Makes the given trace current, or a new one where it is absent or malformed."""
    if trace_id_of(traceparent) is None or traceparent is None:
        traceparent = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
    token = _current.set(traceparent)
    try:
        with bound_contextvars(trace_id=trace_id_of(traceparent)):
            yield traceparent
    finally:
        _current.reset(token)
