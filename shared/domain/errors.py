"""Every error Coatcheck raises on purpose. The class docstring is the default message.

    CoatcheckError
    ├── Refused         the caller's fault; trying again unchanged cannot help
    ├── Unavailable     a part we need is away; try later, nothing was decided
    │   └── SchemaBehind   the database lacks a migration that this code needs
    ├── SchemaAhead     the database was migrated past this code by a breaking step
    ├── TooLarge        an answer went over its cap
    └── Uncertain       money may be spent; must never be retried

Problem documents are rendered in the gateway alone; texts here never hold secrets or URLs.
"""


class CoatcheckError(Exception):
    """Something Coatcheck cannot do."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class Refused(CoatcheckError):
    """The request cannot be accepted as it is."""


class Unavailable(CoatcheckError):
    """A part that is needed does not answer now."""


class SchemaBehind(Unavailable):
    """The database lacks a migration; run `coatcheck migrate`."""


class SchemaAhead(CoatcheckError):
    """The database was migrated past this version by a breaking step."""


class TooLarge(CoatcheckError):
    """The answer is larger than its cap."""


class Uncertain(CoatcheckError):
    """The outcome is not known and money may be spent; it must not be tried again."""
