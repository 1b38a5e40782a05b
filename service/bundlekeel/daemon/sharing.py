"""Shared state: what a new leader takes over, what followers show, what people want, and requests left for the leader.

Leader state is epoch-fenced; desired state may be written by any replica with compare-and-set, so that an emergency
stop never waits for a leader (design section 7).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import structlog

from bundlekeel.core.errors import StaleWrite, StoreError
from bundlekeel.core.guard import Moved
from bundlekeel.core.ledger import dropped, landed
from bundlekeel.daemon.cycle import Standing
from bundlekeel.daemon.documents import (
    AveragesPart,
    Desired,
    LeaderState,
    decode,
    encode,
    join,
    store_blob,
)
from bundlekeel.daemon.leadership import Leadership
from bundlekeel.ports import Change, Clock, Coordination, Document, Member

_log = structlog.get_logger(__name__)

DESIRED, STATE, AVERAGES, MOVES, TERM = "desired", "state/leader", "state/averages", "moves", "state/term"
KEPT_MOVES = 10_000
MOVES_PER_CHUNK = 500
_CAS_TRIES = 5


class Sharing:
    """One sidecar's view of, and hand on, the shared state. Implements `cycle.Term`."""

    def __init__(
        self,
        coordination: Coordination,
        leadership: Leadership,
        clock: Clock,
        *,
        kept_moves: int = KEPT_MOVES,
        moves_per_chunk: int = MOVES_PER_CHUNK,
    ) -> None:
        self._coordination = coordination
        self._leadership = leadership
        self._clock = clock
        self.desired = Desired()
        self.frozen: frozenset[str] = frozenset()
        self.shared = LeaderState()
        self.tasks: list[dict[str, Any]] = []
        self._kept_moves = kept_moves
        self._moves_per_chunk = moves_per_chunk
        self.moves: deque[dict[str, Any]] = deque(maxlen=kept_moves)
        self._chunks: dict[str, list[Document]] = {}
        self._open_chunk: list[dict[str, Any]] = []
        self._open_index = 0
        self._saving = asyncio.Lock()

    @property
    def leading(self) -> bool:
        """Whether we lead now, by our own deadline."""
        return self._leadership.leading

    def current_epoch(self) -> int:
        """The epoch; LeadershipLost when we do not lead."""
        return self._leadership.current_epoch()

    # --- reading ---

    async def refresh(self) -> None:
        """Read the desired state, and on a follower what the leader last stored. StoreError when it cannot be read."""
        document = await self._coordination.read(DESIRED)
        self.desired = (decode(document.data, Desired) if document else None) or Desired()
        if not self.leading:
            await self._read_leader_state()

    async def _read_leader_state(self) -> None:
        documents = await self._coordination.read_tree(STATE)
        self._chunks[STATE] = documents
        found = decode(join(documents), LeaderState) if documents else None
        if found is None:
            return
        newer = (found.epoch, found.wall_ms) != (self.shared.epoch, self.shared.wall_ms)
        self.shared = found
        self.tasks = list(found.tasks)
        if newer:
            await self._read_moves()

    async def _read_moves(self) -> None:
        records: list[dict[str, Any]] = []
        last_index, last_chunk = 0, []
        for document in await self._coordination.read_tree(MOVES):
            chunk = decode(document.data, list) or []
            records.extend(chunk)
            last_index, last_chunk = int(document.path.rpartition("/")[2]), chunk
        self.moves = deque(records, maxlen=self._kept_moves)
        self._open_index, self._open_chunk = last_index, list(last_chunk)

    def standing(self) -> Standing:
        """What the last leader left, as the start of our own cycles."""
        shared = self.shared
        return Standing(cycle=shared.cycle, memory=shared.memory, ledger=shared.ledger, recent=shared.recent)

    def taken_over(self) -> Standing:
        """The same as the start of a term: moves that ended after the last leader stored it are booked by their
        records, and those that never began (neither intent nor record) are forgotten."""
        standing = self.standing()
        ledger, recent = standing.ledger, dict(standing.recent)
        ended = {record["bundle"]: record for record in self.moves}
        for entry in standing.ledger.entries:
            if entry.landed_ms or entry.bundle in self.frozen:
                continue
            record = ended.get(entry.bundle)
            if record is None or record["started_ms"] < entry.opened_ms or record["outcome"] == "refused":
                ledger = dropped(ledger, entry.bundle)
                continue
            recent[entry.bundle] = Moved(at_ms=record["wall_ms"], source=entry.source)
            if record["landed_on"]:
                ledger = landed(ledger, entry.bundle, record["landed_on"], record["landed_ms"])
        return replace(standing, ledger=ledger, recent=recent)

    async def read_averages(self) -> AveragesPart | None:
        """The last checkpoint of the averages, or None."""
        documents = await self._coordination.read_tree(AVERAGES)
        self._chunks[AVERAGES] = documents
        return decode(join(documents), AveragesPart) if documents else None

    # --- a new term ---

    async def begin_term(self, epoch: int) -> None:
        """The first fenced write of a term, then everything the last leader left."""
        note = {"epoch": epoch, "member": self._leadership.member.id, "wall_ms": self._clock.wall_ms()}
        exists = await self._coordination.read(TERM) is not None
        change = Change(path=TERM, data=msgspec.json.encode(note), create=not exists)
        await self._coordination.write_fenced(epoch, [change])
        await self._read_leader_state()
        # The last leader may have recorded moves after it stored its state: our chunk must hold them.
        await self._read_moves()

    # --- writing, leader only ---

    async def save(self, standing: Standing, report: Mapping[str, Any]) -> None:
        """Store the leader's standing and its last report; nothing when we do not lead."""
        if not self.leading:
            return
        async with self._saving:
            epoch = self.current_epoch()
            state = LeaderState(
                epoch=epoch,
                cycle=standing.cycle,
                wall_ms=self._clock.wall_ms(),
                memory=standing.memory,
                ledger=standing.ledger,
                recent=dict(standing.recent),
                report=dict(report),
                tasks=self.tasks[-50:],
            )
            self._chunks[STATE] = await store_blob(self._coordination, epoch, STATE, state, await self._known(STATE))
            self.shared = state

    async def save_averages(self, part: AveragesPart) -> None:
        """Store a checkpoint of the averages."""
        if self.leading:
            self._chunks[AVERAGES] = await store_blob(
                self._coordination, self.current_epoch(), AVERAGES, part, await self._known(AVERAGES)
            )

    async def _known(self, path: str) -> list[Document]:
        if path not in self._chunks:
            self._chunks[path] = await self._coordination.read_tree(path)
        return self._chunks[path]

    def move_change(self, record: dict[str, Any]) -> list[Change]:
        """The fenced changes that add one move record; they go into the same write that removes its intent."""
        self.moves.append(record)
        fresh = not self._open_chunk
        self._open_chunk.append(record)
        path = f"{MOVES}/{self._open_index:08d}"
        changes = [Change(path=path, data=encode(self._open_chunk), create=fresh)]
        if len(self._open_chunk) >= self._moves_per_chunk:
            self._open_index += 1
            self._open_chunk = []
            expired = self._open_index - self._kept_moves // self._moves_per_chunk - 1
            if expired >= 0:
                changes.append(Change(path=f"{MOVES}/{expired:08d}", data=None))
        return changes

    # --- writing, any replica ---

    async def change_desired(self, change: Callable[[Desired], Desired]) -> Desired:
        """Read, change, compare-and-set; a few tries when several people write at once. StoreError when it fails."""
        for _ in range(_CAS_TRIES):
            document = await self._coordination.read(DESIRED)
            current = (decode(document.data, Desired) if document else None) or Desired()
            wanted = change(current)
            try:
                await self._coordination.write_shared(
                    DESIRED, encode(wanted), version=document.version if document else None
                )
            except StaleWrite:
                continue
            self.desired = wanted
            return wanted
        raise StoreError("the desired state changes faster than it can be written; try again")

    async def leave_request(self, body: Mapping[str, Any]) -> str:
        """Leave a request for the leader, whoever that is; returns its id."""
        path = await self._coordination.create_sequential("requests/req-", msgspec.json.encode(body))
        return path.rpartition("/")[2]

    async def take_requests(self) -> list[tuple[str, dict[str, Any]]]:
        """Requests waiting for the leader, oldest first: (id, body). Unreadable ones come with an empty body."""
        found = []
        for document in await self._coordination.read_tree("requests"):
            try:
                body = msgspec.json.decode(document.data)
            except msgspec.DecodeError:
                body = {}
            found.append((document.path.rpartition("/")[2], body if isinstance(body, dict) else {}))
        return found

    async def close_request(self, request_id: str, task: dict[str, Any]) -> None:
        """Remove a request and remember its task, in one fenced write."""
        self.tasks = [item for item in self.tasks if item.get("task") != request_id] + [task]
        await self._coordination.write_fenced(self.current_epoch(), [Change(path=f"requests/{request_id}", data=None)])

    def leader_member(self) -> Member | None:
        """Who leads, as far as we know."""
        return self._leadership.leader
