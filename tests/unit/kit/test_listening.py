"""The listening socket of a room's servers."""

import asyncio
import socket

from shared.kit.admin import bind_port


async def test_accepted_connections_answer_without_nagles_delay() -> None:
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        seen.put_nowait(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    for host in ("127.0.0.1", "::1"):
        listener = bind_port(host, 0, "NO_VARIABLE")
        async with await asyncio.start_server(accepted, sock=listener):
            _, writer = await asyncio.open_connection(host, listener.getsockname()[1])
            assert await seen.get() != 0
            writer.close()
            await writer.wait_closed()
