"""Contract of every `CalibrationStore`. `put` lays a file below its root."""

from __future__ import annotations

from collections.abc import Callable

from bundlekeel.recalibration.history.ports import MAX_BYTES, CalibrationStore, FoundDocument

Put = Callable[[str, bytes], None]


def nothing_is_no_error(store: CalibrationStore, put: Put) -> None:
    """An empty place has no proposal."""
    assert store.newest() is None


def the_latest_time_counts(store: CalibrationStore, put: Put) -> None:
    """Whatever the order in which they were written."""
    put("2026-11-21T020000Z/thresholds.json", b"new")
    put("2026-11-09T020000Z/thresholds.json", b"old")
    put("2025-12-31T020000Z/thresholds.json", b"older")
    assert store.newest() == FoundDocument(path="2026-11-21T020000Z/thresholds.json", data=b"new")
    put("2026-11-22T020000Z/thresholds.json", b"newest")
    assert store.newest() == FoundDocument(path="2026-11-22T020000Z/thresholds.json", data=b"newest")
    put("2026-11-22T031500Z/thresholds.json", b"second")
    assert store.newest() == FoundDocument(path="2026-11-22T031500Z/thresholds.json", data=b"second")


def other_files_are_passed_over(store: CalibrationStore, put: Put) -> None:
    """A night without a document (the job failed), names that are not times, and other files are ignored."""
    put("2026-11-20T020000Z/thresholds.json", b"there")
    put("2026-11-21T020000Z/report.html", b"<html>")
    put("2026-11-22/thresholds.json", b"no time")
    put("2026-11-22T020000Z/thresholds.json.tmp", b"half")
    assert store.newest() == FoundDocument(path="2026-11-20T020000Z/thresholds.json", data=b"there")


def the_root_counts_where_there_is_no_time(store: CalibrationStore, put: Put) -> None:
    """For those who write by hand."""
    put("thresholds.json", b"by hand")
    assert store.newest() == FoundDocument(path="thresholds.json", data=b"by hand")
    put("2020-01-01T020000Z/thresholds.json", b"dated")
    assert store.newest() == FoundDocument(path="2020-01-01T020000Z/thresholds.json", data=b"dated")


def a_huge_file_is_not_read_whole(store: CalibrationStore, put: Put) -> None:
    """One byte above the limit is read, so that the reader can detect it."""
    put("2026-11-21T020000Z/thresholds.json", b"x" * (MAX_BYTES + 1000))
    newest = store.newest()
    assert newest is not None and len(newest.data) == MAX_BYTES + 1


CHECKS = (
    nothing_is_no_error,
    the_latest_time_counts,
    other_files_are_passed_over,
    the_root_counts_where_there_is_no_time,
    a_huge_file_is_not_read_whole,
)
