"""An answer whose body comes from the bucket piece by piece.

Promises constant memory, that the stream is closed on every way out (the end, a caller that
left, a stop of the room), and that a body which breaks off is never ended as if it were whole:
the connection is cut instead, which callers notice by the length.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shared.domain.errors import Unavailable
from shared.kit.logs import get_logger

_log = get_logger()


class StreamedBytes(Response):
    """`first` and then the rest of `stream`; headers must state the length of both."""

    def __init__(
        self,
        first: bytes,
        stream: AsyncGenerator[bytes, None],
        status: int,
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        super().__init__(None, status, headers, media_type)
        self._first, self._stream = first, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer until it is whole, the caller is gone, or the bucket fails."""
        async with aclosing(self._stream):
            gone = asyncio.create_task(_until_gone(receive))
            try:
                await send(
                    {
                        "type": "http.response.start",
                        "status": self.status_code,
                        "headers": self.raw_headers,
                    }
                )
                await self._send_body(send, gone)
            except Unavailable as error:
                _log.error("artifact_stream_cut", exc_info=error)
            finally:
                gone.cancel()

    async def _send_body(self, send: Send, gone: "asyncio.Task[None]") -> None:
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for chunk in self._stream:
            if gone.done():
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
