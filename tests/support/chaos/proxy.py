"""A TCP proxy on loopback that causes network faults: delays, low rates, resets, half-open and one-way connections.

The recorder (tests/support/recorder) parses and records HTTP. This proxy passes bytes only, and has more kinds of
faults.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.support.loop_thread import LoopThread, reset

Direction = Literal["up", "down"]
_CHUNK_BYTES = 1 << 14
_GREETING_BYTES = 64
_CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Faults:
    """The current faults. `delay`: seconds before each piece; `rate`: bytes/s each way, 0 for no limit; `swallow`:
    connections are accepted and their data is dropped; `blocked`: directions in which nothing passes.
    """

    delay: float = 0.0
    rate: float = 0.0
    swallow: bool = False
    refuse: bool = False
    blocked: frozenset[Direction] = frozenset()


class TcpProxy(LoopThread):
    """Forwards one listening address to one target, in a thread of its own; every method may be called from anywhere.

    `up` is towards the target, `down` towards the client.
    """

    def __init__(self, target: str, *, listen: str = "127.0.0.1:0") -> None:
        """`target` and `listen` are "host:port"; port 0 lets the system choose (see `address`)."""
        super().__init__("proxy")
        self.target = target
        self.address = listen
        self._faults = Faults()
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        # The first bytes that the target sent on each connection, which contain its session with the client.
        self.greetings: list[bytes] = []

    # --- faults ----------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._links)

    def delay(self, seconds: float) -> None:
        """Delay each piece of data by `seconds`, in both directions; 0 ends the delay."""
        self._change(delay=seconds)

    def throttle(self, bytes_per_second: float) -> None:
        """Limit each direction of a connection to `bytes_per_second`; 0 ends the limit."""
        self._change(rate=bytes_per_second)

    def cut(self) -> None:
        """Reset every open connection once; new connections are accepted as before."""
        self._do(self._cut(only_spoilt=False))

    def refuse(self) -> None:
        """Reset every open connection, and each new one as soon as it is made."""
        self._change(refuse=True)
        self.cut()

    def half_open(self) -> None:
        """Behave like a host that vanished: connections are accepted, received data is dropped, nothing is sent."""
        self._change(swallow=True)

    def black_hole(self, direction: Direction) -> None:
        """Block this direction. The data waits for `heal`, as TCP would send it again."""
        self._change(blocked=self._faults.blocked | {direction})

    def heal(self) -> None:
        """End every fault. Connections that lost data are reset, because their streams are incomplete."""
        self._faults = Faults()
        self._do(self._wake())
        self._do(self._cut(only_spoilt=True))

    # --- inside ----------------------------------------------------------------------------

    def _change(self, **changes: Any) -> None:
        self._faults = replace(self._faults, **changes)
        self._do(self._wake())

    async def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _listen(self) -> None:
        host, _, port = self.address.rpartition(":")
        self._server = await asyncio.start_server(self._accept, host, int(port))
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._cut(only_spoilt=False)

    async def _cut(self, *, only_spoilt: bool) -> None:
        tasks = [link.task for link in self._links if (link.spoilt or not only_spoilt) and link.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Transports close in the next iteration of the event loop.
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._faults.refuse:
            reset(writer)
            return
        link = _Link(self, reader, writer)
        self._links.add(link)
        link.task = asyncio.get_running_loop().create_task(link.serve())
        link.task.add_done_callback(lambda _: self._links.discard(link))

    async def passage(self, direction: Direction, size: int) -> bool:
        """Wait until a piece may pass. Return False if it is to be dropped."""
        if self._faults.delay:
            await asyncio.sleep(self._faults.delay)
        while direction in self._faults.blocked:
            await self._changed.wait()
        if self._faults.rate:
            await asyncio.sleep(size / self._faults.rate)
        return not self._faults.swallow

    @property
    def swallows(self) -> bool:
        """Return whether received data is dropped now."""
        return self._faults.swallow


class _Link:
    """A client's connection, and its connection to the target."""

    def __init__(self, proxy: TcpProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._up: asyncio.StreamWriter | None = None
        self.spoilt = False
        self.task: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Pass bytes in both directions until both ends have finished, one of them fails, or the proxy cuts it."""
        try:
            if self._proxy.swallows:
                self.spoilt = True
                while await self._reader.read(_CHUNK_BYTES):
                    pass
                self._writer.close()
                return
            host, _, port = self._proxy.target.rpartition(":")
            # Not `wait_for`, which loses a cancellation that comes when the connection is made (Python 3.11).
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, up = await asyncio.open_connection(host, int(port))
            self._up = up
            await self._both_ways(reader, up)
            self._writer.close()
            up.close()
        except (OSError, asyncio.CancelledError):
            # Expected, because connections are broken on purpose. Both ends get a reset, so that they notice.
            reset(self._writer)
            if self._up is not None:
                reset(self._up)

    async def _both_ways(self, up_reader: asyncio.StreamReader, up_writer: asyncio.StreamWriter) -> None:
        pumps = [
            asyncio.ensure_future(self._pump(self._reader, up_writer, "up")),
            asyncio.ensure_future(self._pump(up_reader, self._writer, "down")),
        ]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: Direction) -> None:
        first = direction == "down"
        while data := await source.read(_CHUNK_BYTES):
            if first:
                first = False
                self._proxy.greetings.append(data[:_GREETING_BYTES])
            if await self._proxy.passage(direction, len(data)):
                sink.write(data)
                await sink.drain()
            else:
                self.spoilt = True
        if sink.can_write_eof() and not self.spoilt:
            sink.write_eof()
