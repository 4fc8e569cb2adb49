"""Secrets of one stack: made once per home, kept in a file of mode 0600.

Owns which secrets there are and where they lie. Promises that a second start finds the same
ones. Must never print one, and must never make one that the environment already gives.
"""

import os
import secrets
from pathlib import Path

from deploy.local.home import Home

SECRETS_NAME = "secrets.json"
_BYTES = 24


class Minted:
    """The secrets of a home by name; what lacks is made and written down at once."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[str, str] = {
            name: value
            for name, value in home.read_json(SECRETS_NAME).items()
            if isinstance(value, str)
        }

    def get(self, name: str) -> str:
        """The secret of that name: URL-safe text of 192 random bits."""
        if name not in self._known:
            self.keep(name, secrets.token_urlsafe(_BYTES))
        return self._known[name]

    def find(self, name: str) -> str | None:
        """The secret of that name if there is one."""
        return self._known.get(name)

    def keep(self, name: str, value: str) -> None:
        """Write down a secret that somebody else made."""
        if self._known.get(name) != value:
            self._known[name] = value
            self._home.write_json(SECRETS_NAME, self._known)


def write_secret_file(path: Path, value: str) -> Path:
    """A secret as a file of mode 0600, for programs that take it so."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(f"{value}\n")
    return path
