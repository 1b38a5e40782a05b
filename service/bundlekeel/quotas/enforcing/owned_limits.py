"""Record of the quota limits that Bundlekeel set, in the metadata store.

It is stored before each write to Pulsar, so that the next leader can complete or undo the changes of a failed leader.
Topics are distributed over store nodes by hash, so a cycle with few changes rewrites few nodes.

All nodes are fenced: a former leader cannot write them any more.

`quotas/held/...`    topic rates that Bundlekeel set, and the original ones
`quotas/native`      ResourceGroups that Bundlekeel set, and the original ones
`quotas/report/...`  the leader's last report on quota groups
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from bundlekeel.leader.state.documents import CHUNK_BYTES, SCHEMA, decode, encode, is_chunk, join, store_blob
from bundlekeel.model.errors import CodecError, StoreError
from bundlekeel.ports import Coordination, Document, DocumentChange
from bundlekeel.quotas.rules.rate_plan import OwnedRate, PolicyKey, Rate
from bundlekeel.quotas.rules.resource_group_plan import GroupBrokers, OwnedResourceGroup, ResourceGroup

T = TypeVar("T")
HELD: Final = "quotas/held"
NATIVE: Final = "quotas/native"
REPORT: Final = "quotas/report"
# Number of nodes. With 100,000 topics, a node has 3,000 policies, about 60 KB.
_NODES: Final = 64


class _Row(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    side: str
    group: str
    original: Rate | None
    ours: tuple[Rate, ...]


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA
    rows: list[_Row] = []


class _KeptGroup(msgspec.Struct, frozen=True, kw_only=True):
    original: ResourceGroup | None = None
    attached: dict[str, str] = {}
    serving: GroupBrokers = GroupBrokers()


class _Native(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA
    groups: dict[str, _KeptGroup] = {}


class OwnedLimits:
    """Reads and writes the record of topic rates and ResourceGroups that Bundlekeel set.

    Writes need the leader's epoch (number of its term). After a failed write, the next one reads the record again.
    """

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._nodes: dict[str, bytes] | None = None
        self._reports: list[Document] | None = None

    async def load(self) -> tuple[dict[PolicyKey, OwnedRate], dict[str, OwnedResourceGroup]]:
        """Return the topic rates and the ResourceGroups that Bundlekeel set.

        Raises StoreError, also if a record is unreadable, because rates without a record would never be restored."""
        documents = [item for item in await self._coordination.read_tree(HELD) if is_chunk(item.path)]
        self._nodes = {document.path: document.data for document in documents}
        owned: dict[PolicyKey, OwnedRate] = {}
        for document in documents:
            for row in _decoded(document, _Part).rows:
                place = PolicyKey(topic=row.topic, side=row.side)
                owned[place] = OwnedRate(group=row.group, original=row.original, ours=row.ours)
        native = await self._coordination.read(NATIVE)
        groups: Mapping[str, _KeptGroup] = {}
        if native is not None:
            self._nodes[NATIVE] = native.data
            groups = _decoded(native, _Native).groups
        owned_groups = {
            name: OwnedResourceGroup(original=item.original, attached=item.attached, serving=item.serving)
            for name, item in groups.items()
        }
        return owned, owned_groups

    async def store(self, epoch: int, owned: Mapping[PolicyKey, OwnedRate]) -> None:
        """Replace the record of set topic rates. Raises StoreError or LeadershipLost if the write fails."""
        rows: dict[str, list[_Row]] = defaultdict(list)
        for place, item in sorted(owned.items(), key=lambda pair: (pair[0].topic, pair[0].side)):
            node = f"{HELD}/{zlib.crc32(place.topic.encode()) % _NODES:04d}"
            rows[node].append(_Row(place.topic, place.side, item.group, item.original, item.ours))
        new_nodes = {node: encode(_Part(rows=part)) for node, part in rows.items()}
        nodes = await self._load_nodes()
        await self._write(
            epoch, new_nodes | {n: None for n in nodes if n.startswith(f"{HELD}/") and n not in new_nodes}
        )

    async def store_native(self, epoch: int, owned: Mapping[str, OwnedResourceGroup]) -> None:
        """Replace the record of set ResourceGroups. Raises StoreError or LeadershipLost if the write fails."""
        groups = {
            name: _KeptGroup(original=item.original, attached=dict(item.attached), serving=item.serving)
            for name, item in owned.items()
        }
        nodes = await self._load_nodes()
        if groups or NATIVE in nodes:
            await self._write(epoch, {NATIVE: encode(_Native(groups=groups)) if groups else None})

    async def store_report(self, epoch: int, report: Mapping[str, Any]) -> None:
        """Store the report on quota groups for followers. Raises StoreError or LeadershipLost if the write fails."""
        chunks, self._reports = self._reports, None
        if chunks is None:
            chunks = await self._coordination.read_tree(REPORT)
        self._reports = await store_blob(self._coordination, epoch, REPORT, report, chunks)

    async def read_report(self) -> dict[str, Any] | None:
        """Return the leader's last report; None: it is missing or unreadable. Raises StoreError if the store fails."""
        documents = await self._coordination.read_tree(REPORT)
        try:
            return decode(join(documents), dict, what=REPORT) if documents else None
        except CodecError:
            return None

    async def _load_nodes(self) -> dict[str, bytes]:
        if self._nodes is None:
            await self.load()
        return self._nodes or {}

    async def _write(self, epoch: int, changes_by_node: Mapping[str, bytes | None]) -> None:
        nodes = await self._load_nodes()
        self._nodes = None
        changes = [
            DocumentChange(path=node, data=data, create=node not in nodes)
            for node, data in sorted(changes_by_node.items())
            if nodes.get(node) != data
        ]
        for batch in _batches(changes):
            await self._coordination.write_fenced(epoch, batch)
        unchanged = {node: data for node, data in nodes.items() if node not in changes_by_node}
        self._nodes = unchanged | {node: data for node, data in changes_by_node.items() if data is not None}


async def check_documents(coordination: Coordination) -> None:
    """Raise StoreError if the record of the limits that Bundlekeel set cannot be read."""
    try:
        await OwnedLimits(coordination).load()
    except StoreError as error:
        raise StoreError(f"{HELD} or {NATIVE}: {error}") from error


def _batches(changes: list[DocumentChange]) -> Iterator[list[DocumentChange]]:
    """Divide changes into few transactions of limited size, because each transaction waits for the metadata store."""
    batch: list[DocumentChange] = []
    size = 0
    for change in changes:
        more = len(change.data or b"")
        if batch and size + more > CHUNK_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += more
    if batch:
        yield batch


def _decoded(document: Document, kind: type[T]) -> T:
    try:
        return decode(document.data, kind, what=document.path)
    except CodecError as error:
        raise StoreError(f"{error}; this record lists the topic rates to restore") from error
