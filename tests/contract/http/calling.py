"""How the transport tests make a paid call: one place for the canary key and the deadlines."""

import ssl

from shared.domain.provider import Exchange
from shared.kit.http import PhaseRecorder, boottime_seconds, paid_call

CANARY = "rpa_CANARY0123456789"
LONG_SECONDS = 60.0


async def call(
    url: str,
    *,
    body: bytes = b'{"input":{"prompt":"x"}}',
    total_seconds: float = LONG_SECONDS,
    connect_seconds: float = LONG_SECONDS,
    not_after_boottime: float | None = None,
    recorder: PhaseRecorder | None = None,
    max_answer_bytes: int = 100_000,
    ssl_context: ssl.SSLContext | None = None,
) -> Exchange:
    """One paid call whose URL and headers carry the canary."""
    deadline = (
        boottime_seconds() + LONG_SECONDS if not_after_boottime is None else (not_after_boottime)
    )
    return await paid_call(
        "POST",
        f"{url}?token={CANARY}",
        {"Authorization": f"Bearer {CANARY}", "Content-Type": "application/json"},
        body,
        connect_seconds=connect_seconds,
        total_seconds=total_seconds,
        not_after_boottime=deadline,
        recorder=recorder,
        max_answer_bytes=max_answer_bytes,
        ssl_context=ssl_context,
    )
