"""Clean up the history store: merge the files of an hour into one, delete old files, set incomplete files aside.

The leader does this. A crash at any point loses no records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from bundlekeel.model.errors import HistoryError
from bundlekeel.recalibration.history.ports import (
    HOUR_MS,
    MOST_FILE_BYTES,
    HistoryFile,
    HistoryStore,
    hour_of,
    in_force,
)
from bundlekeel.recalibration.history.record import SCHEMA

# Wait this long after an hour before merging it: its last files may arrive late.
GRACE_MS = 5 * 60_000
_DAY_MS = 24 * HOUR_MS


@dataclass(slots=True)
class UpkeepResult:
    """Result of a clean-up: number of merged and of deleted files, and new paths of files that were set aside."""

    merged: int = 0
    removed: int = 0
    aside: list[str] = field(default_factory=list)


def tidy_store(store: HistoryStore, now_ms: int, keep_days: int | None) -> UpkeepResult:
    """Delete old files, then merge the files of each finished hour. `keep_days` None: delete nothing."""
    done = UpkeepResult()
    files = store.files()
    if keep_days is not None:
        oldest, _hour = hour_of(now_ms - keep_days * _DAY_MS)
        for file in [file for file in files if file.date < oldest]:
            store.remove(file)
            done.removed += 1
        files = [file for file in files if file.date >= oldest]
    over = hour_of(now_ms - HOUR_MS - GRACE_MS)
    finished = sorted((file for file in files if (file.date, file.hour) <= over), key=_place)
    for _key, together in groupby(finished, key=_place):
        _put_together(store, list(together), done)
    return done


def _place(file: HistoryFile) -> tuple[str, int, int]:
    return file.date, file.hour, file.epoch


def _put_together(store: HistoryStore, files: list[HistoryFile], done: UpkeepResult) -> None:
    if len(files) < 2:
        return
    whole = set(_readable(store, files, done))
    for file in sorted(whole, key=lambda item: item.last - item.first):
        # A larger readable file contains this file, which remained after a crash between writing and deleting.
        if any(other.covers(file) for other in whole):
            store.remove(file)
            done.removed += 1
    for run in _neighbours([file for file in in_force(whole) if file.size <= MOST_FILE_BYTES]):
        if len(run) > 1:
            _merge(store, run, done)


def _readable(store: HistoryStore, files: Iterable[HistoryFile], done: UpkeepResult) -> Iterator[HistoryFile]:
    for file in files:
        try:
            ours = store.span(file).schema == SCHEMA
        except HistoryError:
            done.aside.append(store.set_aside(file))
            continue
        # Files of another release are complete. This release cannot merge them.
        if ours:
            yield file


def _neighbours(files: Sequence[HistoryFile]) -> Iterator[list[HistoryFile]]:
    """Yield groups of files with consecutive segments.

    Files before and after a gap are not merged: a late file could still fill the gap, and the merged file would hide
    it.
    """
    run: list[HistoryFile] = []
    for file in files:
        if run and file.first != run[-1].last + 1:
            yield run
            run = []
        run.append(file)
    if run:
        yield run


def _merge(store: HistoryStore, run: list[HistoryFile], done: UpkeepResult) -> None:
    try:
        merged_file = store.merge(run)
        if store.span(merged_file).cycles != sum(store.span(file).cycles for file in run):
            raise HistoryError(f"{merged_file.path} has not the cycles of its parts")
    except HistoryError:
        # Either a file is unreadable: it is set aside, and the other files are merged next time. Or two clusters record
        # into this store: `history check` reports that, and their files stay unchanged.
        done.aside.extend(set_torn_aside(store, run))
        return
    for file in run:
        store.remove(file)
    done.merged += len(run)


def set_torn_aside(store: HistoryStore, files: Iterable[HistoryFile]) -> list[str]:
    """Read files completely, set unreadable files aside and return their new paths. Skips files of other releases."""
    aside = []
    for file in files:
        try:
            if store.span(file).schema == SCHEMA:
                store.verify(file)
        except HistoryError:
            aside.append(store.set_aside(file))
    return aside
