"""One ZooKeeper session for asyncio: a thin wrapper around kazoo, and the only module that imports it.

kazoo uses its own threads. Each call here passes a request to kazoo and awaits a future that a kazoo thread completes
through `call_soon_threadsafe`. Nothing waits in the event loop's thread. This wrapper closes the following gaps of
kazoo 2.11 (found in its sources and confirmed with a real ZooKeeper):

* While disconnected, kazoo queues calls without limit. Here they fail immediately.
* Calls have no time limit in kazoo. Here each call has one. A call that timed out may still take effect later, so its
  outcome is unknown, as after a lost connection.
* kazoo counts requests as pings, so a client with regular requests never detects a server that does not respond. Here
  such a connection is cut.
* Connecting may take a whole session time-out per host, which would end the session. Here this time is shorter.
* The negotiated session time-out is a local variable of the connect routine. Here it is read from the reply.
* An unexpected exception ends kazoo's thread. Here the thread is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry

from bundlekeel.model.errors import StaleWrite, StoreError
from bundlekeel.pulsar.zookeeper.connection import ANONYMOUS, StoreIdentity, cut

RECONNECT_FIRST_SECONDS = 0.1
RECONNECT_MAX_SECONDS = 3.0
# ZooKeeper's default jute.maxbuffer is 1 MiB. The server drops the connection at a larger request, so it is not sent.
MAX_REQUEST_BYTES = 1_000_000
_STEP_OVERHEAD_BYTES = 100

Connection = Literal["connected", "suspended", "lost"]

_CONNECTIONS: dict[Any, Connection] = {
    KazooState.CONNECTED: "connected",
    KazooState.SUSPENDED: "suspended",
    KazooState.LOST: "lost",
}

Watch = Callable[[], None]


# Errors and types for callers. Everything from kazoo is translated into these.


class Stat(NamedTuple):
    """ZooKeeper's statistics of a node.

    `mzxid`: the last transaction that wrote the data; a deleted and recreated node has a new one, too. `version`:
    number of writes since creation. `ephemeral_owner`: session id or 0. `mtime_ms`: time of the last write by the
    server's clock.
    """

    mzxid: int
    version: int
    ephemeral_owner: int
    mtime_ms: int


class NodeMissing(StoreError):
    """The node (or its parent) does not exist."""


class NodeExists(StaleWrite):
    """The node to create exists already."""


class VersionMismatch(StaleWrite):
    """The node's data version is not the expected one."""


Fault = Literal["bad_version", "missing", "exists", "not_empty", "other"]


class TransactionFailed(StoreError):
    """ZooKeeper rejected a whole transaction, because its step `index` failed for the reason `fault`."""

    def __init__(self, message: str, *, index: int, fault: Fault) -> None:
        super().__init__(message)
        self.index = index
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStep:
    """One step of a transaction. `version`: required version of the node; -1: any. `ephemeral`: only for `create`."""

    kind: Literal["check", "create", "set", "delete"]
    path: str
    data: bytes = b""
    version: int = -1
    ephemeral: bool = False


class ZkClient:
    """A session with ZooKeeper below a chroot. Call every method in the event loop's thread.

    `session_seconds`: the requested session time-out; the server may grant another one (`negotiated_seconds`). Reads of
    a missing node return None. All errors are StoreError or its subclasses.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str,
        *,
        session_seconds: float,
        call_timeout_seconds: float,
        identity: StoreIdentity = ANONYMOUS,
    ) -> None:
        # The event loop in which `start` is called. Requests are possible only after that.
        self._loop: asyncio.AbstractEventLoop
        self.hosts = hosts
        self.chroot = chroot
        self._call_timeout = call_timeout_seconds
        self._session_seconds = session_seconds
        self._negotiated_ms = 0
        self._listeners: list[Callable[[Connection], None]] = []
        self._started = False
        self._closing = False
        self._in_flight = 0
        self._silent_since = 0.0
        self._obstacle = ""
        self._kazoo: Any = self._build(identity)

    # --- the session -------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether kazoo has a connection now. If the server stops responding, this stays true for a while."""
        return bool(self._kazoo.connected) and not self._closing

    @property
    def obstacle(self) -> str:
        """Reason why ZooKeeper is not connected; empty: unknown, or it is connected."""
        return "" if self.connected else self._obstacle

    @property
    def session_id(self) -> int | None:
        """The session's id (the `ephemeral_owner` of its nodes); None: not connected."""
        identity = self._kazoo.client_id
        return None if identity is None else int(identity[0])

    @property
    def negotiated_seconds(self) -> float:
        """The session time-out that the server granted, in seconds; 0.0 before the first session."""
        return self._negotiated_ms / 1000

    def add_listener(self, listener: Callable[[Connection], None]) -> None:
        """Call `listener` on the event loop at each change of the connection."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[Connection], None]) -> None:
        """Stop calling `listener`. An unknown listener is ignored."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def start(self) -> None:
        """Connect in the background, with endless retries and growing pauses. Never raises for an unreachable store."""
        if not self._started:
            self._started = True
            self._loop = asyncio.get_running_loop()
            self._kazoo.start_async()

    async def close(self) -> None:
        """End the session (its ephemeral nodes disappear) and all threads. Never waits for a hung server."""
        if self._closing:
            return
        self._closing = True
        if not self._started:
            return
        done = self._loop.create_future()
        # A daemon thread and not an executor: an unresponsive server must not keep the process from ending.
        threading.Thread(target=self._stop_in_thread, args=(done,), daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._call_timeout):
                await asyncio.shield(done)
                return
        self._cut_connection()  # so that kazoo does not wait for the response to its last request
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._call_timeout):
                await done

    # --- reads -------------------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """Return a node's data and statistics; None: it is missing. `watch` is called once at its next change."""
        try:
            data, stat = await self._call("get", path, self._kazoo.get_async, path, watch=self._watcher(watch))
        except NodeMissing:
            return None
        return data, _stat(stat)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return a node's statistics. `watch` is called once when it is created, changed or deleted."""
        stat = await self._call("exists", path, self._kazoo.exists_async, path, watch=self._watcher(watch))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Return the names of a node's children, unsorted; None: the node is missing (then no watch is set)."""
        try:
            names = await self._call("children", path, self._kazoo.get_children_async, path, watch=self._watcher(watch))
        except NodeMissing:
            return None
        return [str(name) for name in names]

    async def sync(self, path: str) -> None:
        """Bring the connected server up to date with the ensemble.

        Reads that are sent after this call, even before it returns, are current.
        """
        await self._call("sync", path, self._kazoo.sync_async, path)

    async def get_synced(self, path: str) -> tuple[bytes, Stat] | None:
        """Return a node's data and statistics after a `sync`; None: it is missing. Takes one round trip."""
        # ZooKeeper answers a session's requests in the order sent, and `gather` starts its tasks in order.
        _, node = await asyncio.gather(self.sync(path), self.get(path))
        return node

    # --- writes ------------------------------------------------------------------------------------------

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node and return its path. Raises NodeExists, NodeMissing (no parent) or StoreError."""
        self._check_size(path, len(data))
        created = await self._call(
            "create", path, self._kazoo.create_async, path, data, ephemeral=ephemeral, sequence=sequence
        )
        return str(created)

    async def set(self, path: str, data: bytes, *, version: int) -> Stat:
        """Replace a node's data if it has `version` (-1: any). Raises VersionMismatch, NodeMissing or StoreError."""
        self._check_size(path, len(data))
        return _stat(await self._call("set", path, self._kazoo.set_async, path, data, version))

    async def transaction(self, steps: Sequence[TransactionStep]) -> list[Stat | None]:
        """Apply all steps or none. Returns new statistics of `set` steps. Raises TransactionFailed or StoreError."""
        first = steps[0].path
        self._check_size(first, sum(len(step.data) + _STEP_OVERHEAD_BYTES for step in steps))
        request = self._kazoo.transaction()
        for step in steps:
            if step.kind == "check":
                request.check(step.path, step.version)
            elif step.kind == "create":
                request.create(step.path, step.data, ephemeral=step.ephemeral)
            elif step.kind == "set":
                request.set_data(step.path, step.data, step.version)
            else:
                request.delete(step.path, step.version)
        results = await self._call("transaction", first, request.commit_async)
        for index, (step, result) in enumerate(zip(steps, results, strict=True)):
            # Find the failed step: steps before it have RolledBack as result, steps after it RuntimeInconsistency.
            if isinstance(result, KazooException) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                message = f"transaction: step {index} ({step.kind} {step.path}) failed: {_words(result)}"
                raise TransactionFailed(message, index=index, fault=_fault(result))
        if any(isinstance(result, KazooException) for result in results):
            raise StoreError("transaction: rolled back without a reason")
        return [_stat(r) if s.kind == "set" else None for s, r in zip(steps, results, strict=True)]

    # --- inside ------------------------------------------------------------------------------------------

    def _build(self, identity: StoreIdentity) -> Any:
        handler = SequentialThreadingHandler()
        kazoo = KazooClient(
            hosts=self.hosts + self.chroot,
            timeout=self._session_seconds,
            handler=handler,
            connection_retry=KazooRetry(max_tries=-1, delay=RECONNECT_FIRST_SECONDS, max_delay=RECONNECT_MAX_SECONDS),
            **identity.options(),
        )
        # kazoo detects a dead connection when a third of the session time-out is left. Attempts at all hosts must fit
        # in it.
        limit = max(0.5, self._session_seconds / 3 / len(kazoo.hosts))
        identity.secure(kazoo, limit, self._note)
        invoke = kazoo._connection._invoke

        def recording_invoke(timeout: float, request: Any, xid: int | None = None) -> Any:
            answer = invoke(timeout, request, xid)
            if isinstance(request, Connect):
                self._negotiated_ms = max(0, int(answer[0].time_out)) or self._negotiated_ms
            return answer

        kazoo._connection._invoke = recording_invoke
        kazoo.add_listener(self._on_state)
        return kazoo

    async def _call(self, verb: str, path: str, start: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Pass a request to kazoo and await its response within the time limit."""
        if not self.connected:
            why = f": {self._obstacle}" if self._obstacle else ""
            raise StoreError(f"{verb} {path}: not connected to ZooKeeper at {self.hosts}{why}")
        try:
            request = start(*args, **options)
        except (TypeError, ValueError) as error:
            # kazoo does not send some paths, such as one with `..` in it.
            raise StoreError(f"{verb} {path!r}: {error}") from None
        if self._in_flight == 0:
            self._silent_since = self._loop.time()
        self._in_flight += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        request.rawlink(partial(self._in_kazoo_thread, future))
        try:
            async with asyncio.timeout(self._call_timeout):
                return await future
        except TimeoutError:
            self._cut_if_silent()
            raise StoreError(f"{verb} {path}: no answer from ZooKeeper within {self._call_timeout:g} s") from None
        except (KazooException, KazooTimeoutError) as error:
            raise _translated(verb, path, error) from error

    def _in_kazoo_thread(self, future: asyncio.Future[Any], result: Any) -> None:
        self._post(self._deliver, future, result)

    def _deliver(self, future: asyncio.Future[Any], result: Any) -> None:
        self._in_flight -= 1
        self._silent_since = self._loop.time()
        if future.done():
            return
        if result.exception is not None:
            future.set_exception(result.exception)
        else:
            future.set_result(result.value)

    def _watcher(self, watch: Watch | None) -> Callable[[Any], None] | None:
        """Return a kazoo watch that calls `watch` on the event loop, except for changes of the connection."""
        if watch is None:
            return None

        def fired(event: Any) -> None:
            if event.type != EventType.NONE:
                self._post(watch)

        return fired

    def _on_state(self, state: Any) -> None:
        self._post(self._announce, _CONNECTIONS[state])

    def _announce(self, connection: Connection) -> None:
        for listener in list(self._listeners):
            listener(connection)
        if connection == "lost" and not self._closing:
            self._loop.call_later(RECONNECT_MAX_SECONDS, self._revive)

    def _revive(self) -> None:
        """Start kazoo again if an unexpected exception has ended its thread."""
        if not self._closing and self._kazoo._connection.connection_stopped.is_set():
            threading.Thread(target=self._kazoo.start_async, daemon=True).start()

    def _cut_if_silent(self) -> None:
        """Drop a connection without a response for half the session time-out, so that kazoo tries another host."""
        if self._loop.time() - self._silent_since >= self.negotiated_seconds / 2:
            self._cut_connection()

    def _cut_connection(self) -> None:
        connection = self._kazoo._connection._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                cut(connection)

    def _note(self, obstacle: str) -> None:
        self._obstacle = obstacle

    def _stop_in_thread(self, done: asyncio.Future[None]) -> None:
        # kazoo raises if its writer thread does not stop, or if the session is over. Neither matters at the end.
        with contextlib.suppress(KazooException, OSError):
            self._kazoo.stop()
            self._kazoo.close()
        self._post(_finish, done)

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback` on the event loop, from any thread. Do nothing if the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _check_size(self, path: str, size: int) -> None:
        if size > MAX_REQUEST_BYTES:
            raise StoreError(f"{path}: {size} bytes in one request, ZooKeeper takes {MAX_REQUEST_BYTES}")


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _stat(stat: Any) -> Stat:
    return Stat(
        mzxid=stat.mzxid,
        version=stat.version,
        ephemeral_owner=stat.ephemeralOwner or 0,
        mtime_ms=stat.mtime,
    )


def _words(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()


def _fault(error: KazooException) -> Fault:
    if isinstance(error, BadVersionError):
        return "bad_version"
    if isinstance(error, NoNodeError):
        return "missing"
    if isinstance(error, NotEmptyError):
        return "not_empty"
    return "exists" if isinstance(error, NodeExistsError) else "other"


def _translated(verb: str, path: str, error: BaseException) -> StoreError:
    message = f"{verb} {path}: {_words(error)}"
    if isinstance(error, NoNodeError):
        return NodeMissing(message)
    if isinstance(error, NodeExistsError):
        return NodeExists(message)
    if isinstance(error, BadVersionError):
        return VersionMismatch(message)
    return StoreError(message)
