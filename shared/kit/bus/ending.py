"""Ends of client library parts, bounded: a thrown-away part holds nobody up."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from shared.kit.logs import get_logger

_log = get_logger()


async def ends(step: Coroutine[Any, Any, object], seconds: float) -> bool:
    """Whether the step came to its end in time; its error is logged, for nobody can act on it.

    It runs in a task of its own: a part that cancels its inner tasks may end in
    `CancelledError`, which must not look like a cancellation of ours.
    """
    task = asyncio.create_task(step)
    try:
        await asyncio.wait([task], timeout=seconds)
        in_time = task.done()
    finally:
        task.cancel()
    await asyncio.wait([task], timeout=seconds)
    if not in_time or not task.done():
        return False
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.warning("end_failed", exc_info=error)
    return error is None
