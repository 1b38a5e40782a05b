"""Seats, leadership and shared state below Bundlekeel's root in ZooKeeper.

    {root}/seats/{n}   ephemeral, JSON Member: sidecars that may become leader
    {root}/leader      ephemeral, JSON Member with its epoch
    {root}/epoch       persistent; its *data version* is the epoch (number of the term of leadership)
    {root}/desired/*   lasting requests of operators, such as pins (compare-and-set by every sidecar)
    {root}/requests/*  single tasks that the leader executes once and removes
    {root}/state/*     state that the next leader needs; only the leader of the current epoch can write it

Leader node and epoch change in one transaction, so each epoch belongs to exactly one leader. Fenced writes check the
epoch. A check of the leader node's version would not be enough, because a new node starts at version 0 again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec

from bundlekeel.model.errors import CodecError, LeadershipLost, StaleWrite, StoreError
from bundlekeel.model.members import Member
from bundlekeel.model.numbers import integer
from bundlekeel.ports import Clock, Document, DocumentChange
from bundlekeel.pulsar.formats.external_input import check_ranges, read
from bundlekeel.pulsar.work import bounded
from bundlekeel.pulsar.zookeeper.client import (
    NodeExists,
    NodeMissing,
    Stat,
    TransactionFailed,
    TransactionStep,
    ZkClient,
)
from bundlekeel.pulsar.zookeeper.layout import NodeLayout
from bundlekeel.pulsar.zookeeper.watches import WatchSet, WatchTarget

SEATS, LEADER, EPOCH, DESIRED, REQUESTS, STATE = (
    "seats",
    "leader",
    "epoch",
    "desired",
    "requests",
    "state",
)


class ZkCoordination:
    """`ports.Coordination` over one ZooKeeper session, which it starts and closes. Seat and leadership end with it.

    `root`: absolute path below the client's chroot, e.g. `/bundlekeel/my-cluster`. Nothing outside of it is written. A
    write that fails with StoreError itself (not a subclass) may have taken effect: read again.
    """

    def __init__(self, client: ZkClient, *, root: str, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._layout = NodeLayout(client, root, folders=(SEATS, DESIRED, REQUESTS, STATE), files={EPOCH: b"{}"})
        path = self._layout.path
        self._watches = WatchSet(
            client,
            self._layout,
            (
                WatchTarget("node", path(LEADER)),
                WatchTarget("children", path(SEATS)),
                WatchTarget("children", path(DESIRED)),
                WatchTarget("node", path(DESIRED)),
                WatchTarget("children", path(REQUESTS)),
            ),
            followed=path(DESIRED),
        )

    # --- the session ---------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper is connected, as far as kazoo knows."""
        return self._client.connected

    @property
    def obstacle(self) -> str:
        """Reason why ZooKeeper is not connected; empty: unknown, or it is connected."""
        return self._client.obstacle

    @property
    def session_seconds(self) -> float:
        """The negotiated session time-out; 0.0 before the first session."""
        return self._client.negotiated_seconds

    async def start(self) -> None:
        """Connect in the background. Never raises for an unreachable store. The first write creates the root."""
        self._client.start()

    async def close(self) -> None:
        """Close the session, which ends seat and leadership."""
        self._watches.close()
        await self._client.close()

    # --- seats ---------------------------------------------------------------------------------------------

    async def take_seat(self, member: Member, *, seats: int) -> Member | None:
        """Occupy the lowest free seat (right to lead). If this session has a seat, update its data. Raises
        StoreError."""
        await self._layout.ensure()
        occupied = await self._seat_nodes()
        session = self._client.session_id
        for number, (data, stat) in sorted(occupied.items()):
            if stat.ephemeral_owner == session:
                updated = replace(member, seat=number)
                if _encode(updated) != data:
                    await self._client.set(self._seat_path(number), _encode(updated), version=-1)
                return updated
        for number in range(seats):
            if number in occupied:
                continue
            seated = replace(member, seat=number)
            try:
                await self._client.create(self._seat_path(number), _encode(seated), ephemeral=True)
            except NodeExists:
                continue
            return seated
        return None

    async def members(self) -> list[Member]:
        """Return the sidecars with a seat, by its number. Unreadable nodes are skipped. Raises StoreError."""
        occupied = await self._seat_nodes()
        members = [(number, _decode(data)) for number, (data, _) in sorted(occupied.items())]
        return [replace(member, seat=number) for number, member in members if member is not None]

    # --- leadership ----------------------------------------------------------------------------------------

    async def leader(self) -> Member | None:
        """Return the leading sidecar, or None. A failed leader stays until its session expires. Raises StoreError."""
        node = await self._client.get(self._layout.path(LEADER))
        return None if node is None else _decode(node[0]) or Member(id="")

    async def campaign(self, member: Member) -> int | None:
        """Try to become leader. Returns the new epoch; None: another sidecar leads or won the race.

        If the leader node belongs to this session already (a response was lost, or the last term was not resigned), it
        is replaced and a new epoch starts. A leader node of an earlier session of this process counts as another
        leader. After StoreError the outcome is unknown: call this again.
        """
        await self._layout.ensure()
        leader, epoch = self._layout.path(LEADER), self._layout.path(EPOCH)
        _, node, term = await asyncio.gather(
            self._client.sync(leader), self._client.exists(leader), self._client.exists(epoch)
        )
        if node is not None and node.ephemeral_owner != self._client.session_id:
            return None
        if term is None:
            self._layout.forget()
            raise StoreError(f"{epoch} is missing; the next attempt creates it again")
        winner = replace(member, epoch=term.version + 1)
        mark = msgspec.json.encode({"leader": member.id, "at_ms": self._clock.wall_ms()})
        steps = [
            TransactionStep(kind="set", path=epoch, data=mark, version=term.version),
            TransactionStep(kind="create", path=leader, data=_encode(winner), ephemeral=True),
        ]
        if node is not None:
            steps.insert(1, TransactionStep(kind="delete", path=leader))
        try:
            await self._client.transaction(steps)
        except TransactionFailed as failure:
            if failure.fault == "other":
                raise
            return None
        return winner.epoch

    async def still_leading(self, epoch: int) -> bool:
        """Return whether this session leads in term `epoch`, according to the store. Raises StoreError."""
        leader = self._layout.path(LEADER)
        _, node, term = await asyncio.gather(
            self._client.sync(leader),
            self._client.exists(leader),
            self._client.exists(self._layout.path(EPOCH)),
        )
        return self._is_ours(node) and term is not None and term.version == epoch

    async def resign(self, epoch: int) -> None:
        """Delete the leader node if this session owns it in this epoch. Raises StoreError if the result is unknown."""
        leader = self._layout.path(LEADER)
        if not self._is_ours(await self._client.exists(leader)):
            return
        try:
            await self._client.transaction(
                [
                    TransactionStep(kind="check", path=self._layout.path(EPOCH), version=epoch),
                    TransactionStep(kind="delete", path=leader),
                ]
            )
        except TransactionFailed as failure:
            if failure.fault == "other":
                raise

    # --- shared state --------------------------------------------------------------------------------------

    async def read(self, path: str) -> Document | None:
        """Return the current content of a node, not an outdated one; None: missing. Raises StoreError."""
        node = await self._client.get_synced(self._layout.path(path))
        return None if node is None else Document(path=path, data=node[0], version=node[1].version)

    async def read_tree(self, path: str) -> list[Document]:
        """Return a node's children with data, by path. Children may change during the read. Raises StoreError."""
        absolute = self._layout.path(path)
        _, names = await asyncio.gather(self._client.sync(absolute), self._client.children(absolute))
        ordered = sorted(names or ())
        nodes = await bounded([partial(self._client.get, f"{absolute}/{name}") for name in ordered])
        return [
            Document(path=f"{path}/{name}", data=node[0], version=node[1].version)
            for name, node in zip(ordered, nodes, strict=True)
            if node is not None
        ]

    async def stamps(self, paths: Sequence[str]) -> list[int | None]:
        """Return the last transaction that wrote each node; None: absent. One round trip. Raises StoreError."""
        absolute = [self._layout.path(path) for path in paths]
        # One sync is enough for all paths: it brings the whole server up to date.
        _, *stats = await asyncio.gather(self._client.sync(absolute[0]), *map(self._client.exists, absolute))
        return [None if stat is None else stat.mzxid for stat in stats]

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        """Apply all changes or none. Raises LeadershipLost if `epoch` is over, StaleWrite or StoreError."""
        check = TransactionStep(kind="check", path=self._layout.path(EPOCH), version=epoch)
        steps = [check, *(self._step(change) for change in changes)]
        await self._layout.ensure_parents([change.path for change in changes if change.create])
        try:
            await self._client.transaction(steps)
        except TransactionFailed as failure:
            if failure.fault == "other":
                raise
            if failure.index == 0:
                raise LeadershipLost(f"epoch {epoch} is over: {failure}") from failure
            if failure.fault == "missing":
                self._layout.forget()
            raise StaleWrite(str(failure)) from failure

    async def write_shared(self, path: str, data: bytes, *, version: int | None) -> int:
        """Replace a node of `version` (None: create it). Returns the new version. Raises StaleWrite or StoreError."""
        absolute = self._layout.path(path)
        if version is None:
            await self._create(path, data)
            return 0
        try:
            return (await self._client.set(absolute, data, version=version)).version
        except NodeMissing as missing:
            raise StaleWrite(f"{path} was deleted") from missing

    async def create_sequential(self, path: str, data: bytes) -> str:
        """Create the node `path` + ten digits and return its relative path. After StoreError the node may exist."""
        return self._layout.relative(await self._create(path, data, sequence=True))

    async def paths(self) -> list[str]:
        """Return every node below the root, children first. Nodes may change during the read. Raises StoreError."""
        await self._client.sync(self._layout.root)
        below_root, level = list[str](), [self._layout.root]
        while level:
            below = await bounded([partial(self._client.children, path) for path in level])
            level = [f"{path}/{name}" for path, names in zip(level, below, strict=True) for name in sorted(names or ())]
            below_root += level
        return [self._layout.relative(path) for path in reversed(below_root)]

    async def erase(self, paths: Sequence[str]) -> None:
        """Delete these nodes and the root, all or none. Raises StaleWrite if the existing nodes differ from `paths`."""
        absolute = [*map(self._layout.path, paths), self._layout.root]
        try:
            await self._client.transaction([TransactionStep(kind="delete", path=path) for path in absolute])
        except TransactionFailed as failure:
            if failure.fault == "other":
                raise
            raise StaleWrite(str(failure)) from failure
        self._layout.forget()

    async def wait_changed(self, timeout: float) -> bool:
        """Wait for a change of leader, seats, operators' requests or connection. Returns False after `timeout` seconds.

        May return True without a change, e.g. the first time. Never raises.
        """
        return await self._watches.wait(timeout)

    # --- inside --------------------------------------------------------------------------------------------

    async def _create(self, path: str, data: bytes, *, sequence: bool = False) -> str:
        await self._layout.ensure_parents([path])
        try:
            return await self._client.create(self._layout.path(path), data, sequence=sequence)
        except NodeMissing:
            self._layout.forget()  # another client deleted the directory: create it again at the next attempt
            raise

    def _step(self, change: DocumentChange) -> TransactionStep:
        path = self._layout.path(change.path)
        if change.data is None:
            return TransactionStep(kind="delete", path=path, version=change.version)
        if change.create:
            return TransactionStep(kind="create", path=path, data=change.data)
        return TransactionStep(kind="set", path=path, data=change.data, version=change.version)

    def _seat_path(self, number: int) -> str:
        return self._layout.path(f"{SEATS}/{number}")

    async def _seat_nodes(self) -> dict[int, tuple[bytes, Stat]]:
        """Return the nodes of the seats by number. Nodes with other names are ignored."""
        names = await self._client.children(self._layout.path(SEATS)) or []
        numbers = [number for name in names if (number := _seat(name)) is not None]
        nodes = await bounded([partial(self._client.get, self._seat_path(number)) for number in numbers])
        return {number: node for number, node in zip(numbers, nodes, strict=True) if node is not None}

    def _is_ours(self, node: Stat | None) -> bool:
        return node is not None and node.ephemeral_owner == self._client.session_id


def _seat(name: str) -> int | None:
    """Return the seat's number from the name of its node; None: it is not the name of a seat."""
    with suppress(CodecError):
        number = integer(name, field=SEATS)
        return number if str(number) == name else None
    return None


def _encode(member: Member) -> bytes:
    return msgspec.json.encode(member)


def _decode(data: bytes) -> Member | None:
    """Decode a member written by a sidecar of any version. Unknown fields are ignored; None: unreadable."""
    try:
        member = read(data, Member, what="the member")
        check_ranges(member, what="the member")
        return member
    except CodecError:
        return None
