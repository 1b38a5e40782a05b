"""One connection of a client, with a limit of time: uvicorn waits for ever for a head that never comes whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from bundlekeel.api.auth import network_of

# From the connection, or from the end of the answer before, to the last header of a request. A keep-alive connection
# on which nothing comes is closed by uvicorn earlier.
HEAD_SECONDS = 20.0
# Open at once, of one listener.
MAX_CONNECTIONS = 256


class Connection(H11Protocol):
    """uvicorn's, closed when a request's head takes too long, or at once when there are too many connections, of all
    addresses or of one. The callers of a unix socket have no address, and only the first limit."""

    head_seconds: ClassVar[float]
    max_connections: ClassVar[int]
    by_address: ClassVar[Counter[str]]
    _address = ""
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse, or start to wait for a request."""
        super().connection_made(transport)
        self._address = network_of(self.client[0]) if self.client else ""
        self.by_address[self._address] += 1
        crowded = self._address and self.by_address[self._address] > most_of_one_address(self.max_connections)
        if crowded or len(self.connections) > self.max_connections:
            transport.close()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        """A part of a request: the wait ends when its head is complete."""
        if self._waiting is None and not self._busy:
            self._wait()
        super().data_received(data)
        if self._busy:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._stop()
        self.by_address[self._address] -= 1
        if not self.by_address[self._address]:
            del self.by_address[self._address]
        super().connection_lost(exc)

    @property
    def _busy(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self._busy:
            self.transport.close()


def connection_class(head_seconds: float, max_connections: int) -> type[Connection]:
    """The class of one listener's connections: uvicorn takes a class."""
    own = {"head_seconds": head_seconds, "max_connections": max_connections, "by_address": Counter[str]()}
    return type("Connection", (Connection,), own)


def most_of_one_address(max_connections: int) -> int:
    """How many of a listener's connections one address may hold: a quarter, so that it never keeps all others out."""
    return max(1, max_connections // 4)
