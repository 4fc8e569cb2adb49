"""Plain HTTP calls of the command line to the stack's own doors.

Owns a small client out of the standard library. Promises that no proxy of the environment is
asked, that nothing is followed or repeated, and a limit of time on each wait. Must never be
used for a paid call: those have rules of their own.
"""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.domain.errors import Unavailable

TIMEOUT_SECONDS = 4.0
PIECE_BYTES = 1024 * 1024


class CallFailed(Unavailable):
    """A call to the stack was not answered as it should be."""


@dataclass(frozen=True)
class Answer:
    """Status and JSON object of an answer; empty where the body was none."""

    status: int
    json: dict[str, Any] = field(default_factory=dict)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Never: the caller sees the redirect's own status."""


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())


def call(method: str, url: str, *, headers: Mapping[str, str], body: Any = None) -> Answer:
    """One call; error statuses are answers too. Raises CallFailed when nothing came back."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, dict(headers), method=method)  # noqa: S310
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with _opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            return Answer(response.status, _object(response.read()))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _object(error.read()))
    except (OSError, http.client.HTTPException) as error:
        raise CallFailed(f"{request.host} does not answer ({type(error).__name__})") from error


def download(url: str, *, headers: Mapping[str, str]) -> Iterator[bytes]:
    """The body of a GET in pieces. Raises CallFailed unless it is a whole 200."""
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310
    try:
        with _opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            # Read in pieces, the library takes an early end for the end.
            missing = int(response.headers.get("Content-Length") or 0)
            while piece := response.read(PIECE_BYTES):
                missing -= len(piece)
                yield piece
    except urllib.error.HTTPError as error:
        error.close()
        raise CallFailed(f"the download was answered {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise CallFailed(f"the download broke off ({type(error).__name__})") from error
    if missing > 0:
        raise CallFailed(f"the download broke off with {missing} bytes missing")


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
