"""A gate on loopback in front of the real PostgreSQL, for outages that only one side sees.

Owns: refusing and dropping sessions at will, and losing the answer to the next COMMIT after the
server has done it. Everything else goes through byte for byte. Promises that nothing of it is
left once it is closed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit


class PostgresGate:
    """Open at first. `refused` counts the sessions turned away, `knocked` is set by each."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url)
        self._is_open = True
        self._sessions: set[asyncio.Task[None]] = set()
        self.loses_commit = False
        self.url = ""
        self.refused = 0
        self.knocked = asyncio.Event()

    def shut(self) -> None:
        """Drops every session and turns new ones away."""
        self._is_open = False
        for session in self._sessions:
            session.cancel()

    def reopen(self) -> None:
        """Lets sessions through again."""
        self._is_open = True

    def lose_next_commit(self) -> None:
        """The next COMMIT is done by the server; its answer is lost and the session cut."""
        self.loses_commit = True

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["PostgresGate"]:
        """Listens on a free port; `url` is then the way through."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        login = self._place.netloc.rpartition("@")[0]
        port = server.sockets[0].getsockname()[1]
        self.url = urlunsplit(self._place._replace(netloc=f"{login}@127.0.0.1:{port}"))
        try:
            yield self
        finally:
            server.close()
            self.shut()
            # Sessions that were taken in this very moment still have to begin and to end, and
            # aborted transports close one step later.
            for _ in range(10):
                await asyncio.sleep(0)
                await asyncio.gather(*self._sessions, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            self.refused += 1
            self.knocked.set()
            writer.transport.abort()
            return
        # A task of our own: the server's one logs a cancellation as an error.
        session = asyncio.create_task(self._relay(reader, writer))
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)
        session.add_done_callback(lambda _: writer.transport.abort())

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._place.port or 5432
        from_server, to_server = await asyncio.open_connection(self._place.hostname, port)
        muted = asyncio.Event()
        ways = [
            asyncio.create_task(self._carry_in(reader, to_server, muted)),
            asyncio.create_task(_carry_out(from_server, writer, muted)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_server.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry_in(
        self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter, muted: asyncio.Event
    ) -> None:
        while data := await reader.read(65_536):
            if self.loses_commit and b"COMMIT" in data:
                self.loses_commit = False
                muted.set()
            to_server.write(data)
            await to_server.drain()


async def _carry_out(
    from_server: asyncio.StreamReader, writer: asyncio.StreamWriter, muted: asyncio.Event
) -> None:
    while data := await from_server.read(65_536):
        if muted.is_set():
            return
        writer.write(data)
        await writer.drain()
