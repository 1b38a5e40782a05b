"""One listening address of the recorder, in the recorder's event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
import time

from dev.recorder import http1
from dev.recorder.model import NEVER, AnswerSeen, RecordedRequest, Route, ScriptedAnswer, State

CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 2.0


class Proxy:
    """Accepts connections of one route and serves each in a task of its own."""

    def __init__(self, route: Route, address: str, state: State) -> None:
        """``address`` is the listening "host:port" faults are set for; its port may be 0 at first."""
        self.route = route
        self.address = address
        self._state = state
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thawed = asyncio.Event()
        self._thawed.set()

    # --- life ------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Begin to accept; the address is final afterwards. Raises OSError when it is taken."""
        host, _, port = self.address.rpartition(":")
        self._server = await asyncio.start_server(self._accept, host, int(port), limit=http1.MAX_HEAD_BYTES)
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def apply_faults(self) -> None:
        """Follow a change of the faults: refuse or accept, cut what is open, let go what is frozen."""
        faults = self._state.faults_of(self.address)
        if faults.frozen:
            self._thawed.clear()
        else:
            self._thawed.set()
        if faults.down:
            await self.close()
        elif self._server is None:
            await self.listen()

    async def close(self) -> None:
        """Refuse new connections and cut the open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Transports close in the next turn of the loop.
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client; a connection that breaks is an ordinary end."""
        connection = Connection(self, reader, writer)
        try:
            if self.route.http:
                await connection.serve_http()
            else:
                await connection.serve_bytes()
        except (OSError, http1.ProtocolError):
            connection.abort()
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            await connection.close()

    # --- what connections ask --------------------------------------------------------------

    async def hold(self) -> None:
        """Wait as long as the faults of this address say."""
        if delay := self._state.faults_of(self.address).delay:
            await asyncio.sleep(delay)
        await self._thawed.wait()

    def record(self, head: http1.Head, client_port: int) -> RecordedRequest:
        """Note a request."""
        path, _, query = head.start[1].partition("?")
        with self._state.lock:
            self._state.count += 1
            number = self._state.count
        request = RecordedRequest(
            number=number,
            wall_ms=time.time() * 1000,
            boot_seconds=time.clock_gettime(time.CLOCK_BOOTTIME),
            client_port=client_port,
            method=head.start[0],
            path=path,
            query=query,
            user_agent=next((value for name, value in head.headers if name == "user-agent"), ""),
            target=self.route.target,
            headers=head.headers,
        )
        with self._state.lock:
            self._state.requests.append(request)
        return request

    def answered(self, request: RecordedRequest, status: int) -> None:
        """Note what was answered to a request."""
        seen = AnswerSeen(status, time.clock_gettime(time.CLOCK_BOOTTIME))
        with self._state.lock:
            self._state.seen[request.number] = seen

    def scripted(self, request: RecordedRequest) -> ScriptedAnswer | None:
        """Return the answer to give instead of forwarding, or None."""
        return self._state.take_answer(request, self.address)


class Connection:
    """One client's connection and, once something was forwarded, the one to the target."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take over an accepted connection."""
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._up: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def close(self) -> None:
        """Close both sides, waiting a bounded time for the client to take what was written."""
        self._drop_up()
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), CLOSE_SECONDS)
        except OSError:
            _reset(self._writer)

    def abort(self) -> None:
        """Reset both connections: the peers must see that something went wrong."""
        _reset(self._writer)
        if self._up is not None:
            _reset(self._up[1])

    def _drop_up(self) -> None:
        if self._up is not None:
            self._up[1].close()
            self._up = None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._up is None:
            route = self._proxy.route
            opening = asyncio.open_connection(route.target_host, route.target_port, limit=http1.MAX_HEAD_BYTES)
            self._up = await asyncio.wait_for(opening, CONNECT_SECONDS)
        return self._up

    # --- plain bytes -----------------------------------------------------------------------

    async def serve_bytes(self) -> None:
        """Pass bytes both ways until either side is done in both directions."""
        await self._proxy.hold()
        await self._connect()
        await self._tunnel()

    async def _tunnel(self) -> None:
        up_reader, up_writer = await self._connect()
        await asyncio.gather(self._pump(self._reader, up_writer), self._pump(up_reader, self._writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(http1.CHUNK_BYTES):
            await self._proxy.hold()
            sink.write(data)
            await sink.drain()
        # One side may be done while the other still talks.
        if sink.can_write_eof():
            sink.write_eof()

    # --- HTTP ------------------------------------------------------------------------------

    async def serve_http(self) -> None:
        """Serve requests one after the other; pipelined ones wait in the buffer."""
        port = self._writer.get_extra_info("peername")[1]
        while (head := await http1.read_head(self._reader)) is not None:
            request = self._proxy.record(head, port)
            await self._proxy.hold()
            answer = self._proxy.scripted(request)
            if answer is not None:
                again = await self._answer_instead(head, request, answer)
            else:
                again = await self._forward(head, request)
            if not again:
                return

    async def _answer_instead(self, head: http1.Head, request: RecordedRequest, answer: ScriptedAnswer) -> bool:
        """Swallow a request and answer it; return whether the connection goes on."""
        # A client that waits for "100 Continue" sends no body before; the connection is then used up.
        waits = bool(head.values("expect"))
        if not waits:
            async for _ in http1.request_body(head, self._reader):
                pass
        if answer.status == NEVER:
            # Until the client gives up, or whoever set it cuts the connection.
            while await self._reader.read(http1.CHUNK_BYTES):
                pass
            return False
        self._proxy.answered(request, answer.status)
        await self._send(self._writer, answer.to_bytes(request.method))
        return head.keeps_alive and not waits

    async def _forward(self, head: http1.Head, request: RecordedRequest) -> bool:
        """Forward a request and its response; return whether the connection goes on.

        Both run at once: a client may wait for "100 Continue" before it sends the body.
        """
        up_reader, up_writer = await self._fresh_up()
        await self._send(up_writer, head.raw)
        body = asyncio.ensure_future(self._send_body(head, up_writer))
        try:
            answer = await self._answer(request, up_reader)
            if answer is None:
                return False
            # A target that answers early may leave the rest of the body unread.
            await asyncio.wait([body], timeout=CONNECT_SECONDS)
            alive = body.done() and not body.cancelled() and body.exception() is None
        finally:
            body.cancel()
            await asyncio.gather(body, return_exceptions=True)
        if not answer.keeps_alive:
            self._drop_up()
        return alive and head.keeps_alive and answer.keeps_alive

    async def _fresh_up(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the connection to the target, a new one when the old was closed meanwhile."""
        if self._up is not None and self._up[0].at_eof():
            self._drop_up()
        return await self._connect()

    async def _send_body(self, head: http1.Head, up_writer: asyncio.StreamWriter) -> None:
        try:
            async for piece in http1.request_body(head, self._reader):
                await self._send(up_writer, piece)
        except (OSError, http1.ProtocolError):
            # The target must not wait for the rest, nor this side for its answer.
            _reset(up_writer)
            raise

    async def _answer(self, request: RecordedRequest, up_reader: asyncio.StreamReader) -> http1.Head | None:
        """Pass on one response with the interim ones before it; None when the connection is used up."""
        method = request.method
        while True:
            head = await http1.read_head(up_reader)
            if head is None:
                raise http1.ProtocolError("the target closed without an answer")
            if head.status >= 200:
                # Noted first: whether or not the client still hears it, this is what became of its request.
                self._proxy.answered(request, head.status)
            await self._send(self._writer, head.raw)
            if head.status == 101:
                await self._tunnel()
                return None
            if head.status >= 200:
                break
        async for piece in http1.response_body(method, head, up_reader):
            await self._send(self._writer, piece)
        return None if http1.ends_by_close(method, head) else head

    @staticmethod
    async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset, which no peer takes for an orderly end."""
    if not writer.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
