"""Metrics of the history, of calibrated thresholds and of shadow strategies."""

from __future__ import annotations

from typing import Final

from bundlekeel.records.metric import Metric

_HISTORY: Final = (
    Metric(
        "history_cycles_total",
        "counter",
        ("outcome",),
        "Cycles for the history: recorded, dropped_queue (not written fast enough), dropped_disk (the "
        "local log is full or not writable).",
        ("recorded", "dropped_queue", "dropped_disk"),
    ),
    Metric(
        "history_write_seconds",
        "histogram",
        (),
        "Time to determine the changes of a cycle and write them to the local log, in parallel with the cycles.",
    ),
    Metric("history_wal_bytes", "gauge", (), "History on this machine that is not published yet."),
    Metric("history_files_total", "counter", ("what",), "History files: published, merged, removed, set_aside."),
    Metric(
        "history_torn_total",
        "counter",
        ("where",),
        "Unreadable records in the local log (log) and unreadable files in the history store (file).",
        ("log", "file"),
    ),
    Metric("history_store_errors_total", "counter", (), "Attempts to publish history that the store refused."),
)
_THRESHOLDS: Final = (
    Metric(
        "thresholds_age_seconds",
        "gauge",
        (),
        "Age of the newest readable proposal of the nightly job; without a proposal: time since the first "
        "one was due (calibration.min_days).",
    ),
    Metric("thresholds_objections", "gauge", ("code",), "1 for each reason why the newest proposal is not adopted."),
    Metric("thresholds_in_force", "gauge", (), "Number of parameters that adopted thresholds set."),
    Metric(
        "thresholds_on_trial",
        "gauge",
        (),
        "1 while adopted thresholds are on trial: afterwards they are kept or reverted.",
    ),
    Metric("thresholds_first_stage", "gauge", (), "1 while only calibration.trial_namespaces use adopted thresholds."),
    Metric(
        "thresholds_total",
        "counter",
        ("what",),
        "Decisions on proposed thresholds: recommended, refused, adopted, widened, kept, reverted.",
        ("recommended", "refused", "adopted", "widened", "kept", "reverted"),
    ),
    Metric("thresholds_store_errors_total", "counter", (), "Attempts to read proposals that the store refused."),
    Metric(
        "shadow_cycles_total",
        "counter",
        ("strategy", "agreement"),
        "Cycles that were planned by another strategy, too: both_move, both_rest, only_live, only_shadow.",
    ),
    Metric(
        "shadow_disagreement_ratio",
        "gauge",
        ("strategy",),
        "Share of the moves of the live and the shadow plan that only one of them has.",
    ),
    Metric(
        "shadow_regret_ratio",
        "gauge",
        ("strategy",),
        "Predicted max/mean of scores after the live plan minus that after this strategy's plan; above 0: "
        "this strategy is better.",
    ),
    Metric("shadow_seconds", "histogram", (), "Time of one plan of another strategy, in parallel with the cycles."),
    Metric(
        "shadow_skipped_total",
        "counter",
        (),
        "Cycles that shadow strategies did not plan, because their previous plan was not finished.",
    ),
)
# By the sidecar's metric before which these are placed.
METRICS: Final = {
    "settings_read_total": {row.name: row for row in _HISTORY},
    "admin_requests_total": {row.name: row for row in _THRESHOLDS},
}
