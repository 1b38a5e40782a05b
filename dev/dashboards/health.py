"""Is Bundlekeel itself well: leadership, store, cycles, reports, ownership channel, journal, notifications."""

from __future__ import annotations

from dev.dashboards.kit import Page, Panel, Row

_LEAD = Row(
    "Leadership and store",
    (
        Panel(
            "Who leads",
            "1 for the sidecar that leads, over time.",
            "none",
            (("max by (instance) (bundlekeel_leader{@})", "{{instance}}"),),
            kind="states",
            span=12,
            top=1.0,
        ),
        Panel(
            "Store",
            "1 while the metadata store answers a sidecar.",
            "none",
            (("min by (instance) (bundlekeel_store_connected{@})", "{{instance}}"),),
            kind="states",
            span=12,
            top=1.0,
        ),
        Panel(
            "Changes of role",
            "Per hour, by role; each new leader costs about a session time-out without decisions.",
            "none",
            (("sum by (to) (increase(bundlekeel_leader_transitions_total{@}[1h]))", "{{to}}"),),
        ),
        Panel(
            "Lease left",
            "Until the leader's own deadline; it falls to 0 when heartbeats fail.",
            "s",
            (("max(bundlekeel_lease_remaining_seconds{@})", "lease"),),
        ),
        Panel(
            "Term",
            "The latest term each sidecar knows; they agree.",
            "none",
            (("max by (instance) (bundlekeel_epoch{@})", "{{instance}}"),),
        ),
        Panel(
            "Outages",
            "Outages of store or brokers as seen per hour, and how much longer nothing moves after the last one.",
            "none",
            (
                ("sum(increase(bundlekeel_outages_total{@}[1h]))", "outages"),
                ("max(bundlekeel_settling_after_outage_seconds{@})", "seconds to settle"),
            ),
        ),
        Panel(
            "Event loop lag",
            "How late a sidecar wakes up; above a second it lacks CPU.",
            "s",
            (("max by (instance) (bundlekeel_event_loop_lag_seconds{@})", "{{instance}}"),),
            limits=(0.3, 1.0),
        ),
        Panel(
            "Unexpected errors",
            "Errors that reached a last resort, per hour. Each one is a defect: please report it.",
            "none",
            (("sum by (where) (increase(bundlekeel_unexpected_errors_total{@}[1h]))", "{{where}}"),),
        ),
    ),
)

_CYCLES = Row(
    "Cycles and reports",
    (
        Panel(
            "Time of a cycle",
            "95th percentile by phase; execute holds the waiting for brokers.",
            "s",
            (
                (
                    "histogram_quantile(0.95, sum by (le, phase)"
                    " (rate(bundlekeel_cycle_duration_seconds_bucket{@}[$__rate_interval])))",
                    "{{phase}}",
                ),
            ),
        ),
        Panel(
            "Cycles",
            "Per minute and sidecar; one each interval, and one for fresh reports.",
            "cpm",
            (("60 * sum by (instance) (rate(bundlekeel_cycles_total{@}[$__rate_interval]))", "{{instance}}"),),
        ),
        Panel(
            "Age of reports",
            "A broker reports at least every 15 minutes.",
            "s",
            (("max by (broker) (bundlekeel_snapshot_age_seconds{@})", "{{broker}}"),),
            limits=(900.0, 1200.0),
        ),
        Panel(
            "Brokers by state",
            "Registered brokers; all but `ok` are left out of plans.",
            "none",
            (("max by (state) (bundlekeel_snapshot_brokers{@})", "{{state}}"),),
            kind="stacked",
        ),
        Panel(
            "Reports that could not be used",
            "Per hour, by why.",
            "none",
            (("sum by (code) (increase(bundlekeel_excluded_reports_total{@}[1h]))", "{{code}}"),),
        ),
        Panel(
            "Fields filled in",
            "Fields of reports that were missing or nonsense, per hour.",
            "none",
            (("sum by (code) (increase(bundlekeel_imputed_fields_total{@}[1h]))", "{{code}}"),),
        ),
    ),
)

_CHANNEL = Row(
    "Extensible load manager",
    (
        Panel(
            "Channel and load topics",
            "1 while the ownership channel is followed, and while load topics are read.",
            "none",
            (
                ("max by (variant) (bundlekeel_channel_up{@})", "channel {{variant}}"),
                ('max(bundlekeel_feed_up{@,state="ok"})', "load topics"),
            ),
            kind="states",
            top=1.0,
        ),
        Panel(
            "Bundles by state of the channel",
            "Entries of the ownership channel.",
            "none",
            (("max by (state) (bundlekeel_channel_bundles{@})", "{{state}}"),),
            kind="stacked",
        ),
        Panel(
            "Findings",
            "What is wrong in the ownership channel, by code, and the age of the oldest change under way in seconds.",
            "none",
            (
                ("max by (code) (bundlekeel_channel_findings{@})", "{{code}}"),
                ("max(bundlekeel_channel_in_flight_oldest_seconds{@})", "oldest under way (s)"),
            ),
        ),
    ),
)

_RECORDS = Row(
    "Journal, API and notifications",
    (
        Panel(
            "Journal",
            "Records that could not be written, and torn lines set aside, per hour.",
            "none",
            (
                ("sum(increase(bundlekeel_journal_errors_total{@}[1h]))", "not written"),
                ("sum(increase(bundlekeel_journal_torn_records_total{@}[1h]))", "torn"),
            ),
        ),
        Panel(
            "API requests refused",
            "Per hour, by answer.",
            "none",
            (("sum by (code) (increase(bundlekeel_api_refusals_total{@}[1h]))", "{{code}}"),),
        ),
        Panel(
            "Notifications",
            "Per hour by receiver and outcome, and how many wait.",
            "none",
            (
                ("sum by (sink, outcome) (increase(bundlekeel_notifications_total{@}[1h]))", "{{sink}} {{outcome}}"),
                ("sum by (sink) (bundlekeel_notifications_waiting{@})", "{{sink}} waiting"),
            ),
        ),
        Panel(
            "Traces",
            "Spans per hour by outcome; none while traces are off.",
            "none",
            (("sum by (outcome) (increase(bundlekeel_trace_spans_total{@}[1h]))", "{{outcome}}"),),
        ),
    ),
)

PAGE = Page(
    "bundlekeel-health",
    "Bundlekeel: health",
    "Is Bundlekeel itself well: leadership, store, cycles, reports, channel, journal, notifications.",
    (_LEAD, _CYCLES, _CHANNEL, _RECORDS),
)
