"""Read recorded history: find a cycle by number or time, rebuild it, check all records, and plan them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bundlekeel.model.errors import HistoryError, NotFound
from bundlekeel.recalibration.history.ports import (
    HistoryFile,
    HistoryStore,
    clusters_of,
    in_force,
    mixed,
    records_in_force,
)
from bundlekeel.recalibration.history.record import BROKERS, BUNDLES, SCHEMA, Columns, HistoryRecord, Table
from bundlekeel.recalibration.history.replay import RebuiltCycle, rebuilt, replay

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The cycle that an operator requested (`text`): by number, with or without an epoch, or by a time."""

    text: str
    cycle: int = -1
    epoch: int | None = None
    at_ms: int | None = None


@dataclass(slots=True)
class HistoryReading:
    """Reads records in order, file by file. Unreadable files are added to `unreadable` and skipped."""

    store: HistoryStore
    unreadable: list[Json] = field(default_factory=list)

    def records(self, files: Sequence[HistoryFile]) -> Iterator[HistoryRecord]:
        """Yield the records of these files, with one file in memory at a time.

        The leader may clean up the store at the same time: merged files are read instead, deleted ones are skipped."""
        last: tuple[int, int] | None = None
        instead: set[HistoryFile] = set()
        for file in files:
            count = len(instead)
            try:
                records = records_in_force(self.store, file, instead)
            except HistoryError as error:
                self.unreadable.append({"file": file.path, "why": str(error)})
                continue
            for record in records or ():
                # Skip records of a merged file that were already read from the smaller files.
                if len(instead) > count and last is not None and (record.epoch, record.cycle) <= last:
                    continue
                last = record.epoch, record.cycle
                yield record


def listing(store: HistoryStore) -> list[Json]:
    """Return one row per history file, without files that a merged file replaces. `why`: why a file is unreadable."""
    rows = []
    for file in in_force(store.files()):
        row: Json = {"file": file.path, "epoch": file.epoch, "segments": [file.first, file.last], "bytes": file.size}
        try:
            rows.append(row | asdict(store.span(file)) | {"why": ""})
        except HistoryError as error:
            rows.append(row | {"why": str(error)})
    return rows


def nothing(place: str) -> str:
    """Return the error text for a store without records; it names the options that select another store."""
    return f"nothing is recorded in {place} yet; name another place with history.uri or --history"


def find(store: HistoryStore, wanted: Wanted) -> RebuiltCycle:
    """Return the requested cycle, rebuilt; for a time, the last cycle before it. Raises NotFound or HistoryError."""
    epoch, cycle, at_ms = wanted.epoch, wanted.cycle, wanted.at_ms
    files = in_force(store.files())
    if not files:
        raise NotFound(nothing(store.place))
    if at_ms is not None:
        home = _last_before(store, files, at_ms)
    else:
        # Newest first: without an epoch in the request, a cycle number that two leaders used means the later leader's.
        of_epoch = [file for file in files if epoch is None or file.epoch == epoch]
        home = next((file for file in reversed(of_epoch) if _holds(store, file, cycle)), None)
    if home is None:
        raise NotFound(f"{wanted.text} is not in the history")
    around = [
        file
        for file in files
        if (file.date, file.hour, file.epoch) == (home.date, home.hour, home.epoch) and file.first <= home.first
    ]
    reading, best = HistoryReading(store), None
    for item in rebuilt(reading.records(around)):
        if item.record.cycle == cycle or (at_ms is not None and item.record.wall_ms <= at_ms):
            best = item
    if best is None:
        raise NotFound(f"{wanted.text} is not in the history")
    if best.frame is None:
        raise HistoryError(f"cycle {best.record.cycle} of epoch {best.record.epoch} cannot be rebuilt: {best.why}")
    return best


def _holds(store: HistoryStore, file: HistoryFile, cycle: int) -> bool:
    try:
        span = store.span(file)
    except HistoryError:
        return False
    return span.first_cycle <= cycle <= span.last_cycle


def _last_before(store: HistoryStore, files: Sequence[HistoryFile], at_ms: int) -> HistoryFile | None:
    best: tuple[int, HistoryFile] | None = None
    for file in files:
        try:
            first_ms = store.span(file).first_ms
        except HistoryError:
            continue
        if first_ms <= at_ms and (best is None or first_ms >= best[0]):
            best = (first_ms, file)
    return best[1] if best else None


def summary(item: RebuiltCycle) -> Json:
    """Return a summary of a rebuilt cycle: its input, decision and outcome."""
    record, frame = item.record, item.frame
    assert frame is not None
    outcome = record.outcome
    return {
        "epoch": record.epoch,
        "cycle": record.cycle,
        "wall_ms": record.wall_ms,
        "schema": record.schema,
        "full": record.full,
        "brokers": len(frame.brokers),
        "bundles": len(frame.bundles),
        "strategy": frame.document.get("params.strategy", ""),
        "digest": frame.document.get("digest", ""),
        "plan": outcome.plan_hash,
        "code": outcome.code,
        "planned": outcome.planned,
        "acted": outcome.acted,
        "software": outcome.software,
        "dropped_before": outcome.dropped,
        "undecided_before": outcome.skipped,
        **outcome.details,
    }


def exported(item: RebuiltCycle) -> Json:
    """Return the whole input of `plan()` as plain values, with the summary."""
    frame = item.frame
    assert frame is not None
    return {"summary": summary(item), "input": frame.document, "brokers": _rows(frame.brokers, BROKERS)} | {
        "bundles": _rows(frame.bundles, BUNDLES)
    }


def _rows(table: Table, columns: Columns) -> list[Json]:
    parts = (table.floats.tolist(), table.whole.tolist(), table.texts.tolist())
    return [
        {"name": name}
        | dict(zip(columns.floats, floats, strict=True))
        | dict(zip(columns.whole, whole, strict=True))
        | dict(zip(columns.texts, texts, strict=True))
        for name, floats, whole, texts in zip(table.names.tolist(), *parts, strict=True)
    ]


def check(store: HistoryStore) -> Json:
    """Read and check all records.

    `ok`: all cycles are of one cluster, no cycle is missing or duplicate, every file is complete, and every snapshot
    can be rebuilt. The result:

    {ok, place, files, superseded, bytes, cycles, first_ms, last_ms, dropped, undecided, unreadable: [{file, why}],
    schemas: {version: cycles}, broken: [{epoch, cycle, why}], gaps: [{epoch, after, before, missing}],
    doubles: [{epoch, cycle}], clusters: {name: [file]}, mixed: the clusters that recorded into one store|""}
    """
    every = store.files()
    files = in_force(every)
    clusters = clusters_of(store, files)
    reading, counts = HistoryReading(store), _Counts()
    for item in rebuilt(reading.records(files)):
        counts.add(item)
    doubles = [{"epoch": epoch, "cycle": cycle} for (epoch, cycle), count in counts.seen.items() if count > 1]
    return {
        "ok": bool(counts.seen)
        and not (reading.unreadable or counts.broken or counts.gaps or doubles or len(clusters) > 1),
        "place": store.place,
        "files": len(files),
        "superseded": len(every) - len(files),
        "bytes": sum(file.size for file in files),
        "cycles": len(counts.seen),
        "first_ms": counts.first_ms,
        "last_ms": counts.last_ms,
        "dropped": counts.dropped,
        "undecided": counts.undecided,
        "schema": SCHEMA,
        "schemas": {str(version): count for version, count in sorted(counts.schemas.items())},
        "unreadable": reading.unreadable,
        "broken": counts.broken,
        "gaps": counts.gaps,
        "doubles": doubles,
        "clusters": {name: [file.path for file in of] for name, of in clusters.items()},
        "mixed": mixed(clusters),
    }


@dataclass(slots=True)
class _Counts:
    """Counts cycles and faults during `check`."""

    seen: Counter[tuple[int, int]] = field(default_factory=Counter)
    schemas: Counter[int] = field(default_factory=Counter)
    broken: list[Json] = field(default_factory=list)
    gaps: list[Json] = field(default_factory=list)
    dropped: int = 0
    undecided: int = 0
    first_ms: int = 0
    last_ms: int = 0
    last: HistoryRecord | None = None

    def add(self, item: RebuiltCycle) -> None:
        """Count one record and check whether a cycle before it is missing."""
        record, last = item.record, self.last
        self.seen[record.epoch, record.cycle] += 1
        self.schemas[record.schema] += 1
        if item.why:
            self.broken.append({"epoch": record.epoch, "cycle": record.cycle, "why": item.why})
        unplanned = record.outcome.dropped + record.outcome.skipped
        if last is not None:
            missing = record.cycle - last.cycle - 1 - unplanned
            if missing > 0:
                self.gaps.append(
                    {"epoch": record.epoch, "after": last.cycle, "before": record.cycle, "missing": missing}
                )
        self.dropped += record.outcome.dropped
        self.undecided += record.outcome.skipped
        self.first_ms = min(self.first_ms or record.wall_ms, record.wall_ms)
        self.last_ms = max(self.last_ms, record.wall_ms)
        self.last = record


def replayed(store: HistoryStore, wanted: Wanted | None = None) -> Json:
    """Plan the requested cycle, or all cycles, again.

    Returns {ok, cycles, same, moved, different: [{epoch, cycle, recorded, hash, software, why}], unreadable: [...]};
    `moved`: number of cycles whose plan moves something.
    """
    reading = HistoryReading(store)
    items: Iterator[RebuiltCycle] = (
        rebuilt(reading.records(in_force(store.files()))) if wanted is None else iter((find(store, wanted),))
    )
    count = same = moved = 0
    different: list[Json] = []
    for item in items:
        result = replay(item)
        count, same, moved = count + 1, same + result.same, moved + (result.moves > 0)
        if not result.same:
            entry = {"epoch": result.epoch, "cycle": result.cycle, "recorded": result.recorded, "hash": result.hash}
            entry |= {"software": item.record.outcome.software, "why": result.why}
            different.append(entry)
    return {
        "ok": same == count and not reading.unreadable and count > 0,
        "cycles": count,
        "same": same,
        "moved": moved,
        "different": different,
        "unreadable": reading.unreadable,
    }
