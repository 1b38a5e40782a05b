"""Documents of the shared state: their paths below Bundlekeel's root, and their encoding.

Fenced means: the store rejects the write unless its author leads in the current term (epoch).

`desired`            operators' requests: mode, pauses, pins, drains, ... (any replica, compare-and-set)
`takeover`           brokers' settings from before the takeover (any replica)
`requests/...`       requests that wait for the leader (any replica)
`state/leader`       the leader's memory, ledger, last moves, last cycle (fenced), split in chunks
`state/averages/...` checkpoint of the averages (fenced); each node is readable without the others
`moves/...`          the newest move records, split in chunks (fenced)
`intents/...`        moves, stored before their admin request (fenced)
`splits/...`         splits, stored before their admin request (fenced)
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeVar

import msgspec

from bundlekeel.leader.state.adopted_thresholds import Adopted, Realised, Reverted
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, LeadershipLost, StoreError
from bundlekeel.model.load import REPORTED_RESOURCES, RESOURCES, BundleAverages
from bundlekeel.ports import Coordination, Document, DocumentChange
from bundlekeel.pulsar.formats import external_input
from bundlekeel.settings.features import modules

T = TypeVar("T")

SCHEMA = 1
# ZooKeeper rejects nodes of 1 MiB. With a quarter of that, several nodes fit into one transaction.
CHUNK_BYTES = 256 * 1024


class OperatorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of an operator (`by`), with its reason and time (Unix ms)."""

    by: str
    reason: str
    since_ms: int


class LastingRequest(OperatorRequest, frozen=True, kw_only=True):
    """An operator's request that ends at `until_ms` (Unix ms); 0: when an operator ends it."""

    until_ms: int = 0


class Pause(LastingRequest, frozen=True, kw_only=True):
    """A pause of all moves, or of those in one tenant, namespace or broker."""


def request_record(what: str, *, reason: str, by: str, wall_ms: int) -> dict[str, Any]:
    """Return the journal record of an operator's request."""
    sentence = f"{by} asked for the {what}: {reason}"
    return {"kind": "request", "what": what, "wall_ms": wall_ms, "reason": reason, "by": by, "sentence": sentence}


def _add_requests(namespace: dict[str, Any]) -> None:
    """Add a field for each kind of request of the optional features to the body of a class (`namespace`)."""
    for module in modules("requests"):
        for name, (kind, default) in module.REQUESTS.items():
            namespace["__annotations__"][name], namespace[name] = kind, default


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """Operators' requests at run time, in addition to the settings file.

    `mode_ms`: time of the request for the mode; 0: none. `pinned`: by bundle. `excluded`: by pattern of tenants,
    namespaces, bundles or brokers. `pause` stops everything; `pauses` stop one scope each: `namespace:..`, `tenant:..`,
    `broker:..`. `cordons`, `drains`, `warms`: by broker id. `stops`: by task; the rest of the task is not executed.
    `adopted`: calibrated thresholds, which override the settings. `reverted`: reverted thresholds by digest.
    `person_reverted_ms`: time of the last revert by an operator without an adoption since; 0: none. Unknown fields stay
    in the stored document (`rewritten`).
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
    # Requests of features are fields, too, but only their features know the types.
    _add_requests(locals())

    def all_pauses(self) -> dict[str, Pause]:
        """Return every pause by scope, including ended ones. The pause of everything has the scope ""."""
        return dict(self.pauses) if self.pause is None else {"": self.pause, **self.pauses}


def rewritten(stored: bytes, desired: Desired) -> bytes:
    """Return `desired` encoded, with the unknown fields of the `stored` document, which a newer release wrote.

    Also keeps the unknown fields of each pause or request that does not change."""
    try:
        data = external_input.inflated(stored, what="desired")
        before, raw = external_input.read(data, Desired, what="desired"), external_input.load(data, what="desired")
    except CodecError:
        return encode(desired)
    was, now = msgspec.to_builtins(before), msgspec.to_builtins(desired)
    return encode({name: value for name, value in raw.items() if name not in was} | _merge(raw, was, now))


def _merge(raw: dict[str, Any], was: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return `now`, but keep the stored form of each value that did not change.

    `raw`: stored values. `was`: the same values after decoding. `now`: the new values.
    """
    merged = {}
    for name, value in now.items():
        same = name in was and was[name] == value
        tables = all(isinstance(item.get(name), dict) for item in (raw, was, now))
        if same and name in raw:
            merged[name] = raw[name]
        elif tables and name in _TABLES:
            merged[name] = _merge(raw[name], was[name], value)
        else:
            merged[name] = value
    return merged


# Fields with one entry per name. An entry changes as a whole; all other entries keep their stored form.
_TABLES = frozenset(name for name, value in msgspec.structs.asdict(Desired()).items() if isinstance(value, dict))


class LeaderState(msgspec.Struct, frozen=True, kw_only=True):
    """The state with which a new leader continues, and which followers show.

    `wall_ms`: time of writing. `realised`: recent balance of the cluster, for thresholds on trial. `awaited_ms`: time
    since which leaders check for proposals of thresholds; 0: they do not.
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
    """The fields of a move record that its readers need. A record has more fields."""

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
    """One node of the stored checkpoint of the bundles' traffic averages."""

    schema: int = SCHEMA
    wall_ms: int = 0
    bundles: list[BundleAverages] = []


def encode(value: object) -> bytes:
    """Return the compressed bytes of a document. In strings, characters that cannot be encoded are replaced."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(external_input.cleaned(msgspec.to_builtins(value)))
    return zlib.compress(data, 3)


def decode(data: bytes, kind: type[T], *, what: str = "the document", exact: bool = False) -> T:
    """Return the document. Raises CodecError if it is cut off, too large, of another schema or out of range.

    Ranges: see `external_input.check_ranges`.
    """
    document = external_input.read(external_input.inflated(data, what=what), kind, what=what, exact=exact)
    external_input.check_ranges(document, what=what)
    if (schema := getattr(document, "schema", SCHEMA)) != SCHEMA:
        text = f"it is of schema {schema}, and this release reads only schema {SCHEMA}"
        raise external_input.unreadable(what, text, code=Code.FUTURE_FORMAT, field="schema")
    return document


def decode_state(documents: Sequence[Document], *, what: str) -> LeaderState:
    """Return the leader's state from its chunks. Raises CodecError if they are unreadable."""
    leader_state = decode(join(documents), LeaderState, what=what)
    _demand(list[TaskView], leader_state.tasks, what)
    _demand(_ReportShape, leader_state.report, what)
    state = leader_state.cycle_state
    rows: list[object] = [*state.ledger.entries, *state.ledger.baselines, *state.memory.costs.brokers.values()]
    for row in (*rows, *(item.move for item in state.effects.open)):
        for name, length in _LENGTHS.items():
            if hasattr(row, name) and len(getattr(row, name)) != length:
                text = f"{name} needs {length} values and has {len(getattr(row, name))}"
                raise external_input.unreadable(what, text, field=name)
    for split in (item.split for item in state.recent_splits.values()):
        if not len(split.children) == len(split.shares) == len(split.topics):
            raise external_input.unreadable(what, "children, shares and topics differ in number", field="children")
    return leader_state


# Expected lengths of rows in the leader's state: rows become rows of arrays.
_LENGTHS: Final = {
    "steady": 2,
    "near": 3,
    "far": 3,
    "moments": 5,
    "pressure": len(RESOURCES),
    "usage": REPORTED_RESOURCES,
}


def decode_moves(data: bytes, *, what: str) -> list[dict[str, Any]]:
    """Return the move records of a chunk. Raises CodecError if it is unreadable."""
    moves = decode(data, list[dict[str, Any]], what=what)
    _demand(list[_MoveShape], moves, what)
    return moves


def decode_request(data: bytes, *, what: str) -> dict[str, Any]:
    """Return a request for the leader. Raises CodecError if it is unreadable."""
    request: dict[str, Any] = external_input.load(data, what=what, finite=True)
    external_input.check_ranges(_demand(_RequestShape, request, what), what=what)
    return request


def _demand(shape: type[T], value: object, what: str) -> T:
    """Return `value` converted to `shape`. Raises CodecError if a type differs, also for numbers as strings."""
    try:
        return external_input.convert(value, shape)
    except msgspec.ValidationError as error:
        raise external_input.unreadable(what, error, code=Code.WRONG_TYPE) from None


def split(data: bytes, size: int = CHUNK_BYTES) -> list[bytes]:
    """Return the data in chunks of at most `size` bytes, at least one chunk."""
    return [data[start : start + size] for start in range(0, len(data), size)] or [b""]


def is_chunk(path: str) -> bool:
    """Return whether a node can be a chunk of a document: its name has four digits."""
    name = path.rpartition("/")[2]
    return len(name) == 4 and name.isascii() and name.isdigit()


def join(documents: Sequence[Document]) -> bytes:
    """Return a document's content from its chunks. Nodes with other names are ignored.

    Each chunk begins with four bytes: the number of chunks."""
    documents = [document for document in documents if is_chunk(document.path)]
    if not documents:
        return b""
    count = int.from_bytes(documents[0].data[:4], "big")
    return b"".join(document.data[4:] for document in documents[:count])


async def store_blob(
    coordination: Coordination, epoch: int, path: str, value: object, chunks: Sequence[Document]
) -> list[Document]:
    """Write a document in chunks below `path`, all or nothing, and only while `epoch` lasts.

    `chunks`: the existing chunk nodes as last read or written. Returns the new chunk nodes.
    """
    pieces = split(encode(value))
    head = len(pieces).to_bytes(4, "big")
    existing = {document.path for document in chunks if is_chunk(document.path)}
    changes, stored = [], []
    for index, piece in enumerate(pieces):
        node = f"{path}/{index:04d}"
        changes.append(DocumentChange(path=node, data=head + piece, create=node not in existing))
        stored.append(Document(path=node, data=b"", version=-1))
    new_paths = {document.path for document in stored}
    await coordination.write_fenced(epoch, changes)
    await delete_chunks(coordination, epoch, existing - new_paths)
    return stored


async def delete_chunks(coordination: Coordination, epoch: int, paths: Collection[str]) -> None:
    """Delete obsolete chunks. A chunk that cannot be deleted stays: it may have a foreign node below it."""
    for path in sorted(paths):
        try:
            await coordination.write_fenced(epoch, [DocumentChange(path=path, data=None)])
        except LeadershipLost:
            raise
        except StoreError:
            continue
