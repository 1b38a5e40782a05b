"""Coordination in memory: what ZooKeeper promises, without ZooKeeper.

`MemoryStore` is the ensemble, each `MemoryCoordination` a sidecar with a session. A test may take sessions away,
cut single sidecars off or stop the whole store. Passes the same contract tests as the real adapter
(`tests/support/contracts/coordination.py`). Every call yields to the loop once, so that candidates interleave.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from bundlekeel.model.errors import LeadershipLost, StaleWrite, StoreError
from bundlekeel.model.members import Member
from bundlekeel.ports import Document, DocumentChange

_EPOCH, _LEADER, _SEATS = "epoch", "leader", "seats"
_WATCHED = (_LEADER, _SEATS, "desired", "requests")


@dataclass
class _Node:
    data: bytes
    version: int = 0
    owner: int = 0


class MemoryStore:
    """Nodes by relative path, and the sessions of all sidecars. `writes` counts changes that took effect."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Node] = {}
        self.writes = 0
        self.frozen = False
        self._clients: list[MemoryCoordination] = []
        self._sequence = 0
        self._sessions = 0

    # --- what a test may do --------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop responding until `thaw`; sessions stay."""
        self._set_frozen(True)

    def thaw(self) -> None:
        """Let the store respond again."""
        self._set_frozen(False)

    def suspend(self, client: MemoryCoordination) -> None:
        """Disconnect one sidecar. Its session continues until `expire`."""
        client._suspended = True
        client._changed.set()

    def resume(self, client: MemoryCoordination) -> None:
        """Connect it again, with a new session if the old one has expired."""
        client._suspended = False
        if client._session == 0:
            client._session = self._new_session()
        client._changed.set()

    def expire(self, client: MemoryCoordination) -> None:
        """End its session: its ephemeral nodes go. A sidecar that is not cut off gets a new session at once."""
        self._end_session(client)
        if not client._suspended:
            client._session = self._new_session()
        client._changed.set()

    # --- used by MemoryCoordination ------------------------------------------------------------------------

    def _set_frozen(self, frozen: bool) -> None:
        self.frozen = frozen
        for client in self._clients:
            client._changed.set()

    def _new_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def _join(self, client: MemoryCoordination) -> int:
        self._clients.append(client)
        return self._new_session()

    def _end_session(self, client: MemoryCoordination) -> None:
        paths = [path for path, node in self.nodes.items() if node.owner == client._session != 0]
        client._session = 0
        for path in paths:
            self._put(path, None)

    def _leave(self, client: MemoryCoordination) -> None:
        self._end_session(client)
        if client in self._clients:
            self._clients.remove(client)

    def _put(self, path: str, node: _Node | None) -> None:
        self.writes += 1
        if node is None:
            del self.nodes[path]
        else:
            self.nodes[path] = node
        if path.split("/", 1)[0] in _WATCHED:
            for client in self._clients:
                client._changed.set()

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence - 1


class MemoryCoordination:
    """One sidecar's view of a MemoryStore."""

    def __init__(self, store: MemoryStore, *, session_seconds: float = 10.0) -> None:
        self.store = store
        self._granted = session_seconds
        self._session = 0
        self._suspended = False
        self._started = False
        self._changed = asyncio.Event()
        self._changed.set()

    # States that prevent a connection.
    obstacle = ""

    @property
    def connected(self) -> bool:
        """Whether the store responds to calls now."""
        return self._session != 0 and not self._suspended and not self.store.frozen

    @property
    def session_seconds(self) -> float:
        """The session time-out given to the constructor; 0.0 before `start`."""
        return self._granted if self._started else 0.0

    async def start(self) -> None:
        """Open a session."""
        if not self._started:
            self._started = True
            self._session = self.store._join(self)

    async def close(self) -> None:
        """End the session."""
        self.store._leave(self)
        self._changed.set()

    async def take_seat(self, member: Member, *, seats: int) -> Member | None:
        await self._enter()
        for path, node in sorted(self.store.nodes.items()):
            if path.startswith(f"{_SEATS}/") and node.owner == self._session:
                member_seated = replace(member, seat=int(path.rpartition("/")[2]))
                if _encode(member_seated) != node.data:
                    self.store._put(path, _Node(_encode(member_seated), owner=self._session))
                return member_seated
        for number in range(seats):
            path = f"{_SEATS}/{number}"
            if path not in self.store.nodes:
                seated = replace(member, seat=number)
                self.store._put(path, _Node(_encode(seated), owner=self._session))
                return seated
        return None

    async def members(self) -> list[Member]:
        return sorted(
            (
                replace(_decode(node_path.data), seat=int(node_path.path.rpartition("/")[2]))
                for node_path in await self.read_tree(_SEATS)
            ),
            key=lambda member: member.seat,
        )

    async def leader(self) -> Member | None:
        await self._enter()
        node = self.store.nodes.get(_LEADER)
        return None if node is None else _decode(node.data)

    async def campaign(self, member: Member) -> int | None:
        await self._enter()
        node = self.store.nodes.get(_LEADER)
        if node is not None and node.owner != self._session:
            return None
        if node is not None:
            self.store._put(_LEADER, None)
        term = self.store.nodes.setdefault(_EPOCH, _Node(b"{}"))
        term.version += 1
        winner = replace(member, epoch=term.version)
        self.store._put(_LEADER, _Node(_encode(winner), owner=self._session))
        return winner.epoch

    async def still_leading(self, epoch: int) -> bool:
        await self._enter()
        return self._leads(epoch)

    async def resign(self, epoch: int) -> None:
        await self._enter()
        if self._leads(epoch):
            self.store._put(_LEADER, None)

    async def read(self, path: str) -> Document | None:
        _check_path(path)
        await self._enter()
        node = self.store.nodes.get(path)
        return None if node is None else Document(path=path, data=node.data, version=node.version)

    async def read_tree(self, path: str) -> list[Document]:
        _check_path(path)
        await self._enter()
        return [
            Document(path=node_path, data=node.data, version=node.version)
            for node_path, node in sorted(self.store.nodes.items())
            if node_path.rpartition("/")[0] == path
        ]

    async def stamps(self, paths: Sequence[str]) -> list[int | None]:
        for path in paths:
            _check_path(path)
        await self._enter()
        nodes = [self.store.nodes.get(path) for path in paths]
        return [None if node is None else hash((node.version, node.data)) for node in nodes]

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        for change in changes:
            _check_path(change.path)
        await self._enter()
        if self.store.nodes.setdefault(_EPOCH, _Node(b"{}")).version != epoch:
            raise LeadershipLost(f"epoch {epoch} is over")
        before = {path: replace(node) for path, node in self.store.nodes.items()}
        try:
            for change in changes:
                self._apply(change)
        except StaleWrite:
            self.store.nodes = before
            raise

    async def write_shared(self, path: str, data: bytes, *, version: int | None) -> int:
        _check_path(path)
        await self._enter()
        expected = -1 if version is None else version
        self._apply(DocumentChange(path=path, data=data, version=expected, create=version is None))
        return self.store.nodes[path].version

    async def create_sequential(self, path: str, data: bytes) -> str:
        _check_path(path)
        await self._enter()
        created = f"{path}{self.store._next():010d}"
        self.store._put(created, _Node(data))
        return created

    async def paths(self) -> list[str]:
        await self._enter()
        return sorted(self.store.nodes, reverse=True)

    async def erase(self, paths: Sequence[str]) -> None:
        await self._enter()
        if set(paths) != set(self.store.nodes):
            raise StaleWrite("other nodes are there")
        for path in paths:
            self.store._put(path, None)

    async def wait_changed(self, timeout: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()
                self._changed.clear()
                return True
        return False

    async def _enter(self) -> None:
        await asyncio.sleep(0)
        if not self.connected:
            raise StoreError("not connected to the store in memory")

    def _leads(self, epoch: int) -> bool:
        node = self.store.nodes.get(_LEADER)
        return node is not None and node.owner == self._session and self.store.nodes[_EPOCH].version == epoch

    def _apply(self, change: DocumentChange) -> None:
        node = self.store.nodes.get(change.path)
        if change.create:
            if node is not None or change.data is None:
                raise StaleWrite(f"{change.path} exists already")
            self.store._put(change.path, _Node(change.data))
            return
        if node is None or change.version not in (-1, node.version):
            raise StaleWrite(f"{change.path} is not at version {change.version}")
        if change.data is None:
            self.store._put(change.path, None)
        else:
            self.store._put(change.path, _Node(change.data, node.version + 1, node.owner))


def _check_path(path: str) -> None:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is no path below the root")


def _encode(member: Member) -> bytes:
    return json.dumps(asdict(member)).encode()


def _decode(data: bytes) -> Member:
    return Member(**json.loads(data))
