"""One listening address of the recorder, in the recorder's event loop."""

from __future__ import annotations

import asyncio
import time

import h11

from dev.loop_thread import reset
from dev.recorder.model import NEVER, AnswerSeen, RecordedRequest, Route, ScriptedAnswer, State

CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 2.0
MAX_HEAD_BYTES = 1 << 16
CHUNK_BYTES = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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
        except (OSError, h11.ProtocolError):
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

    def record(self, head: h11.Request, client_port: int) -> RecordedRequest:
        """Note a request."""
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
    """One connection as HTTP/1.1 messages. Received messages are forwarded unchanged, with a new framing."""

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
        """Whether the connection may carry another request; prepares it for one."""
        if (self.http.our_state, self.http.their_state) != (h11.DONE, h11.DONE):
            return False
        self.http.start_next_cycle()
        return True


class Connection:
    """One client's connection and, once something was forwarded, the one to the target."""

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
        """Reset both connections: the peers must see that something went wrong."""
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
        """Pass bytes both ways until either side is done in both directions."""
        await self._proxy.hold()
        up = await self._connect()
        client = self._client
        await asyncio.gather(self._pump(client.reader, up.writer), self._pump(up.reader, client.writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK_BYTES):
            await self._proxy.hold()
            sink.write(data)
            await sink.drain()
        # One side may be done while the other still talks.
        if sink.can_write_eof():
            sink.write_eof()

    # --- HTTP ------------------------------------------------------------------------------

    async def serve_http(self) -> None:
        """Serve requests one after the other; pipelined ones wait in the buffer."""
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
        """Swallow a request and answer it."""
        # A client that waits for "100 Continue" sends no body before; the connection is then used up.
        if not self._client.http.they_are_waiting_for_100_continue:
            while not isinstance(await self._client.receive(), h11.EndOfMessage):
                pass
        if answer.status == NEVER:
            # Until the client gives up, or whoever set it cuts the connection.
            while await self._client.reader.read(CHUNK_BYTES):
                pass
            return
        self._proxy.answered(request, answer.status)
        for event in answer.events(request.method):
            await self._client.send(event)

    async def _forward(self, head: h11.Request, request: RecordedRequest) -> None:
        """Forward a request and its response.

        Both run at once: a client may wait for "100 Continue" before it sends the body.
        """
        up = await self._connect()
        await up.send(head)
        body = asyncio.ensure_future(self._send_body(up))
        try:
            await self._send_answer(request, up)
            # A target that answers early may leave the rest of the body unread.
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
            # The target must not wait for the rest, nor this side for its answer.
            reset(up.writer)
            raise

    async def _send_answer(self, request: RecordedRequest, up: Side) -> None:
        """Pass on one response with the interim ones before it."""
        while not isinstance(event := await up.receive(), h11.ConnectionClosed):
            if isinstance(event, h11.Response):
                # Noted first: whether or not the client still hears it, this is what became of its request.
                self._proxy.answered(request, event.status_code)
            await self._client.send(event)
            if isinstance(event, h11.EndOfMessage):
                return
        raise h11.RemoteProtocolError("the target sent no whole answer")
