"""HTTP out, for calls that cost money and for calls that only read.

Owns: `paid_call`, which sends one request at most once and says truthfully how far it came, and
`read_call`, which asks for an answer and raises when there is none. Every call has a connection
of its own: nothing is retried, redirected, pooled or sent through a proxy of the environment.
Must never put a URL, a header or a body into an exception's text or into a log.
"""

import logging

from shared.kit.http.calls import (
    DEFAULT_ANSWER_BYTES,
    HttpAnswer,
    HttpTransport,
    paid_call,
    read_call,
)
from shared.kit.http.phases import PhaseRecorder, SendDeadline, boottime_seconds

__all__ = [
    "DEFAULT_ANSWER_BYTES",
    "HttpAnswer",
    "HttpTransport",
    "PhaseRecorder",
    "SendDeadline",
    "boottime_seconds",
    "paid_call",
    "read_call",
]

# Both libraries log whole URLs and headers, keys included, at levels an operator may switch on.
for _name in ("httpx", "httpcore"):
    _logger = logging.getLogger(_name)
    _logger.setLevel(logging.CRITICAL + 1)
    _logger.propagate = False
    _logger.addHandler(logging.NullHandler())
