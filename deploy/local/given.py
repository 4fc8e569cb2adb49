"""What the environment already says, so that the stack uses it and starts nothing in its place.

Owns the reading of `COATCHECK_*` for the launcher. Promises that a secret may come from the
file its `…_FILE` variable names, and that relative paths mean the caller's folder, not ours.
Must never print a value.
"""

from collections.abc import Mapping
from pathlib import Path

from shared.domain.errors import CoatcheckError

PREFIX = "COATCHECK_"
_PATHS = ("ENDPOINTS_FILE", "KAFKA_SSL_CAFILE", "KAFKA_SSL_CERTFILE", "KAFKA_SSL_KEYFILE")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class SettingWrong(CoatcheckError):
    """A setting of the stack is wrong; the text names the variable."""


class Given:
    """A view of the environment, names without the prefix."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = dict(environ)

    def text(self, name: str) -> str | None:
        """The value, from the variable or from its file; empty counts as not set."""
        variable = PREFIX + name
        value, path = self.environ.get(variable), self.environ.get(f"{variable}_FILE")
        if value and path:
            raise SettingWrong(f"{variable} and {variable}_FILE are both set; keep one")
        if not path:
            return value or None
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n") or None
        except (OSError, UnicodeDecodeError) as error:
            raise SettingWrong(f"{variable}_FILE: {path} cannot be read") from error

    def required(self, name: str, because: str) -> str:
        """The value, or SettingWrong saying what makes it necessary."""
        value = self.text(name)
        if value is None:
            raise SettingWrong(f"{PREFIX}{name} is missing: {because}")
        return value

    def port(self, name: str) -> int | None:
        """A port number, or None where the variable is not set."""
        value = self.text(name)
        if value is None:
            return None
        if not value.isdigit() or not 1 <= int(value) <= 65535:
            raise SettingWrong(f"{PREFIX}{name}: must be a port, 1 to 65535")
        return int(value)

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number between the two, or None where the variable is not set."""
        value = self.text(name)
        if value is None:
            return None
        wrong = SettingWrong(f"{PREFIX}{name}: must be a number, {least:g} to {most:g}")
        try:
            number = float(value)
        except ValueError:
            raise wrong from None
        if not least <= number <= most:
            raise wrong
        return number

    def flag(self, name: str) -> bool | None:
        """A yes or no, or None where the variable is not set."""
        value = self.text(name)
        if value is None:
            return None
        if value.lower() not in (*_TRUE, *_FALSE):
            raise SettingWrong(f"{PREFIX}{name}: must be true or false")
        return value.lower() in _TRUE

    def for_children(self) -> dict[str, str]:
        """All of it, with relative paths made absolute: children run in another folder."""
        result = dict(self.environ)
        for variable, value in self.environ.items():
            name = variable.removeprefix(PREFIX)
            is_path = name in _PATHS or name.endswith("_FILE")
            if variable.startswith(PREFIX) and is_path and value:
                result[variable] = str(Path(value).absolute())
        return result
