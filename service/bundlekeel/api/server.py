"""Two uvicorn servers in a thread with its own event loop: TCP, and a unix socket of mode 0600.

If the settings require no credentials, TCP has only reads and dry runs. No response is computed on the main event loop,
because that loop must renew the leader's lease in time (docs/adr/0006-api-in-its-own-thread.md). uvicorn installs no
signal handlers, because the runtime of the sidecar handles SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import stat
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from bundlekeel.api.admission import CROWDED, MAX_CONCURRENT
from bundlekeel.api.app import FeatureRoutes, create_app
from bundlekeel.api.audit import AuditTrail
from bundlekeel.api.auth import AccessRules, network_of
from bundlekeel.api.service import Service
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.uris import WILDCARDS

_log = structlog.get_logger(__name__)

# A client must send the last header of a request within this many seconds after it has connected. uvicorn closes idle
# keep-alive connections earlier.
HEAD_SECONDS = 20.0
# A keep-alive connection without a request is closed after this many seconds.
KEEP_ALIVE_SECONDS = 15
# A client that reads nothing of its response for this many seconds is disconnected.
READ_SECONDS = 10.0
# Highest number of open connections per listener.
MAX_CONNECTIONS = 256
# Number of additional connections that serve only probes.
PROBE_CONNECTIONS = 16


class Connection(H11Protocol):
    """uvicorn's connection, with a time-out for the headers of a request and limits of the number of connections.

    There is a limit for all connections and one per client address; a unix socket has only the first one. Beyond a
    limit, a new connection replaces the one that has been idle longest. If none is idle, a few more connections are
    accepted that serve only probes, and each further one replaces the oldest of these. So a flood of connections
    cannot make probes fail and Kubernetes restart the sidecar.
    """

    head_seconds: ClassVar[float]
    max_connections: ClassVar[int]
    places: ClassVar[dict[Connection, None]]
    """Connections within the limits, as keys. Idle ones are in the order in which they became idle."""
    reserve: ClassVar[dict[Connection, None]]
    _address = ""
    _waiting: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection within the limits or only for probes, and start the time-out for its first request."""
        super().connection_made(transport)
        self._address = network_of(self.client[0]) if self.client else ""
        if not self._take_place():
            if len(self.reserve) >= PROBE_CONNECTIONS:
                # A probe ends within milliseconds, so the oldest connection does not serve one any more. Remove it from
                # the list now, because more connections can arrive before it is closed.
                oldest = next(iter(self.reserve))
                del self.reserve[oldest]
                oldest.transport.abort()
            self.reserve[self] = None
            self.app_state = {**self.app_state, CROWDED: True}
        self._wait()

    def _take_place(self) -> bool:
        """Return whether the connection fits into the limits, if necessary after closing an idle connection."""
        own = [other for other in self.places if self._address and other._address == self._address]
        crowded = len(own) >= most_of_one_address(self.max_connections)
        if crowded or len(self.places) >= self.max_connections:
            idle = [other for other in (own if crowded else self.places) if not other._busy]
            if not idle:
                return False
            # Close a connection to which no response is being sent, if there is one.
            oldest = min(idle, key=lambda other: other.transport.get_write_buffer_size() > 0)
            del self.places[oldest]
            # Do not use `close`, because it waits for a client that does not read.
            oldest.transport.abort()
        self.places[self] = None
        return True

    def on_response_complete(self) -> None:
        """Move the connection to the end of `places`, because it is idle from now on."""
        if self in self.places:
            del self.places[self]
            self.places[self] = None
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request, and stop the time-out when its headers are complete."""
        if self._waiting is None and not self._busy:
            self._wait()
        super().data_received(data)
        if self._busy:
            self._stop()

    def pause_writing(self) -> None:
        """Close the connection after `READ_SECONDS` unless the client reads again (`resume_writing`)."""
        super().pause_writing()
        # Do not use `close`, because it waits for the client.
        self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the time-out of `pause_writing`, because the client reads again."""
        self._read()
        super().resume_writing()

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection towards the limits."""
        self._stop()
        self._read()
        self.reserve.pop(self, None)
        self.places.pop(self, None)
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
    """Return a subclass of `Connection` with these limits, because uvicorn takes a class and no arguments."""
    limits = {"head_seconds": head_seconds, "max_connections": max_connections}
    own = {"places": dict[Connection, None](), "reserve": dict[Connection, None]()}
    return type("Connection", (Connection,), limits | own)


def most_of_one_address(max_connections: int) -> int:
    """Return the highest number of connections per address: a quarter, so that one address cannot block others."""
    return max(1, max_connections // 4)


STOP_SECONDS = 5.0


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do nothing, instead of installing uvicorn's signal handlers."""
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Credentials, certificate and limits of the API's listeners.

    `access`: rules for credentials on the TCP port; None: this port needs no credentials and has no mutating routes.
    `trail`: writes mutating requests to the journal. `tls`: certificate of the TCP port. The limits apply to each
    listener: concurrent requests, open connections, and seconds until the headers of a request must be complete.
    """

    access: AccessRules | None = None
    trail: AuditTrail | None = None
    tls: ssl.SSLContext | None = None
    max_concurrent: int = MAX_CONCURRENT
    max_connections: int = MAX_CONNECTIONS
    head_seconds: float = HEAD_SECONDS


class ApiServer:
    """The HTTP server of a sidecar.

    `socket_path`: path of the unix socket; None: no socket. Only the owner of the socket can use it, without
    credentials.
    """

    def __init__(
        self,
        service: Service,
        host: str,
        port: int,
        socket_path: Path | None,
        *,
        allowed_hosts: Sequence[str] = (),
        protection: Protection | None = None,
        features: Sequence[FeatureRoutes] = (),
    ) -> None:
        self._host, self._port, self._socket_path = host, port, socket_path
        self._protection = protection or Protection()
        self._service, self._allowed_hosts = service, allowed_hosts
        self._features = features
        self._apps: list[FastAPI] = []
        self._running: list[tuple[_Server, asyncio.Task[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping, self._stopped = asyncio.Event(), threading.Event()
        self.url = ""

    def _app(self, trail: AuditTrail | None, access: AccessRules | None, *, mutations: bool) -> FastAPI:
        return create_app(
            self._service,
            mutations=mutations,
            allowed_hosts=self._allowed_hosts,
            access=access,
            trail=trail,
            max_concurrent=self._protection.max_concurrent,
            features=self._features,
        )

    async def start(self) -> str:
        """Start serving and return the URL (port 0: any free port). Raises ConfigError if an address is in use."""
        listening = bind_tcp(self._host, self._port)
        try:
            unix = bind_unix(self._socket_path) if self._socket_path else None
        except ConfigError:
            listening.close()
            raise
        host, port = listening.getsockname()[:2]
        url_host = "127.0.0.1" if host in WILDCARDS else host
        scheme = "http" if self._protection.tls is None else "https"
        self.url = f"{scheme}://[{url_host}]:{port}" if ":" in url_host else f"{scheme}://{url_host}:{port}"
        # Let a thread that computes a response give way to the main loop after 1 ms instead of 5 ms, because the main
        # loop renews the leader's lease.
        sys.setswitchinterval(0.001)
        started: Future[None] = Future()
        serving = self._serve_all(listening, unix, _on_this_loop(self._protection.trail), started)
        threading.Thread(target=asyncio.run, args=(serving,), name="api", daemon=True).start()
        await asyncio.wrap_future(started)
        return self.url

    async def _serve_all(
        self, listening: socket.socket, unix: socket.socket | None, trail: AuditTrail | None, started: Future[None]
    ) -> None:
        """Run all servers in the thread of the API until `stop` is called."""
        self._loop = loop = asyncio.get_running_loop()
        # Compute one response at a time, because two at the same time need more memory and are not faster.
        loop.set_default_executor(ThreadPoolExecutor(max_workers=1, thread_name_prefix="api-responses"))
        try:
            access = self._protection.access
            self._apps = [
                self._app(trail, access, mutations=access is not None),
                self._app(trail, None, mutations=True),
            ]
            await self._serve(self._apps[0], listening, self._protection.tls)
            if unix is not None:
                await self._serve(self._apps[1], unix)
            started.set_result(None)
        except Exception as error:  # noqa: BLE001 - raised again by `start`
            started.set_exception(error)
            return
        await self._stopping.wait()
        await self._close()
        self._stopped.set()

    async def _serve(self, app: FastAPI, bound: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        config = uvicorn.Config(
            app,
            http=connection_class(self._protection.head_seconds, self._protection.max_connections),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(STOP_SECONDS),
        )
        config.load()
        config.ssl = tls
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[bound]), name="api")
        self._running.append((server, task))
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Wait a few seconds for running requests, then close the servers. A second call does nothing."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        loop.call_soon_threadsafe(self._stopping.set)
        # Wait in another thread, because running requests can need the main loop.
        if not await asyncio.to_thread(self._stopped.wait, STOP_SECONDS + 4):
            _log.warning("API thread did not stop in time, stopping the sidecar without it")
        for app in self._apps:
            app.state.admission.audit.write_late()
        # Let the main loop write the audit records first that were passed to it.
        await asyncio.sleep(0)
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)

    async def _close(self) -> None:
        """Wait a few seconds for running requests, then abort the remaining connections."""
        for app in self._apps:
            app.state.streams.close()
        for server, _ in self._running:
            server.should_exit = True
        for server, task in self._running:
            _, late = await asyncio.wait([task], timeout=STOP_SECONDS + 2)
            if late:
                server.force_exit = True
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            for connection in list(server.server_state.connections):
                connection.transport.abort()  # accepted while the server stopped, or not finished in time


def _on_this_loop(trail: AuditTrail | None) -> AuditTrail | None:
    """Return a copy of `trail` for other threads: it passes records to the running loop, which writes the journal."""
    if trail is None:
        return None
    loop, record = asyncio.get_running_loop(), trail.record

    def hand_over(item: Mapping[str, Any]) -> None:
        loop.call_soon_threadsafe(record, item)

    return replace(trail, record=hand_over)


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ConfigError with the name of the setting if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"cannot resolve api.host {host!r}: {error}", field="api.host", value=host) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except OSError as error:
        bound.close()
        hint = "; another process listens there: choose another api.port" if error.errno == errno.EADDRINUSE else ""
        raise ConfigError(f"cannot listen on {host}:{port}: {error}{hint}", field="api.port", value=port) from None
    bound.setblocking(False)
    return bound


def bind_unix(path: Path) -> socket.socket:
    """Return a listening unix socket with mode 0600.

    Replaces a socket without a listening process. Raises ConfigError if a process listens, or the path is unusable.
    """
    _clear_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        bound.bind(str(path))
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise ConfigError(f"cannot listen on {path}: {error}", field="api.socket", value=str(path)) from None
    finally:
        os.umask(old)
    bound.setblocking(False)
    return bound


def _clear_stale(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot use {path}: {error}", field="api.socket", value=str(path)) from None
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} exists and is not a socket", field="api.socket", value=str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        if probe.connect_ex(str(path)) == 0:
            raise ConfigError(f"another sidecar listens on {path}", field="api.socket", value=str(path))
    path.unlink(missing_ok=True)
