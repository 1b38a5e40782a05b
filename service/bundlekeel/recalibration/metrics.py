"""Metrics of the history, of calibrated thresholds and of shadow strategies."""

from __future__ import annotations

from typing import Final

from bundlekeel.records.metric import Metric

_HISTORY: Final = (
    Metric(
        "history_cycles_total",
        "counter",
        ("outcome",),
        "Cycles for the history: recorded, dropped_queue (not written fast enough), dropped_disk (local log refuses).",
        ("recorded", "dropped_queue", "dropped_disk"),
    ),
    Metric(
        "history_write_seconds",
        "histogram",
        (),
        "Time to find a cycle's changes and log them, in parallel with the cycles.",
    ),
    Metric("history_wal_bytes", "gauge", (), "History on this machine that is not published yet."),
    Metric("history_files_total", "counter", ("what",), "History files: published, merged, removed, set_aside."),
    Metric(
        "history_torn_total",
        "counter",
        ("where",),
        "Torn ends of the local log, and torn files of the store.",
        ("log", "file"),
    ),
    Metric("history_store_errors_total", "counter", (), "Attempts to publish history that the store refused."),
)
_THRESHOLDS: Final = (
    Metric(
        "thresholds_age_seconds",
        "gauge",
        (),
        "Age of the newest proposal of the nightly job that could be read; where none came, since one is due "
        "(calibration.min_days).",
    ),
    Metric("thresholds_objections", "gauge", ("code",), "1 for each reason why the newest proposal is not adopted."),
    Metric("thresholds_in_force", "gauge", (), "Parameters that adopted thresholds set."),
    Metric("thresholds_on_trial", "gauge", (), "1 while adopted thresholds are watched, to be kept or reverted."),
    Metric(
        "thresholds_total",
        "counter",
        ("what",),
        "Thresholds: recommended, refused, adopted, kept, reverted.",
        ("recommended", "refused", "adopted", "kept", "reverted"),
    ),
    Metric("thresholds_store_errors_total", "counter", (), "Attempts to read proposals that the store refused."),
    Metric(
        "shadow_cycles_total",
        "counter",
        ("strategy", "agreement"),
        "Cycles planned by another strategy too: both_move, both_rest, only_live, only_shadow.",
    ),
    Metric(
        "shadow_disagreement_ratio", "gauge", ("strategy",), "Share of the moves of either plan that the other lacks."
    ),
    Metric(
        "shadow_regret_ratio",
        "gauge",
        ("strategy",),
        "Predicted max/mean of scores after the live plan less after this strategy's; above 0 it would do better.",
    ),
    Metric("shadow_seconds", "histogram", (), "Time of one plan of another strategy, in parallel with the cycles."),
    Metric("shadow_skipped_total", "counter", (), "Cycles that shadow strategies did not plan: they were still busy."),
)
# By the sidecar's metric before which these are placed.
METRICS: Final = {
    "settings_read_total": {row.name: row for row in _HISTORY},
    "admin_requests_total": {row.name: row for row in _THRESHOLDS},
}
