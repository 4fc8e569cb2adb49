"""What a provider's error text is about, without ever passing the text on.

Owns the classing of errors that come as text, as a JSON document inside a string, as a Python
repr, object or list. Tracebacks, host and worker names are not looked at: their words mislead.
Promises one `FailureClass`. Must never give the text to anybody.
"""

import re

from shared.domain.provider import FailureClass, Json
from shared.providers.lenient_json import Document, read_json

TEXT_CHARS = 20_000
DEPTH = 6

_TRACEBACK = "Traceback (most recent call last)"
_SILENT_KEYS = re.compile(r"traceback|stack|host|worker|version|url|path|^input$|^id$", re.I)

# The first that fits counts. Words that only the machine's side utters come before those that
# blame the request, because texts of the former kind often quote the latter.
_WORDS: tuple[tuple[FailureClass, str], ...] = (
    (
        FailureClass.exec_timeout,
        r"execution ?time-?out|exceeded .{0,20}execution time|execution time (limit )?exceeded"
        r"|max(imum)? (execution|run) ?time|ran (for )?too long|took too long",
    ),
    (
        FailureClass.queue_timeout,
        r"\bttl\b.{0,20}(expired|exceeded|passed)|(expired|timed out|timeout).{0,20}\bqueue"
        r"|queue ?time-?out|expired before (it )?start",
    ),
    (
        FailureClass.oom,
        r"out ?of ?memory|\boom\b|oom-?kill|cannot allocate memory|memoryerror|alloc_failed"
        r"|allocation on device|exceed(s|ed)? (the )?(allowed|available) memory|insufficient memory"
        r"|not enough (gpu )?memory",
    ),
    (
        FailureClass.content_policy,
        r"content.{0,3}polic|safety|moderat|\bnsfw\b|\bflagged\b|sensitive content|inappropriate"
        r"|(prompt|content|image|request|output)s? (was |were |is |has been )?(rejected|blocked)"
        r"|violat\w+ .{0,40}(polic|guideline|terms)|usage polic|prohibited content|sexual"
        r"|copyright",
    ),
    (
        FailureClass.worker_infra,
        r"connection ?(error|refused|reset|aborted|closed)|max retries exceeded|unhealthy"
        r"|failed to establish|not reachable|unreachable|failed to connect|could not connect"
        r"|\bnot running\b|read ?time-?out|read timed out|connect ?time-?out|broken pipe"
        r"|cuda (error|driver|failure|initiali)|cudnn|cublas|nvidia|no cuda|device-side assert"
        r"|no space left|disk (is )?full|segmentation fault|core dumped|websocket"
        r"|worker (was |has |is )?(crash|die|exit|lost|kill|unresponsive|terminat|stop)"
        r"|exit(ed)? (code|status|with)|sigkill|job timed out after \d+ retries"
        r"|no workers? available|image pull|name resolution|incorrect number of retries",
    ),
    (
        FailureClass.input,
        r"bad[ _-]?input|bad[ _-]?parameter|\binvalid\b|must (be|have|contain|not|provide)"
        r"|\b(is|are) required|required (input|field|param|property|key|argument)"
        r"|missing.{0,20}(field|param|input|key|argument|property)|input is missing"
        r"|unexpected input"
        r"|validation|not_?in_?list|not in list|(?<!index )out of range|unknown (task|type|model)"
        r"|unsupported|not supported|too (large|long|small|short|many|few|big)\b"
        r"|exceeds? .{0,20}(max|limit)|\bno [\w ]{1,30} (was |were )?provided|please provide"
        r"|cannot identify image|failed to (load|download|fetch) .{0,60}\burl\b|not a valid"
        r"|value ?error: (expected|could not convert)",
    ),
    (
        FailureClass.platform,
        r"internal (server )?error|bad gateway|service unavailable|gateway time-?out|job-?done"
        r"|failed to return job|rate limit|too many requests|insufficient (credit|balance|fund)"
        r"|endpoint (is )?(paused|not found|disabled)",
    ),
)
_RULES = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in _WORDS)


def failure_class_of(*errors: Json) -> FailureClass:
    """The class of the first of these errors that has one; `unknown` where none has."""
    for error in errors:
        text = _plain(error, DEPTH)[:TEXT_CHARS]
        for kind, words in _RULES:
            if words.search(text):
                return kind
    return FailureClass.unknown


def _plain(error: Json, depth: int) -> str:
    """The words that may count, in one text."""
    if depth == 0:
        return ""
    match error:
        case str():
            return _of_text(error, depth)
        case dict():
            kept = (item for key, item in error.items() if not _SILENT_KEYS.search(key))
            return "\n".join(_plain(item, depth - 1) for item in kept)
        case list():
            return "\n".join(_plain(item, depth - 1) for item in error[:20])
        case _:
            return ""


def _of_text(text: str, depth: int) -> str:
    if text.lstrip().startswith(("{", "[")):
        document = read_json(text.encode("utf-8", "replace"))
        if isinstance(document, Document):
            return _plain(document.value, depth - 1)
    before, marker, trace = text.partition(_TRACEBACK)
    if not marker:
        return text
    last_line = trace.rstrip().rpartition("\n")[2]
    return f"{before}\n{last_line}"
