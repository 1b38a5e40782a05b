"""Shared state as documents: what is stored where under our root, and how it is encoded.

`desired`            what people want: mode, pauses, pins, drains, ... (any replica, compare-and-set)
`takeover`           what was there before `takeover` (any replica)
`requests/...`       executions left for the leader (any replica)
`state/leader`       the leader's memory, ledger, last moves, last cycle (fenced), split in chunks
`state/averages/...` checkpoint of the averages (fenced); each node stands for itself
`moves/...`          the newest move records, split in chunks (fenced)
`intents/...`        moves announced before they are called (fenced)
`splits/...`         splits announced before they are called (fenced)
`quotas/held/...`    rates of topics we set, and what was there before (fenced)
`quotas/native`      resource groups we keep, and what was there before (fenced)
`quotas/report/...`  how groups fare, as the leader saw last (fenced)
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeVar

import msgspec

from bundlekeel.codec import external_input
from bundlekeel.core.calibration.adoption import Adopted, Realised, Reverted
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError, LeadershipLost, StoreError
from bundlekeel.core.model.load import REPORTED_RESOURCES, RESOURCES, BundleAverages
from bundlekeel.daemon.answers.plans import TaskView
from bundlekeel.daemon.state.cycle_state import CycleState
from bundlekeel.ports import Coordination, Document, DocumentChange

T = TypeVar("T")

SCHEMA = 1
# ZooKeeper refuses nodes of 1 MiB; a quarter leaves room for several in one transaction.
CHUNK_BYTES = 256 * 1024


class OperatorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request: operator, reason and time (Unix ms)."""

    by: str
    reason: str
    since_ms: int


class LastingRequest(OperatorRequest, frozen=True, kw_only=True):
    """A request that ends at `until_ms` (Unix ms); 0: an operator ends it."""

    until_ms: int = 0


class Pause(LastingRequest, frozen=True, kw_only=True):
    """A stop of everything, or of one scope."""


def request_record(what: str, *, reason: str, by: str, wall_ms: int) -> dict[str, Any]:
    """The journal line of what a person asked for."""
    sentence = f"{by} asked for the {what}: {reason}"
    return {"kind": "request", "what": what, "wall_ms": wall_ms, "reason": reason, "by": by, "sentence": sentence}


class QuotaRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A quota group that somebody set at run time, or took out of force (`removed`): who, why and when. Limits are a
    second over all brokers, None is no limit."""

    by: str
    reason: str
    since_ms: int
    removed: bool = False
    members: tuple[str, ...] = ()
    publish_messages: float | None = None
    publish_bytes: float | None = None
    dispatch_messages: float | None = None
    dispatch_bytes: float | None = None


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """What people asked for at run time, on top of the settings file.

    `mode_ms`: when the mode was requested; 0: never. `pinned`: by bundle; `excluded`: by pattern of tenants,
    namespaces, bundles or brokers. `pause` stops everything; `pauses` only a scope: `namespace:..`, `tenant:..`,
    `broker:..`. `cordons`, `drains`, `warms`: by broker id; `stops`: by task, what is still to do of it is left.
    `adopted`: calibrated thresholds over the settings; `reverted`: by digest, those that were taken back;
    `person_reverted_ms`: when a person took some back and none adopted since, else 0. `quotas`: by name, groups over
    those of the settings. Unknown fields stay stored: `rewritten`.
    """

    schema: int = SCHEMA
    mode: str | None = None
    mode_ms: int = 0
    pause: Pause | None = None
    pauses: dict[str, Pause] = {}
    pinned: dict[str, LastingRequest] = {}
    excluded: dict[str, LastingRequest] = {}
    cordons: dict[str, OperatorRequest] = {}
    drains: dict[str, OperatorRequest] = {}
    warms: dict[str, OperatorRequest] = {}
    stops: dict[str, OperatorRequest] = {}
    adopted: Adopted | None = None
    reverted: dict[str, Reverted] = {}
    person_reverted_ms: int = 0
    quotas: dict[str, QuotaRequest] = {}

    def all_pauses(self) -> dict[str, Pause]:
        """Every pause by its scope, "" for the one of everything; those that have ended too."""
        return dict(self.pauses) if self.pause is None else {"": self.pause, **self.pauses}


def rewritten(stored: bytes, wanted: Desired) -> bytes:
    """`wanted`, encoded, to take the place of what is stored: what a newer version stored and we do not know stays.

    That holds for fields of the document, and for those of a pause or request that is not changed.
    """
    try:
        data = external_input.inflated(stored, what="desired")
        before, raw = external_input.read(data, Desired, what="desired"), external_input.load(data, what="desired")
    except CodecError:
        return encode(wanted)
    was, now = msgspec.to_builtins(before), msgspec.to_builtins(wanted)
    return encode({name: value for name, value in raw.items() if name not in was} | _kept(raw, was, now))


def _kept(raw: dict[str, Any], was: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """`now`, with what is stored (`raw`, read by us as `was`) wherever it is not changed."""
    made = {}
    for name, value in now.items():
        same = name in was and was[name] == value
        tables = all(isinstance(item.get(name), dict) for item in (raw, was, now))
        if same and name in raw:
            made[name] = raw[name]
        elif tables and name in _TABLES:
            made[name] = _kept(raw[name], was[name], value)
        else:
            made[name] = value
    return made


# Fields that hold one entry a name: an entry of theirs is changed as a whole, the others stay as they are stored.
_TABLES = frozenset({"pauses", "pinned", "excluded", "cordons", "drains", "warms", "stops", "reverted", "quotas"})


class LeaderState(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a new leader continues with, and that followers show.

    `wall_ms`: when it was stored. `realised`: how balanced the cluster was recently, for thresholds on trial.
    `awaited_ms`: since when leaders check for proposals of thresholds, 0: they do not.
    """

    schema: int = SCHEMA
    epoch: int = -1
    wall_ms: int = 0
    cycle_state: CycleState = msgspec.field(default_factory=CycleState)
    report: dict[str, Any] = {}
    tasks: list[dict[str, Any]] = []
    realised: Realised = msgspec.field(default_factory=Realised)
    awaited_ms: int = 0


class _MoveShape(msgspec.Struct):
    """What readers of a move record rely on; there is more in it."""

    bundle: str
    source: str
    destination: str
    outcome: str
    wall_ms: int
    started_ms: int
    landed_ms: int
    landed_on: str
    seconds: float
    epoch: int


class _ReportShape(msgspec.Struct):
    operations: dict[str, dict[str, Any]] = {}
    seconds: dict[str, Any] = {}


class _RequestShape(msgspec.Struct):
    """What a request may hold, of any kind."""

    kind: str = "plan"
    hash: str = ""
    by: str = ""
    reason: str = ""
    review: str | None = None
    left_ms: int = 0
    moves: list[tuple[str, str, str]] = []
    splits: list[tuple[str, str]] = []
    request: dict[str, Any] | None = None
    bundle: str = ""
    source: str = ""
    target: str = ""
    override_cool_down: bool = False
    at: list[int] = []
    algorithm: str | None = None
    unload: bool = False
    sources: dict[str, str] = {}


class AveragesPart(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of the averages."""

    schema: int = SCHEMA
    wall_ms: int = 0
    bundles: list[BundleAverages] = []


def encode(value: object) -> bytes:
    """Compact, compressed bytes of a document. A text that cannot be encoded is stored with replaced letters."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(external_input.cleaned(msgspec.to_builtins(value)))
    return zlib.compress(data, 3)


def decode(data: bytes, kind: type[T], *, what: str = "the document", exact: bool = False) -> T:
    """Return the document. Raises CodecError if it is torn, too large, of another schema, or a value is out of range.

    Ranges: see `external_input.check_ranges`.
    """
    found = external_input.read(external_input.inflated(data, what=what), kind, what=what, exact=exact)
    external_input.check_ranges(found, what=what)
    if (schema := getattr(found, "schema", SCHEMA)) != SCHEMA:
        text = f"it is of schema {schema}, and this release reads only schema {SCHEMA}"
        raise external_input.unreadable(what, text, code=Code.FUTURE_FORMAT, field="schema")
    return found


def decode_state(documents: Sequence[Document], *, what: str) -> LeaderState:
    """The leader's state out of its chunks. CodecError."""
    found = decode(join(documents), LeaderState, what=what)
    _demand(list[TaskView], found.tasks, what)
    _demand(_ReportShape, found.report, what)
    state = found.cycle_state
    rows: list[object] = [*state.ledger.entries, *state.ledger.baselines, *state.memory.costs.brokers.values()]
    for row in (*rows, *(item.move for item in state.effects.open)):
        for name, length in _LENGTHS.items():
            if hasattr(row, name) and len(getattr(row, name)) != length:
                text = f"{name} needs {length} values and has {len(getattr(row, name))}"
                raise external_input.unreadable(what, text, field=name)
    for split in (item.split for item in state.recent_splits.values()):
        if not len(split.children) == len(split.shares) == len(split.topics):
            raise external_input.unreadable(what, "children, shares and topics differ in number", field="children")
    return found


# Values of one row of the leader's state: they are added to rows of arrays.
_LENGTHS: Final = {
    "steady": 2,
    "near": 3,
    "far": 3,
    "moments": 5,
    "pressure": len(RESOURCES),
    "usage": REPORTED_RESOURCES,
}


def decode_moves(data: bytes, *, what: str) -> list[dict[str, Any]]:
    """A chunk of move records. CodecError."""
    found = decode(data, list[dict[str, Any]], what=what)
    _demand(list[_MoveShape], found, what)
    return found


def decode_request(data: bytes, *, what: str) -> dict[str, Any]:
    """A request left for the leader. CodecError."""
    found: dict[str, Any] = external_input.load(data, what=what, finite=True)
    external_input.check_ranges(_demand(_RequestShape, found, what), what=what)
    return found


def _demand(shape: type[T], found: object, what: str) -> T:
    """Return `found` as a value of `shape`. Raises CodecError if a type differs, also for numbers as strings."""
    try:
        return msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        raise external_input.unreadable(what, error, code=Code.WRONG_TYPE) from None


def split(data: bytes, size: int = CHUNK_BYTES) -> list[bytes]:
    """Pieces small enough for a node; at least one."""
    return [data[start : start + size] for start in range(0, len(data), size)] or [b""]


def is_chunk(path: str) -> bool:
    """Return whether Bundlekeel uses this name for a chunk: four digits."""
    name = path.rpartition("/")[2]
    return len(name) == 4 and name.isascii() and name.isdigit()


def join(documents: Sequence[Document]) -> bytes:
    """Return the joined chunks without foreign nodes. The first four bytes of the first one contain their number."""
    documents = [document for document in documents if is_chunk(document.path)]
    if not documents:
        return b""
    count = int.from_bytes(documents[0].data[:4], "big")
    return b"".join(document.data[4:] for document in documents[:count])


async def store_blob(
    coordination: Coordination, epoch: int, path: str, value: object, known: Sequence[Document]
) -> list[Document]:
    """Write a document in chunks below `path`, all or nothing, and only while `epoch` lasts.

    `known` are the chunk nodes as last read or written by us; returns them as they are now.
    """
    pieces = split(encode(value))
    head = len(pieces).to_bytes(4, "big")
    existing = {document.path for document in known if is_chunk(document.path)}
    changes, stored = [], []
    for index, piece in enumerate(pieces):
        node = f"{path}/{index:04d}"
        changes.append(DocumentChange(path=node, data=head + piece, create=node not in existing))
        stored.append(Document(path=node, data=b"", version=-1))
    wanted = {document.path for document in stored}
    await coordination.write_fenced(epoch, changes)
    await delete_chunks(coordination, epoch, existing - wanted)
    return stored


async def delete_chunks(coordination: Coordination, epoch: int, paths: Collection[str]) -> None:
    """Delete chunks that count no more. One that cannot be deleted stays: a foreign node may be below it."""
    for path in sorted(paths):
        try:
            await coordination.write_fenced(epoch, [DocumentChange(path=path, data=None)])
        except LeadershipLost:
            raise
        except StoreError:
            continue
