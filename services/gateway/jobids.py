"""Job ids as callers write them."""

import re
from uuid import UUID

from services.gateway.problems import Problem

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def read_job_id(text: str) -> UUID:
    """The id in its one form. Anything else is answered like a job that does not exist."""
    if not _ID.fullmatch(text):
        raise Problem("not_found")
    return UUID(text)
