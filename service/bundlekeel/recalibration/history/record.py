"""The recorded form of a cycle: exact changes since the last record, and regularly a record of all values. Pure.

A `Frame` is everything that `plan()` reads, as two tables (brokers, bundles) and one document of plain values. A
`HistoryRecord` contains the changes since the last record (`full`: all values) and the outcome. Values are not rounded
here: the snapshot rounds before planning, so that a record replays to the same plan hash.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.load import RESOURCES, TRAFFIC, Floats, Ints

Texts = NDArray[np.object_]
Document = dict[str, Any]
# Rows of a table as runs of consecutive rows of the old table: (first old row, number of rows); -1: new rows.
Runs = tuple[tuple[int, int], ...]

# Version of the recorded form. Records of another version are refused.
SCHEMA: Final = 2
OTHER_SCHEMA: Final = f"schema {{}}, and this release reads only schema {SCHEMA}: another release recorded it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of a table's columns by kind: floats, integers, strings."""

    floats: tuple[str, ...]
    whole: tuple[str, ...]
    texts: tuple[str, ...]


# `from_traffic`: one bit per resource. `persistent`, `non_persistent`: -1 if no broker of the snapshot reports it.
BROKERS: Final = Columns(
    floats=(
        *(f"usage_{name}" for name in RESOURCES),
        *(f"limit_{name}" for name in RESOURCES),
        *(f"traffic_{name}" for name in TRAFFIC),
    ),
    whole=("from_traffic", "last_update", "start_timestamp", "topics", "persistent", "non_persistent"),
    texts=("overridden", "load_manager", "version"),
)
BUNDLES: Final = Columns(
    floats=tuple(f"{kind}_{name}" for kind in ("latest", "short", "long") for name in TRAFFIC),
    whole=("short_samples", "long_samples", "topics", "consumers", "producers"),
    texts=("owner",),
)


@dataclass(frozen=True, slots=True)
class Table:
    """One row per broker or bundle, in the snapshot's order.

    Shapes: names (n,), floats (n, f), whole (integers: n, w), texts (n, t).
    """

    names: Texts
    floats: Floats
    whole: Ints
    texts: Texts

    def __len__(self) -> int:
        return len(self.names)

    def rows(self, index: Ints) -> Table:
        """Return a table of these rows."""
        return Table(self.names[index], self.floats[index], self.whole[index], self.texts[index])


@dataclass(frozen=True, slots=True)
class Rows:
    """Changes of a table. order: old numbers of the rows (None: unchanged). index, table: the new or changed rows."""

    order: Runs | None
    index: Ints
    table: Table


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything a plan depends on, as tables and a document of plain values by path (`memory.hits`, `seed`, ...)."""

    document: Document
    brokers: Table
    bundles: Table

    def seal(self) -> int:
        """Return a checksum of the whole frame."""
        total = zlib.crc32(dumped(dict(sorted(self.document.items()))).encode())
        for table in (self.brokers, self.bundles):
            for texts in (table.names, table.texts):
                total = zlib.crc32("\0".join(texts.ravel().tolist()).encode(), total)
            for numbers in (table.floats, table.whole):
                total = zlib.crc32(np.ascontiguousarray(numbers).data, total)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOutcome:
    """Outcome of a recorded cycle: its plan and whether it was executed.

    `details`: moves, splits, refusals by code, and the cycle's journal line. `software`: releases of Bundlekeel, Python
    and numpy, which can explain why planning again gives another result. `skipped`: number of cycles without a plan
    since the last record. `dropped`: number of cycles since the last record that could not be recorded.
    """

    plan_hash: str
    code: str
    planned: int
    acted: bool
    details: Document = field(default_factory=dict)
    software: str = ""
    dropped: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """One recorded cycle, identified by `epoch` and `cycle`.

    `base`: cycle (of the same epoch) whose record the changes apply to; not used if `full`. `document`: JSON of changed
    paths and row orders. `seal`: checksum of the whole frame.
    """

    epoch: int
    cycle: int
    wall_ms: int
    full: bool
    base: int
    document: str
    seal: int
    brokers: Rows
    bundles: Rows
    outcome: CycleOutcome
    schema: int = SCHEMA


def recorded(
    before: tuple[int, Frame] | None, now: Frame, *, epoch: int, cycle: int, outcome: CycleOutcome
) -> HistoryRecord:
    """Return the record of a frame (input of a plan): its changes since `before`, the cycle and frame of the epoch's
    last record.

    If `before` is None, the record contains all values.
    """
    base, old = (0, None) if before is None else before
    brokers = changes(old.brokers if old else None, now.brokers)
    bundles = changes(old.bundles if old else None, now.bundles)
    change = document_changes(old.document, now.document) if old else {"=": now.document}
    orders = {"brokers": brokers.order, "bundles": bundles.order}
    return HistoryRecord(
        epoch=epoch,
        cycle=cycle,
        wall_ms=int(now.document["wall_ms"]),
        full=old is None,
        base=base,
        document=dumped(change | {"order": {name: runs for name, runs in orders.items() if runs is not None}}),
        seal=now.seal(),
        brokers=brokers,
        bundles=bundles,
        outcome=outcome,
    )


def changes(before: Table | None, now: Table) -> Rows:
    """Return the changes from the table `before` to `now`. A row is unchanged only if all bits are equal."""
    if before is None:
        return Rows(None, np.arange(len(now), dtype=np.int64), now)
    same = len(before) == len(now) and before.names.tolist() == now.names.tolist()
    if same:
        old, differs = before, np.zeros(len(now), dtype=bool)
    else:
        row = {name: number for number, name in enumerate(before.names.tolist())}
        place = np.fromiter((row.get(name, -1) for name in now.names.tolist()), dtype=np.int64, count=len(now))
        old, differs = (before.rows(place) if len(before) else now), place < 0
    differs |= (_bits(old.floats) != _bits(now.floats)).any(axis=1)
    differs |= (old.whole != now.whole).any(axis=1)
    differs |= (old.texts != now.texts).any(axis=1)
    index = np.flatnonzero(differs)
    return Rows(None if same else runs_of(place), index, now.rows(index))


def changed(before: Table | None, rows: Rows) -> Table:
    """Apply the changes `rows` to the table `before`. Raises IndexError if they do not belong together."""
    if before is None:
        return rows.table
    place = np.arange(len(before), dtype=np.int64) if rows.order is None else places_of(rows.order)
    if len(before) == 0:
        # Without an old table, all rows are new.
        return rows.table
    table = before.rows(place)
    table.names[rows.index] = rows.table.names
    table.floats[rows.index] = rows.table.floats
    table.whole[rows.index] = rows.table.whole
    table.texts[rows.index] = rows.table.texts
    return table


def runs_of(place: Ints) -> Runs:
    """Convert the old number of each row (-1: new row) to runs of consecutive rows."""
    if len(place) == 0:
        return ()
    step = np.where(place[:-1] < 0, place[1:] >= 0, place[1:] != place[:-1] + 1)
    starts = np.concatenate([[0], np.flatnonzero(step) + 1])
    sizes = np.diff(np.concatenate([starts, [len(place)]]))
    return tuple(zip(place[starts].tolist(), sizes.tolist(), strict=True))


def places_of(runs: Runs) -> Ints:
    """Convert runs of consecutive rows to the old number of each row (-1: new row)."""
    parts = [np.arange(at, at + size) if at >= 0 else np.full(size, -1) for at, size in runs]
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)


def document_changes(before: Document, now: Document) -> Document:
    """Return the changes from one document (values by path) to the next.

    The keys are `=` (new values by path), `~` (changed members of maps) and `-` (removed paths).
    """
    whole: Document = {}
    members: Document = {}
    for path, value in now.items():
        old = before.get(path)
        if path in before and dumped(old) == dumped(value):
            continue
        if isinstance(value, dict) and isinstance(old, dict) and list(old) == list(value):
            members[path] = {key: item for key, item in value.items() if dumped(item) != dumped(old[key])}
        else:
            whole[path] = value
    removed = [path for path in before if path not in now]
    return {"=": whole} | ({"~": members} if members else {}) | ({"-": removed} if removed else {})


def changed_document(before: Document, change: Document) -> Document:
    """Return the document `before` with the changes from `document_changes`."""
    document: Document = {path: value for path, value in before.items() if path not in change.get("-", ())} | change[
        "="
    ]
    for path, members in change.get("~", {}).items():
        document[path] = document[path] | members
    return document


def dumped(value: Any) -> str:
    """Return a value as canonical JSON: two texts are equal exactly if all bits of the values are equal."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _bits(values: Floats) -> Ints:
    return np.ascontiguousarray(values).view(np.int64)
