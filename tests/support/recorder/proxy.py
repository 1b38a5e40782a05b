"""One listening address of the recorder, in the recorder's event loop."""

from __future__ import annotations

import asyncio
import time

import h11

from tests.support.loop_thread import reset
from tests.support.recorder.model import NEVER, AnswerSeen, RecordedRequest, Route, ScriptedAnswer, State

CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 2.0
MAX_HEAD_BYTES = 1 << 16
CHUNK_BYTES = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Accepts the connections of one route and serves each in its own task."""

    def __init__(self, route: Route, address: str, state: State) -> None:
        """``address``: the listening "host:port", by which faults are looked up. Port 0 is replaced in ``listen``."""
        self.route = route
        self.address = address
        self._state = state
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thawed = asyncio.Event()
        self._thawed.set()

    # --- life ------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Start to accept connections and store the real address. Raises OSError if the address is in use."""
        host, _, port = self.address.rpartition(":")
        self._server = await asyncio.start_server(self._accept, host, int(port))
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def apply_faults(self) -> None:
        """Apply a change of the faults: refuse or accept, cut open connections, release frozen ones."""
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
        # Transports close in the next iteration of the event loop.
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client. A broken connection ends this without an error."""
        connection = Connection(self, reader, writer)
        try:
            if self.route.http:
                await connection.serve_http()
            else:
                await connection.serve_bytes()
        except (OSError, h11.ProtocolError):
            connection.abort()
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            await connection.close()

    # --- what connections ask --------------------------------------------------------------

    async def hold(self) -> None:
        """Wait for the delay of this address, and while it is frozen."""
        if delay := self._state.faults_of(self.address).delay:
            await asyncio.sleep(delay)
        await self._thawed.wait()

    def record(self, head: h11.Request, client_port: int) -> RecordedRequest:
        """Store a request."""
        path, _, query = head.target.decode("latin-1").partition("?")
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
        with self._state.lock:
            self._state.count += 1
            request = RecordedRequest(
                number=self._state.count,
                wall_ms=time.time() * 1000,
                boot_seconds=time.clock_gettime(time.CLOCK_BOOTTIME),
                client_port=client_port,
                method=head.method.decode("latin-1"),
                path=path,
                query=query,
                user_agent=next((value for name, value in headers if name == "user-agent"), ""),
                target=self.route.target,
                headers=headers,
            )
            self._state.requests.append(request)
        return request

    def answered(self, request: RecordedRequest, status: int) -> None:
        """Record the response to a request."""
        answer = AnswerSeen(status, time.clock_gettime(time.CLOCK_BOOTTIME))
        with self._state.lock:
            self._state.seen[request.number] = answer

    def scripted(self, request: RecordedRequest) -> ScriptedAnswer | None:
        """Return the answer to give instead of forwarding, or None."""
        return self._state.take_answer(request, self.address)


class Side:
    """One of the two connections, which sends and receives HTTP/1.1 messages. Forwarded messages keep their content and
    get new framing."""

    def __init__(self, role: type[h11.CLIENT | h11.SERVER], streams: Streams) -> None:
        """``role`` is the role that this side plays."""
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)
        self.reader, self.writer = streams

    async def receive(self) -> h11.Event:
        """Return the next part of a message. Raises h11.ProtocolError."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.reader.read(CHUNK_BYTES))
        if not isinstance(event, h11.Event):
            raise h11.RemoteProtocolError("the protocol changes")
        return event

    async def send(self, event: h11.Event) -> None:
        """Send one part of a message. Raises OSError."""
        self.writer.write(self.http.send(event) or b"")
        await self.writer.drain()

    def ready(self) -> bool:
        """Return whether the connection can be used for another request, and prepare it for that."""
        if (self.http.our_state, self.http.their_state) != (h11.DONE, h11.DONE):
            return False
        self.http.start_next_cycle()
        return True


class Connection:
    """A client's connection and, after the first forwarded request, its connection to the target."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take over an accepted connection."""
        self._proxy = proxy
        self._client = Side(h11.SERVER, (reader, writer))
        self._up: Side | None = None

    async def close(self) -> None:
        """Close both sides, waiting a bounded time for the client to receive the remaining data."""
        self._drop_up()
        self._client.writer.close()
        try:
            await asyncio.wait_for(self._client.writer.wait_closed(), CLOSE_SECONDS)
        except OSError:
            reset(self._client.writer)

    def abort(self) -> None:
        """Reset both connections, so that both ends notice an error."""
        reset(self._client.writer)
        if self._up is not None:
            reset(self._up.writer)

    def _drop_up(self) -> None:
        if self._up is not None:
            self._up.writer.close()
            self._up = None

    async def _connect(self) -> Side:
        """Return the connection to the target; a new one if the target closed the old one meanwhile."""
        if self._up is not None and self._up.reader.at_eof():
            self._drop_up()
        if self._up is None:
            route = self._proxy.route
            opening = asyncio.open_connection(route.target_host, route.target_port)
            self._up = Side(h11.CLIENT, await asyncio.wait_for(opening, CONNECT_SECONDS))
        return self._up

    # --- plain bytes -----------------------------------------------------------------------

    async def serve_bytes(self) -> None:
        """Pass bytes in both directions until both are finished or one connection breaks."""
        await self._proxy.hold()
        up = await self._connect()
        client = self._client
        await asyncio.gather(self._pump(client.reader, up.writer), self._pump(up.reader, client.writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK_BYTES):
            await self._proxy.hold()
            sink.write(data)
            await sink.drain()
        # One end can finish while the other still sends.
        if sink.can_write_eof():
            sink.write_eof()

    # --- HTTP ------------------------------------------------------------------------------

    async def serve_http(self) -> None:
        """Serve one request at a time; pipelined requests wait in the buffer."""
        port = self._client.writer.get_extra_info("peername")[1]
        while isinstance(head := await self._client.receive(), h11.Request):
            request = self._proxy.record(head, port)
            await self._proxy.hold()
            answer = self._proxy.scripted(request)
            if answer is None:
                await self._forward(head, request)
            else:
                await self._answer_instead(request, answer)
            if not self._client.ready():
                return

    async def _answer_instead(self, request: RecordedRequest, answer: ScriptedAnswer) -> None:
        """Read a request without forwarding it, and send the scripted response."""
        # A client that waits for "100 Continue" does not send the body, so the connection cannot be used again.
        if not self._client.http.they_are_waiting_for_100_continue:
            while not isinstance(await self._client.receive(), h11.EndOfMessage):
                pass
        if answer.status == NEVER:
            # Until the client closes the connection, or a fault cuts it.
            while await self._client.reader.read(CHUNK_BYTES):
                pass
            return
        self._proxy.answered(request, answer.status)
        for event in answer.events(request.method):
            await self._client.send(event)

    async def _forward(self, head: h11.Request, request: RecordedRequest) -> None:
        """Forward a request and its response.

        Both run in parallel, because a client can wait for "100 Continue" before it sends the body.
        """
        up = await self._connect()
        await up.send(head)
        body = asyncio.ensure_future(self._send_body(up))
        try:
            await self._send_answer(request, up)
            # A target that responds early can leave the rest of the body unread.
            await asyncio.wait([body], timeout=CONNECT_SECONDS)
        finally:
            body.cancel()
            await asyncio.gather(body, return_exceptions=True)
        if not up.ready():
            self._drop_up()

    async def _send_body(self, up: Side) -> None:
        try:
            event: h11.Event | None = None
            while not isinstance(event, h11.EndOfMessage):
                event = await self._client.receive()
                await up.send(event)
        except (OSError, h11.ProtocolError):
            # The body is incomplete: the target must not wait for the rest, nor this proxy for the response.
            reset(up.writer)
            raise

    async def _send_answer(self, request: RecordedRequest, up: Side) -> None:
        """Forward one response, and the interim responses (1xx) before it."""
        while not isinstance(event := await up.receive(), h11.ConnectionClosed):
            if isinstance(event, h11.Response):
                # Recorded first, because this is the result of the request even if the client does not receive it.
                self._proxy.answered(request, event.status_code)
            await self._client.send(event)
            if isinstance(event, h11.EndOfMessage):
                return
        raise h11.RemoteProtocolError("the target sent no whole answer")
