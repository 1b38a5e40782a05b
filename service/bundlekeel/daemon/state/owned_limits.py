"""What quotas changed at the brokers, in the shared state: stored before each write, so that the next leader
completes or gives back what a dead leader began.

Places lie in nodes by a hash of their topic: a cycle that changes a few rewrites a few nodes.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from bundlekeel.core.model.errors import CodecError, StoreError
from bundlekeel.core.quotas.enforce import OwnedRate, PolicyKey, Rate
from bundlekeel.core.quotas.native import GroupBrokers, OwnedResourceGroup, ResourceGroup
from bundlekeel.daemon.state.documents import CHUNK_BYTES, SCHEMA, decode, encode, is_chunk, join, store_blob
from bundlekeel.ports import Coordination, Document, DocumentChange

T = TypeVar("T")
HELD: Final = "quotas/held"
NATIVE: Final = "quotas/native"
REPORT: Final = "quotas/report"
# 100,000 topics give 3,000 places a node, about 60 KB.
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
    """Reads and writes both; writing needs an epoch. After a failed write what there is is read again."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._nodes: dict[str, bytes] | None = None
        self._reports: list[Document] | None = None

    async def load(self) -> tuple[dict[PolicyKey, OwnedRate], dict[str, OwnedResourceGroup]]:
        """What is held by topic policies and by ResourceGroups. StoreError, also when it cannot be understood: to take
        it for nothing would leave rates behind for good."""
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
        kept = {
            name: OwnedResourceGroup(original=item.original, attached=item.attached, serving=item.serving)
            for name, item in groups.items()
        }
        return owned, kept

    async def store(self, epoch: int, owned: Mapping[PolicyKey, OwnedRate]) -> None:
        """Make the store hold exactly these places. Fenced; StoreError, LeadershipLost."""
        rows: dict[str, list[_Row]] = defaultdict(list)
        for place, item in sorted(owned.items(), key=lambda pair: (pair[0].topic, pair[0].side)):
            node = f"{HELD}/{zlib.crc32(place.topic.encode()) % _NODES:04d}"
            rows[node].append(_Row(place.topic, place.side, item.group, item.original, item.ours))
        wanted = {node: encode(_Part(rows=found)) for node, found in rows.items()}
        known = await self._known()
        await self._write(epoch, wanted | {n: None for n in known if n.startswith(f"{HELD}/") and n not in wanted})

    async def store_native(self, epoch: int, kept: Mapping[str, OwnedResourceGroup]) -> None:
        """Make the store hold exactly these ResourceGroups. Fenced; StoreError, LeadershipLost."""
        groups = {
            name: _KeptGroup(original=item.original, attached=dict(item.attached), serving=item.serving)
            for name, item in kept.items()
        }
        known = await self._known()
        if groups or NATIVE in known:
            await self._write(epoch, {NATIVE: encode(_Native(groups=groups)) if groups else None})

    async def store_report(self, epoch: int, report: Mapping[str, Any]) -> None:
        """How groups fare, for followers. Fenced; StoreError, LeadershipLost."""
        known, self._reports = self._reports, None
        if known is None:
            known = await self._coordination.read_tree(REPORT)
        self._reports = await store_blob(self._coordination, epoch, REPORT, report, known)

    async def read_report(self) -> dict[str, Any] | None:
        """What the leader stored last, None before. StoreError."""
        documents = await self._coordination.read_tree(REPORT)
        try:
            return decode(join(documents), dict, what=REPORT) if documents else None
        except CodecError:
            return None

    async def _known(self) -> dict[str, bytes]:
        if self._nodes is None:
            await self.load()
        return self._nodes or {}

    async def _write(self, epoch: int, wanted: Mapping[str, bytes | None]) -> None:
        known = await self._known()
        self._nodes = None
        changes = [
            DocumentChange(path=node, data=data, create=node not in known)
            for node, data in sorted(wanted.items())
            if known.get(node) != data
        ]
        for batch in _batches(changes):
            await self._coordination.write_fenced(epoch, batch)
        kept = {node: data for node, data in known.items() if node not in wanted}
        self._nodes = kept | {node: data for node, data in wanted.items() if data is not None}


def _batches(changes: list[DocumentChange]) -> Iterator[list[DocumentChange]]:
    """As many at a time as a transaction carries: each is one wait for the store."""
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
        raise StoreError(f"{error}; it says which rates of topics to give back") from error
