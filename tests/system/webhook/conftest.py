"""What the webhook room's tests share."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[EventDict]]:
    """What the room logs, unrendered."""
    with capture_logs() as lines:
        yield lines
