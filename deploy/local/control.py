"""How another process asks a running stack to take a part down or up again.

Owns the socket in the home and its one-line JSON messages. Promises that only the home's owner
can ask (the folder has mode 0700), that an answer comes when the thing is done and not before,
and that a home of any path length works. Must never block the supervisor on a slow asker.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local.console import HEARTBEAT_SECONDS, Console
from deploy.local.home import Home, HomeUnusable
from shared.domain.errors import Refused

LONGEST_REQUEST_BYTES = 4096


class NoStack(Refused):
    """No stack runs on this home."""


class UnknownPart(Refused):
    """There is no such part in this stack."""


@dataclass
class Asker:
    """One open connection and what it waits for."""

    connection: socket.socket
    is_done: Callable[[], bool] | None = None
    answer: str = ""


Take = Callable[[str, list[str]], Callable[[], bool]]
"""Carries out a command on parts; returns how to tell that it is done. Both raise Refused."""


class ControlDesk:
    """The supervisor's end."""

    def __init__(self, home: Home) -> None:
        self._askers: list[Asker] = []
        path = home.control_socket
        path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short_path(path) as name:
                self.listener.bind(name)
        except OSError as error:
            self.listener.close()
            raise HomeUnusable(f"{path} cannot be made: {error.strerror}") from error
        self.listener.listen()
        self.listener.setblocking(False)

    def tick(self, take: Take) -> None:
        """Accept, read, carry out, answer: whatever is possible without waiting."""
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            pass
        else:
            connection.setblocking(False)
            self._askers.append(Asker(connection))
        self._askers = [asker for asker in self._askers if not self._serve(asker, take)]

    @property
    def sockets(self) -> list[socket.socket]:
        """What to wait on for news."""
        return [self.listener, *(asker.connection for asker in self._askers)]

    def close(self) -> None:
        """Hang up on everybody."""
        for asker in self._askers:
            asker.connection.close()
        self.listener.close()

    def _serve(self, asker: Asker, take: Take) -> bool:
        """True when the asker was answered or has gone."""
        try:
            self._listen(asker, take)
            if not _is_done(asker):
                return False
            asker.connection.sendall(asker.answer.encode() + b"\n")
        except OSError:
            # The asker is gone; what it asked for goes on all the same.
            asker.connection.close()
            return True
        asker.connection.close()
        return True

    def _listen(self, asker: Asker, take: Take) -> None:
        """Take its one request if it has come. Raises OSError when it has hung up."""
        try:
            request = asker.connection.recv(LONGEST_REQUEST_BYTES)
        except BlockingIOError:
            return
        if not request:
            raise ConnectionResetError
        if asker.is_done is None:
            asker.is_done = _carry_out(request, take, asker)


def _is_done(asker: Asker) -> bool:
    try:
        return asker.is_done is not None and asker.is_done()
    except Refused as error:
        asker.answer = json.dumps({"refused": str(error)})
        return True


def _carry_out(request: bytes, take: Take, asker: Asker) -> Callable[[], bool]:
    try:
        message = json.loads(request)
        is_done = take(message["command"], message["parts"])
    except UnknownPart as error:
        asker.answer = json.dumps({"unknown": str(error)})
    except Refused as error:
        asker.answer = json.dumps({"refused": str(error)})
    except (ValueError, KeyError, TypeError):
        asker.answer = json.dumps({"refused": "the request cannot be understood"})
    else:
        asker.answer = json.dumps({"done": message["parts"]})
        return is_done
    return lambda: True


def ask(home: Home, command: str, parts: list[str], console: Console) -> None:
    """Ask the running stack and wait until it is done. Raises NoStack, UnknownPart, Refused."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with _short_path(home.control_socket) as name:
                connection.connect(name)
        except OSError as error:
            raise NoStack(f"no stack runs on {home.path}: start one with `coatcheck up`") from error
        connection.sendall(json.dumps({"command": command, "parts": parts}).encode())
        connection.settimeout(HEARTBEAT_SECONDS)
        answer = _received(connection, f"{command} of {', '.join(parts)}", console)
    if not answer:
        raise NoStack("the stack ended before it was done")
    message = json.loads(answer)
    if "unknown" in message:
        raise UnknownPart(message["unknown"])
    if "refused" in message:
        raise Refused(message["refused"])


def _received(connection: socket.socket, awaited: str, console: Console) -> bytes:
    while True:
        try:
            return connection.recv(LONGEST_REQUEST_BYTES)
        except TimeoutError:
            console.still(awaited)
        except OSError:
            return b""


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """A name for the socket that fits into 108 bytes, however long the home's path is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
