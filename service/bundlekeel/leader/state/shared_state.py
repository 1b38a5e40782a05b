"""Shared state: the leader's state for its successor and followers, operators' requests, requests to the leader.

Only the current leader can write the leader's state. Any replica can write the operators' requests, with
compare-and-set, so that an emergency stop never waits for a leader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec
import structlog

from bundlekeel.leader.state.adopted_thresholds import Realised
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.documents import (
    AveragesPart,
    Desired,
    LeaderState,
    Pause,
    decode,
    decode_moves,
    decode_request,
    decode_state,
    delete_chunks,
    encode,
    is_chunk,
    rewritten,
    store_blob,
)
from bundlekeel.leader.state.leadership import Leadership
from bundlekeel.leader.state.rebase import rebased
from bundlekeel.leader.state.takeover_record import FAILSAFE, TAKEOVER, TakeoverRecord, decode_look, decode_takeover
from bundlekeel.model.averages import Averages
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, StaleWrite, StoreError
from bundlekeel.model.load import BundleAverages
from bundlekeel.model.numbers import integer
from bundlekeel.planning.guard.state import RecentMove
from bundlekeel.planning.ledger import dropped, landed
from bundlekeel.ports import Clock, Coordination, Document, DocumentChange
from bundlekeel.pulsar.formats import external_input

_log = structlog.get_logger(__name__)

DESIRED, STATE, AVERAGES, MOVES, TERM = "desired", "state/leader", "state/averages", "moves", "state/term"
# The first chunk of the leader's state: every save writes it.
STATE_HEAD = f"{STATE}/0000"
REQUESTS = "requests"
KEPT_MOVES = 10_000
MOVES_PER_CHUNK = 500
# About 220 KB per node.
BUNDLES_PER_CHUNK = 2_000
KEPT_TASKS = 50
_CAS_TRIES = 5
# A follower reads a state at most this long after it was stored. A longer time means another clock, or no leader.
_READ_WITHIN_MS = 2_000
# Characters of a foreign document's path that are shown.
_MOST_PATH = 60
_FOREIGN = "its name is not that of a chunk: four digits"
# Outcomes after which the target does not have the load of the move.
NOT_BOOKED = ("refused", "released")


class SharedState:
    """Reads and writes the shared state for one sidecar, and holds what was read last."""

    def __init__(
        self,
        coordination: Coordination,
        leadership: Leadership,
        clock: Clock,
        *,
        on_takeover: Callable[[TakeoverRecord], None] = lambda _record: None,
        kept_moves: int = KEPT_MOVES,
        moves_per_chunk: int = MOVES_PER_CHUNK,
    ) -> None:
        """`on_takeover`: called when another process has stored a takeover or the end of a takeover."""
        self._coordination = coordination
        self._leadership = leadership
        self._clock = clock
        self.desired = Desired()
        self.takeover: TakeoverRecord | None = None
        self._on_takeover = on_takeover
        self._takeover_seen = False
        self.failsafe_look_ms = 0
        self.frozen: frozenset[str] = frozenset()
        # Unreadable documents below Bundlekeel's root, by directory: path -> reason.
        self.unreadable: dict[str, dict[str, str]] = {}
        self.shared = LeaderState()
        self.tasks: list[dict[str, Any]] = []
        # Recent balance of the cluster, and the start of the wait for proposals of thresholds (see `LeaderState`).
        self.realised, self.awaited_ms = Realised(), 0
        self._kept_moves = kept_moves
        self._moves_per_chunk = moves_per_chunk
        self.moves: deque[dict[str, Any]] = deque(maxlen=kept_moves)
        self._chunks: dict[str, list[Document]] = {}
        # Version of each document at its last read.
        self._stamps: dict[str, int | None] = {}
        self._open_chunk: list[dict[str, Any]] = []
        self._open_index = self._oldest_index = 0
        self._chunk_stored = False
        self._decoded_moves: dict[str, tuple[bytes, list[dict[str, Any]]]] = {}  # by path, from the last read
        # Increases with each change by this sidecar: a read that was in progress then is outdated.
        self._mark = 0
        self._saving = asyncio.Lock()
        # Epoch and time of the leader's last new state, and our time of its first read minus its time (ms).
        self._first_seen: tuple[int, int, int] = (-1, 0, 0)

    @property
    def leading(self) -> bool:
        """Whether this sidecar leads now, by its own deadline."""
        return self._leadership.leading

    @property
    def desired_known(self) -> bool:
        """Whether `desired` was read. Only then an empty one means that there are no requests."""
        return DESIRED in self._stamps

    @property
    def takeover_known(self) -> bool:
        """Whether `takeover` was read. Only then None means that there was no takeover."""
        return self._takeover_seen and not self.unreadable.get(TAKEOVER)

    def wall_ms(self) -> int:
        """Return the time to store in documents (this machine's clock, Unix ms)."""
        return self._clock.wall_ms()

    def current_epoch(self) -> int:
        """Return the epoch of the current term. Raises LeadershipLost if this sidecar does not lead."""
        return self._leadership.current_epoch()

    # --- reading ---

    async def refresh(self) -> None:
        """Re-read changed documents: the operators' requests, and on a follower the leader's state.

        Raises StoreError if they cannot be read."""
        if self._leadership.lease is None:
            # Only a leader settles moves of earlier terms. A leader whose term is starting has a lease, but no epoch.
            self.frozen = frozenset()
        paths = (DESIRED, TAKEOVER, FAILSAFE, STATE_HEAD)
        stamps = dict(zip(paths, await self._coordination.stamps(paths), strict=True))
        # A document that is written during this read is read again in the next refresh, because of its stamp.
        changed = [path for path in paths if path not in self._stamps or self._stamps[path] != stamps[path]]
        if DESIRED in changed:
            self.desired = self._desired(await self._coordination.read(DESIRED))
            self._stamps[DESIRED] = stamps[DESIRED]
        if TAKEOVER in changed:
            self._hear_of(self._takeover(await self._coordination.read(TAKEOVER)))
            self._stamps[TAKEOVER] = stamps[TAKEOVER]
        if FAILSAFE in changed:
            self.failsafe_look_ms = decode_look(await self._coordination.read(FAILSAFE))
            self._stamps[FAILSAFE] = stamps[FAILSAFE]
        if not self.leading and STATE_HEAD in changed and await self._read_leader_state():
            self._stamps[STATE_HEAD] = stamps[STATE_HEAD]

    def _hear_of(self, record: TakeoverRecord | None) -> None:
        news = self._takeover_seen and record is not None and record != self.takeover
        self.takeover, self._takeover_seen = record, True
        if news and record is not None:
            self._on_takeover(record)

    async def _read_leader_state(self) -> bool:
        """Read the leader's state. Return False if this sidecar has newer data than the read result."""
        mark = self._mark
        documents = await self._coordination.read_tree(STATE)
        if mark != self._mark:
            return False  # a term of this sidecar started, or a move ended, during the read
        self._chunks[STATE] = documents
        if not documents:
            return True
        try:
            leader_state = decode_state(documents, what=STATE)
        except CodecError as error:
            self.set_aside(STATE, {STATE: str(error)})
            return True
        self.set_aside(STATE, {item.path[:_MOST_PATH]: _FOREIGN for item in documents if not is_chunk(item.path)})
        # Read the moves first: if that fails, state and moves are both read again the next time.
        newer = (leader_state.epoch, leader_state.wall_ms) != (self.shared.epoch, self.shared.wall_ms)
        if newer and not await self._read_moves():
            return False
        if self._first_seen[:2] != (leader_state.epoch, leader_state.wall_ms):
            self._first_seen = (leader_state.epoch, leader_state.wall_ms, self._clock.wall_ms() - leader_state.wall_ms)
        self.shared = leader_state
        self.tasks = list(leader_state.tasks)
        self.realised, self.awaited_ms = leader_state.realised, leader_state.awaited_ms
        return True

    async def _read_moves(self) -> bool:
        mark, records = self._mark, list[dict[str, Any]]()
        index, chunk = 0, list[dict[str, Any]]()
        documents, unreadable = list[Document](), dict[str, str]()
        for document in await self._coordination.read_tree(MOVES):
            try:
                _index(document)
                documents.append(document)
            except CodecError as error:
                unreadable[document.path[:_MOST_PATH]] = str(error)
        if mark != self._mark:
            return False
        decoded, self._decoded_moves = self._decoded_moves, {}
        for document in documents:
            data, cached = document.data, decoded.get(document.path)
            try:
                chunk = cached[1] if cached and cached[0] == data else decode_moves(data, what=document.path)
                index, self._decoded_moves[document.path] = _index(document), (data, chunk)
            except CodecError as error:
                index, chunk = _index(document) + 1, []  # the next record starts a new chunk after it
                unreadable[document.path] = str(error)
            records.extend(chunk)
        self.set_aside(MOVES, unreadable)
        self.moves = deque(records, maxlen=self._kept_moves)
        self._open_index, self._open_chunk, self._chunk_stored = index, list(chunk), bool(chunk)
        self._oldest_index = _index(documents[0]) if documents else 0
        return True

    def set_aside(self, folder: str, reasons: Mapping[str, str]) -> None:
        """Record the unreadable documents of a directory (path -> reason), and log new ones."""
        for path in sorted(reasons.keys() - self.unreadable.get(folder, {}).keys()):
            text = "a stored document is unreadable and set aside; run `bundlekeel doctor`"
            _log.warning(text, path=path, why=reasons[path])
        self.unreadable[folder] = dict(reasons)

    def _desired(self, document: Document | None) -> Desired:
        """Return the operators' requests. An unreadable document may be an emergency stop, so it pauses everything."""
        desired, why = Desired(), dict[str, str]()
        if document is not None and document.data:
            try:
                desired = decode(document.data, Desired, what=DESIRED, exact=True)
            except CodecError as error:
                why = {DESIRED: str(error)}
                reason = (
                    "the operators' stored requests (`desired`) cannot be read; `bundlekeel pause` copies them and "
                    "starts without them"
                )
                desired = Desired(pause=Pause(reason=reason, by="bundlekeel", since_ms=0))
        self.set_aside(DESIRED, why)
        return desired

    def _takeover(self, document: Document | None) -> TakeoverRecord | None:
        """Return the last takeover. If the record is unreadable, return the one from the previous read."""
        record, why = self.takeover, dict[str, str]()
        try:
            record = decode_takeover(document.data) if document is not None else None
        except CodecError as error:
            why = {TAKEOVER: str(error)}
        self.set_aside(TAKEOVER, why)
        return record

    def cycle_state(self) -> CycleState:
        """Return the last leader's state, with times of this machine's clock, as the start of this sidecar's cycles."""
        return self._by_our_clock(self.shared.cycle_state)

    def _by_our_clock(self, cycle_state: CycleState) -> CycleState:
        """Return the state with its times shifted to this machine's clock.

        The writer's clock is never compared with this one: when this sidecar first reads the state, each waiting time
        has the remainder that it had at writing. `completed_ms` is not shifted, because the failsafe job evaluates it.
        """
        late = self._late_ms()
        return replace(rebased(cycle_state, late), completed_ms=cycle_state.completed_ms) if late else cycle_state

    def _late_ms(self) -> int:
        late = self._first_seen[2]
        return late if abs(late) > _READ_WITHIN_MS else 0

    def taken_over(self) -> CycleState:
        """Return the last leader's state, with times of this machine's clock, as the start of a term.

        Moves that ended after that leader stored the state are recorded as landed in the ledger of moves in transit.
        Moves that never started (neither intent nor record) are dropped."""
        cycle_state, epoch = self.shared.cycle_state, self.shared.epoch
        ledger, recent = cycle_state.ledger, dict(cycle_state.recent)
        now_ms = self._clock.wall_ms() - self._late_ms()
        ended = {record["bundle"]: record for record in self.moves}
        for entry in cycle_state.ledger.entries:
            if entry.landed_ms or entry.bundle in self.frozen:
                continue
            record = ended.get(entry.bundle)
            # Do not compare start times: the sidecar that stored the intent may have another clock than the one that
            # stored the state.
            earlier = record is None or (record["epoch"], record["wall_ms"]) < (epoch, entry.opened_ms)
            if record is None or earlier or record["outcome"] in NOT_BOOKED:
                ledger = dropped(ledger, entry.bundle)
                continue
            # A record of a later term has times of this or an unknown clock. Use the current time, which is not too
            # early.
            times = record if record["epoch"] == epoch else dict.fromkeys(record, now_ms)
            recent[entry.bundle] = RecentMove(at_ms=times["wall_ms"], source=entry.source)
            if record["landed_on"]:
                ledger = landed(ledger, entry.bundle, record["landed_on"], times["landed_ms"])
        return self._by_our_clock(replace(cycle_state, ledger=ledger, recent=recent))

    async def read_averages(self) -> AsyncIterator[list[BundleAverages]]:
        """Yield the bundles' averages of the last checkpoint, one node at a time."""
        documents = await self._coordination.read_tree(AVERAGES)
        self._chunks[AVERAGES] = [replace(document, data=b"") for document in documents]
        unreadable: dict[str, str] = {}
        for document in documents:
            try:
                # In a thread, because decoding takes about a second in a large cluster.
                yield (await asyncio.to_thread(decode, document.data, AveragesPart, what=document.path)).bundles
            except CodecError as error:
                unreadable[document.path] = str(error)
        self.set_aside(AVERAGES, unreadable)

    # --- a new term ---

    async def begin_term(self, epoch: int) -> None:
        """Make the first write of a term, which proves that the term still lasts, then read the last leader's state."""
        note = {"epoch": epoch, "member": self._leadership.member.id, "wall_ms": self._clock.wall_ms()}
        exists = await self._coordination.read(TERM) is not None
        change = DocumentChange(path=TERM, data=msgspec.json.encode(note), create=not exists)
        await self._coordination.write_fenced(epoch, [change])
        self._mark += 1
        # From here on, memory is newer than the stored state, which is read again when this sidecar stops leading.
        self._stamps.pop(STATE_HEAD, None)
        await self._read_leader_state()
        # The last leader may have recorded moves after it stored its state. The open chunk must contain them.
        await self._read_moves()
        self.tasks = [_abandoned(task) if task.get("state") == "running" else task for task in self.tasks]

    # --- writing, leader only ---

    async def save(self, cycle_state: CycleState, report: Mapping[str, Any], *, epoch: int) -> None:
        """Store the leader's state and last report for the term `epoch`. Raises LeadershipLost if the term is over."""
        async with self._saving:
            state = LeaderState(
                epoch=epoch,
                wall_ms=self._clock.wall_ms(),
                cycle_state=cycle_state,
                report=dict(report),
                tasks=self.tasks,
                realised=self.realised,
                awaited_ms=self.awaited_ms,
            )
            await self._store(epoch, STATE, state)
            self.shared, self._first_seen = state, (epoch, state.wall_ms, 0)

    async def save_averages(self, averages: Averages) -> None:
        """Store a checkpoint of the bundles' averages, one node at a time: they may not fit into one request.

        Encoding runs in a thread. Nodes are independent, so one that is older than the others does no harm."""
        if not self.leading:
            return
        epoch, wall_ms, path = self.current_epoch(), self._clock.wall_ms(), AVERAGES
        averages = averages.copy()
        chunks = self._chunks.pop(path, None)
        documents = await self._coordination.read_tree(path) if chunks is None else chunks
        names = {item.path for item in documents if is_chunk(item.path)}
        written: list[Document] = []
        for start in range(0, len(averages), BUNDLES_PER_CHUNK):
            node = f"{path}/{len(written):04d}"
            data = await asyncio.to_thread(_averages_from, averages, start, wall_ms)
            await self._coordination.write_fenced(
                epoch, [DocumentChange(path=node, data=data, create=node not in names)]
            )
            written.append(Document(path=node, data=b"", version=-1))
        await delete_chunks(self._coordination, epoch, names - {item.path for item in written})
        self._chunks[path] = written

    async def _store(self, epoch: int, path: str, value: object) -> None:
        # A failed write may have taken effect, so the chunks are read again before the next write.
        chunks = self._chunks.pop(path, None)
        if chunks is None:
            chunks = await self._coordination.read_tree(path)
        self._chunks[path] = await store_blob(self._coordination, epoch, path, value, chunks)

    def move_change(self, record: dict[str, Any]) -> list[DocumentChange]:
        """Return the changes that add one move record, for the same write that removes the move's intent.

        After a failed write, call it again: the new changes include records that were added in the meantime."""
        chunk = list(self._open_chunk)
        place = next((n for n, item in enumerate(chunk) if _same_move(item, record)), len(chunk))
        # An earlier write stored this record as unknown, and the intent remained. Now the owner is known.
        unknown = chunk[place] if place < len(chunk) and chunk[place].get("outcome") == "unknown" else None
        if place == len(chunk) or unknown is not None:
            chunk[place : place + 1] = [record]
        data = encode(chunk)  # encode before keeping it: a record that cannot be encoded must not break later writes
        self._mark += 1
        self._open_chunk = chunk
        if not any(_same_move(item, record) for item in islice(reversed(self.moves), 2 * self._moves_per_chunk)):
            self.moves.append(record)
        elif unknown is not None:
            self.moves = deque((record if item is unknown else item for item in self.moves), maxlen=self._kept_moves)
        # The first writer creates a new chunk. Other writes fail until that write has succeeded.
        create = place == 0 and not self._chunk_stored
        path = f"{MOVES}/{self._open_index:08d}"
        changes = [DocumentChange(path=path, data=data, create=create)]
        if len(self._open_chunk) >= self._moves_per_chunk:
            self._open_index += 1
            self._open_chunk, self._chunk_stored = [], False
            expired = self._open_index - self._kept_moves // self._moves_per_chunk - 1
            if expired >= self._oldest_index:
                changes.append(DocumentChange(path=f"{MOVES}/{self._oldest_index:08d}", data=None))
                self._oldest_index += 1
        return changes

    # --- writing, any replica ---

    async def change_desired(self, change: Callable[[Desired], Desired], *, replace: bool = False) -> Desired:
        """Change the operators' requests with compare-and-set. Retry a few times after concurrent writes.

        Raises StoreError if the retries fail or the document is unreadable. With `replace`, an unreadable document is
        copied to another node and replaced by a new one."""
        for _ in range(_CAS_TRIES):
            document = await self._coordination.read(DESIRED)
            changed = change(self._desired(document))
            if document is not None and (why := self.unreadable[DESIRED]):
                if not replace:
                    raise StoreError(f"{why[DESIRED]}; it is not overwritten: `bundlekeel pause` keeps a copy of it")
                await self._coordination.create_sequential(f"{DESIRED}-unreadable-", document.data)
            try:
                await self._coordination.write_shared(
                    DESIRED,
                    rewritten(document.data if document else b"", changed),
                    version=document.version if document else None,
                )
            except StaleWrite:
                continue
            self.desired = changed
            return changed
        raise StoreError("the desired state changes faster than it can be written; try again")

    async def leave_request(self, body: Mapping[str, Any]) -> str:
        """Store a request for the leader, with its time as `left_ms`. Return the id of the request."""
        data = msgspec.json.encode({**body, "left_ms": self.wall_ms()})
        path = await self._coordination.create_sequential(f"{REQUESTS}/req-", data)
        return path.rpartition("/")[2]

    async def take_requests(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the waiting requests as (id, body), oldest first. Unreadable ones have an empty body."""
        requests, unreadable = list[tuple[str, dict[str, Any]]](), dict[str, str]()
        for document in await self._coordination.read_tree(REQUESTS):
            body: dict[str, Any] = {}
            try:
                body = decode_request(document.data, what=document.path)
            except CodecError as error:
                unreadable[document.path] = str(error)
            requests.append((document.path.rpartition("/")[2], body))
        self.set_aside(REQUESTS, unreadable)
        return requests

    def remember_task(self, task: dict[str, Any]) -> None:
        """Record the state of a task. It is stored with the next `save`."""
        others = [item for item in self.tasks if item.get("task") != task["task"]]
        self.tasks = [*others, task][-KEPT_TASKS:]

    async def close_request(self, request_id: str, epoch: int) -> None:
        """Remove a request that the leader has taken. Raises LeadershipLost if the term `epoch` is over."""
        await self._coordination.write_fenced(epoch, [DocumentChange(path=f"{REQUESTS}/{request_id}", data=None)])


def _averages_from(averages: Averages, start: int, wall_ms: int) -> bytes:
    return encode(AveragesPart(wall_ms=wall_ms, bundles=averages.export(start, start + BUNDLES_PER_CHUNK)))


def _abandoned(task: dict[str, Any]) -> dict[str, Any]:
    return task | {"state": "failed", "detail": "its leader is gone; the moves in the journal show how far it got"}


def _same_move(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two records are of one move, even if a later leader wrote one without the move's start time."""
    keys = ("bundle", "intent") if one.get("intent") else ("bundle", "intent", "started_ms")
    return all(one.get(key) == other.get(key) for key in keys)


def _index(chunk: Document) -> int:
    """Return the number of a chunk of moves. Raises CodecError if its node has a name that Bundlekeel does not use."""
    name = chunk.path.rpartition("/")[2]
    index = integer(name, field=f"the name of a node below {MOVES}/:")
    if f"{index:08d}" != name:
        raise external_input.unreadable(
            f"the node {name} below {MOVES}/", "its name does not have eight digits", code=Code.WRONG_TYPE
        )
    return index
