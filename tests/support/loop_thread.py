"""An event loop in its own thread, for proxies that work while a test runs."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

ACTION_SECONDS = 60.0


class LoopThread(ABC):
    """A server with its own thread and event loop, usable as a context manager. Any thread can start and stop it. A
    subclass implements how it listens and closes."""

    def __init__(self, name: str) -> None:
        """`name`: name of the thread, also used in messages."""
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @abstractmethod
    async def _listen(self) -> None:
        """Start to accept connections. Raises OSError if an address is in use."""

    @abstractmethod
    async def _close(self) -> None:
        """Cut every connection and stop listening."""

    def start(self) -> None:
        """Listen; return when connections are accepted. Raises OSError if an address is in use, RuntimeError if it is
        running.
        """
        if self._loop is not None:
            raise RuntimeError(f"the {self._name} is running")
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
        self._thread.start()
        try:
            self._do(self._listen())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Cut every connection and stop listening. Records stay readable. Idempotent."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._do(self._close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(ACTION_SECONDS)
        self._loop = self._thread = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _do(self, action: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the event loop and wait for its end."""
        if self._loop is None:
            action.close()
            raise RuntimeError(f"the {self._name} is not running")
        asyncio.run_coroutine_threadsafe(action, self._loop).result(ACTION_SECONDS)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a TCP reset, so that its other end notices an error."""
    if not writer.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
