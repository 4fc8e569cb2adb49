"""What an answer to `/status` says of a job. Pure.

Owns the mapping of Runpod's states and of the errors that hide under COMPLETED. Promises that
only a 200 with a state we know says anything about a job: 404 is `gone`, an unknown state is
`unrecognised`, everything else `retry_later`. `output` is a result only under COMPLETED, before
that it is progress. Must never turn an unknown state into success or failure.
"""

import re
from collections.abc import Mapping

from shared.domain.provider import FailureClass, Json, ProviderState, StatusReading
from shared.providers.failure_words import failure_class_of
from shared.providers.found_artifacts import find_artifacts
from shared.providers.lenient_json import Document, Unreadable, read_json, usable_id
from shared.providers.retry_after import retry_after_seconds

STATES: Mapping[str, ProviderState] = {
    "IN_QUEUE": ProviderState.queued,
    "IN_PROGRESS": ProviderState.running,
    "RUNNING": ProviderState.running,
    "COMPLETED": ProviderState.completed,
    "FAILED": ProviderState.failed,
    "CANCELLED": ProviderState.cancelled,
    "CANCELED": ProviderState.cancelled,
    "TIMED_OUT": ProviderState.timed_out,
    "TIMEOUT": ProviderState.timed_out,
    "TIME_OUT": ProviderState.timed_out,
}
MAX_MILLISECONDS = 10**12

_ERROR_KEYS = ("error", "errors", "error_message", "errorMessage", "error_code", "errorCode")
_WORD_KEYS = (*_ERROR_KEYS, "message", "detail", "details", "reason")
_WRAPPERS = ("output", "result", "data", "response")
_BAD_STATUS = re.compile(r"error|failed|failure", re.IGNORECASE)
_FRACTION = re.compile(r"([0-9]{1,6}) ?/ ?([0-9]{1,6})")
_PERCENT = re.compile(r"([0-9]{1,3})(\.[0-9]{1,6})? ?%")
_PROGRESS_KEYS = ("progress", "percent", "percentage", "progress_percent")


def read_status(http_status: int, headers: Mapping[str, str], body: bytes) -> StatusReading:
    """The reading of one whole answer. Header names in lower case."""
    if http_status in (404, 410):
        return StatusReading(ProviderState.gone)
    if http_status != 200:
        wish = retry_after_seconds(headers)
        return StatusReading(ProviderState.retry_later, retry_after_seconds=wish)
    document = read_json(body)
    if document is Unreadable.not_json:
        return StatusReading(ProviderState.retry_later)  # a page of somebody in between
    if not isinstance(document, Document):
        return StatusReading(ProviderState.unrecognised)
    return _read_record(document)


def _read_record(document: Document) -> StatusReading:
    word = document.named("status")
    state = STATES.get(word) if isinstance(word, str) else None
    if state is None or "id" in document.disputed:
        return StatusReading(ProviderState.unrecognised)
    output, error = document.named("output"), document.named("error")
    executed = _seconds(document.named("executionTime"))
    has_output = state is ProviderState.completed and output is not None
    if state is ProviderState.completed and _is_error_in_disguise(error, output):
        state, has_output = ProviderState.failed, False
    return StatusReading(
        state=state,
        provider_job_id=usable_id(document.named("id")),
        progress=_progress(output) if state is ProviderState.running else None,
        output=output if has_output else None,
        has_output=has_output,
        failure_class=_failure_class(state, error, output, executed),
        execution_seconds=executed,
        queue_seconds=_seconds(document.named("delayTime")),
    )


def _failure_class(
    state: ProviderState, error: Json, output: Json, executed: float | None
) -> FailureClass | None:
    if state is ProviderState.failed:
        return failure_class_of(error, _error_words(output))
    if state is ProviderState.cancelled:
        return FailureClass.cancelled
    if state is ProviderState.timed_out:
        # One word for two ends: without a sign of a start nobody can say which it was.
        return FailureClass.exec_timeout if executed else FailureClass.unknown
    return None


def _is_error_in_disguise(error: Json, output: Json) -> bool:
    """COMPLETED outside, an error inside, and nothing that could be stored beside it."""
    return (bool(error) or _tells_of_error(output)) and not find_artifacts(output)


def _tells_of_error(output: Json) -> bool:
    return any(
        any(layer.get(key) for key in _ERROR_KEYS)
        or layer.get("success") is False
        or (isinstance(layer.get("status"), str) and _BAD_STATUS.fullmatch(layer["status"]))
        for layer in _layers(output)
    )


def _error_words(output: Json) -> Json:
    return [layer[key] for layer in _layers(output) for key in _WORD_KEYS if key in layer]


def _layers(output: Json) -> list[dict[str, Json]]:
    """The objects in which a worker's own error may stand: outermost, in a list, one wrapper in."""
    outer = output[:20] if isinstance(output, list) else [output]
    layers = [layer for layer in outer if isinstance(layer, dict)]
    inner = [layer.get(key) for layer in layers for key in _WRAPPERS]
    return layers + [layer for layer in inner if isinstance(layer, dict)]


def _progress(output: Json) -> int | None:
    """A percentage, only where it is written so that it cannot be read otherwise."""
    if isinstance(output, dict):
        return next((_percent(output[key]) for key in _PROGRESS_KEYS if key in output), None)
    return _percent(output) if isinstance(output, str) else None


def _percent(value: Json) -> int | None:
    number: float | None = None
    if isinstance(value, str):
        fraction, percent = _FRACTION.fullmatch(value.strip()), _PERCENT.fullmatch(value.strip())
        if fraction and int(fraction[2]):
            number = 100 * int(fraction[1]) / int(fraction[2])
        elif percent:
            number = float(f"{percent[1]}{percent[2] or ''}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # Up to one it may be a share of one as well.
        number = value if value > 1 or value == 0 else None
    return int(number) if number is not None and 0 <= number <= 100 else None


def _seconds(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value / 1000 if 0 <= value <= MAX_MILLISECONDS else None
