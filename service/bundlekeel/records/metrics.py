"""Prometheus metrics: name, type, labels and meaning in one table, the source of docs/reference/metrics.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from bundlekeel.model.codes import OUTCOMES
from bundlekeel.model.load import Floats
from bundlekeel.records.metric import Metric
from bundlekeel.settings.features import with_features

PREFIX = "bundlekeel_"


_OWN: tuple[Metric, ...] = (
    Metric("cycles_total", "counter", ("outcome",), "Cycles by verdict code."),
    Metric(
        "cycle_due_seconds",
        "gauge",
        (),
        "Seconds until the next cycle is due by cycle.interval; below 0: the cycle is late.",
    ),
    Metric("cycle_duration_seconds", "histogram", ("phase",), "Time of a cycle by phase: plan, execute, total."),
    Metric(
        "drain_bundles",
        "gauge",
        ("broker",),
        "Bundles that a draining broker still owns, without system bundles; only while the broker is registered.",
    ),
    Metric(
        "drain_bundle_seconds_total",
        "counter",
        ("broker",),
        "Sum over bundles of the seconds on a broker that is drained, by the broker's own list of bundles.",
    ),
    Metric(
        "moves_total",
        "counter",
        ("outcome",),
        "Moves by outcome: done, landed_elsewhere, released, unknown, refused.",
        OUTCOMES,
    ),
    Metric(
        "move_duration_seconds",
        "histogram",
        (),
        "Time from the first request of a move until another broker owns the bundle.",
    ),
    Metric(
        "moves_helped_total",
        "counter",
        ("result",),
        "Moves by result: helped, no_benefit, worse.",
        ("helped", "no_benefit", "worse"),
    ),
    Metric(
        "effect_error_ratio",
        "gauge",
        (),
        "Predicted minus measured gain of the last judged moves, as a ratio of capacity.",
    ),
    Metric(
        "quarantined_pairs",
        "gauge",
        (),
        "Pairs of brokers without moves for now, because earlier moves between them did not help.",
    ),
    Metric(
        "external_moves_total",
        "counter",
        ("undone",),
        "Bundles moved by another tool or balancer; undone: whether this reverted a move of Bundlekeel.",
        ("false", "true"),
    ),
    Metric("broker_sheds_itself", "gauge", ("broker",), "1: the broker's own shedding is on, 0: it is off."),
    Metric("broker_splits_itself", "gauge", ("broker",), "1: the broker's own automatic split is on, 0: it is off."),
    Metric("splits_taken_over", "gauge", (), "1: an active takeover turned the brokers' own splits off."),
    Metric(
        "splits_total",
        "counter",
        ("outcome", "rule"),
        "Splits by outcome (done, unknown, refused) and by the rule that requested them.",
    ),
    Metric(
        "decisions_total",
        "counter",
        ("strategy", "scope", "code"),
        "Verdicts by strategy: of the whole cluster (scope cluster) and of each broker (scope broker).",
    ),
    Metric(
        "obstacle_info",
        "gauge",
        ("code",),
        "1 for the code of why plans are not executed now, also on followers; code none: plans are executed.",
    ),
    Metric(
        "moves_by_rule_total",
        "counter",
        ("rule", "outcome"),
        "Moves by what requested them: a strategy, drain, warm, an operator; unknown: left by an earlier leader.",
    ),
    Metric("planned_moves", "gauge", (), "Moves in the latest plan."),
    Metric("planned_splits", "gauge", (), "Splits in the latest plan."),
    Metric(
        "unsplit_bundles", "gauge", ("code",), "Bundles above a split limit that are not split, by code of the reason."
    ),
    Metric("refusals_total", "counter", ("code",), "Candidates that did not move, by code."),
    Metric(
        "broker_score_ratio",
        "table",
        ("broker",),
        "Predicted score: the highest weighted usage of a resource, 1 is the limit.",
    ),
    Metric(
        "broker_throughput_bytes_per_second",
        "table",
        ("broker",),
        "Predicted throughput of the broker, in and out together.",
    ),
    Metric(
        "broker_msg_rate", "table", ("broker",), "Predicted messages per second of the broker, in and out together."
    ),
    Metric("broker_bundles", "table", ("broker",), "Bundles by owner."),
    Metric(
        "broker_usage_ratio",
        "table",
        ("broker", "resource"),
        "Reported usage of a resource as a ratio of its limit, unweighted; only where a limit is known.",
    ),
    Metric("broker_cpu_base_ratio", "table", ("broker",), "Estimated share of the CPU limit that no bundle causes."),
    Metric("broker_cpu_message_seconds", "table", ("broker",), "Estimated CPU seconds per message, in or out."),
    Metric("broker_cpu_byte_seconds", "table", ("broker",), "Estimated CPU seconds per byte, in or out."),
    Metric(
        "broker_cpu_capacity_msg_rate",
        "table",
        ("broker",),
        "Estimated messages per second, in and out, at which the present mix of traffic uses up the CPU.",
    ),
    Metric(
        "broker_average_msg_rate",
        "table",
        ("broker", "window"),
        "Messages per second in and out of the broker's bundles by their averages: window short (10 "
        "samples), long (1,000).",
    ),
    Metric(
        "broker_average_bytes_per_second",
        "table",
        ("broker", "window"),
        "Throughput in and out of the broker's bundles by their averages: window short (10 samples), long (1,000).",
    ),
    Metric(
        "broker_preallocated_bundles", "table", ("broker",), "Bundles in transit to the broker, or not in its load yet."
    ),
    Metric(
        "broker_imbalance_cost",
        "table",
        ("broker", "kind"),
        "Cost of a broker's imbalance: so_far, and price of the moves that would end it. A second at "
        "twice the tolerated difference costs 1; 0: tolerated.",
    ),
    Metric(
        "broker_pair_difference_ratio",
        "table",
        ("broker",),
        "Difference of score to the broker's partner: most with least loaded, and so on (strategy avg).",
    ),
    Metric(
        "pair_threshold_ratio",
        "gauge",
        ("threshold",),
        "The tolerated difference: low (strategy avg).",
    ),
    Metric(
        "parameter",
        "gauge",
        ("parameter",),
        "Value of each numeric parameter in effect, by Bundlekeel's name and in its unit.",
    ),
    Metric(
        "isolation_policy_brokers",
        "table",
        ("policy", "kind"),
        "Live brokers that each isolation policy matches: kind primary, secondary. Both 0: it matches none.",
    ),
    Metric("snapshot_bundles", "gauge", (), "Bundles in the latest snapshot."),
    Metric(
        "load_spread_ratio",
        "gauge",
        ("stat",),
        "Load of the most loaded broker divided by the mean of the brokers that share the load, by score "
        "and throughput.",
    ),
    Metric(
        "snapshot_age_seconds",
        "table",
        ("broker",),
        "Age of each broker's load report, or of the last reading of its counters if that is newer.",
    ),
    Metric(
        "live_load_brokers",
        "gauge",
        ("state",),
        "Brokers by source of their load, at the leader: live (counters), or why the load report is used instead.",
    ),
    Metric(
        "live_load_age_seconds",
        "table",
        ("broker",),
        "Age of the last reading of the counters, for each broker whose counters are used.",
    ),
    Metric("bundles_served_twice", "gauge", (), "Bundles with topics that two brokers serve, at the leader."),
    Metric(
        "load_signals_total",
        "counter",
        ("result",),
        "Signals of changed traffic: sent to the leader, failed; at the leader: followed by early readings, ignored.",
        ("sent", "failed", "followed", "ignored"),
    ),
    Metric("snapshot_brokers", "gauge", ("state",), "Registered brokers: ok or an exclusion code."),
    Metric("excluded_reports_total", "counter", ("code",), "Reports that could not be used, by code."),
    Metric("imputed_fields_total", "counter", ("code",), "Fields of reports that were filled in, by code."),
    Metric("feed_up", "gauge", ("state",), "1 for the state of the load topics (extensible load manager): ok is good."),
    Metric("ledger_entries", "gauge", (), "Moves whose effect the loads do not show yet."),
    Metric(
        "unreadable_documents",
        "gauge",
        (),
        "Documents below Bundlekeel's root that cannot be read; `doctor` names them.",
    ),
    Metric(
        "open_intents",
        "gauge",
        (),
        "Moves and splits of an earlier leader whose outcome this leader has not determined yet.",
    ),
    Metric("channel_up", "gauge", ("variant",), "1 while the ownership channel is followed (extensible mode only)."),
    Metric("channel_bundles", "gauge", ("state",), "Bundles in the ownership channel, by state."),
    Metric("channel_findings", "gauge", ("code",), "Problems in the ownership channel, by code."),
    Metric(
        "channel_in_flight_oldest_seconds", "gauge", (), "Age of the oldest assignment, release or split in progress."
    ),
    Metric("leader", "gauge", (), "1 while this sidecar leads."),
    Metric("epoch", "gauge", (), "Number (epoch) of the latest leader's term that this sidecar has read."),
    Metric(
        "leader_transitions_total",
        "counter",
        ("to",),
        "Changes of role: leader, follower, bench.",
        ("leader", "follower", "bench"),
    ),
    Metric(
        "lease_remaining_seconds",
        "gauge",
        (),
        "Seconds until this sidecar's leadership deadline; 0 when it does not lead.",
    ),
    Metric("store_connected", "gauge", (), "1 while the metadata store answers."),
    Metric("settling_after_outage_seconds", "gauge", (), "Least remaining time without moves after an outage."),
    Metric(
        "outages_total", "counter", (), "Outages of the metadata store, or of most brokers, that this sidecar detected."
    ),
    Metric("paused", "gauge", (), "1 while an operator has paused the balancer."),
    Metric(
        "takeover_in_force",
        "gauge",
        (),
        "1 while a takeover is active: the brokers do not shed the bundles that it covers.",
    ),
    Metric(
        "failsafe_look_timestamp_seconds",
        "gauge",
        (),
        "Time of the last check by the failsafe job, by its clock; 0: never.",
    ),
    Metric("mode_info", "gauge", ("mode",), "1 for the mode in effect."),
    Metric(
        "settings_read_total",
        "counter",
        ("outcome",),
        "Reads of the settings file, after a change or SIGHUP, by outcome: applied, unchanged, refused.",
        ("applied", "unchanged", "refused"),
    ),
    Metric(
        "settings_refused", "gauge", (), "1 while the settings file is rejected: the last valid settings are in effect."
    ),
    Metric(
        "settings_restart_needed", "gauge", (), "Changed settings of the file that take effect only after a restart."
    ),
    Metric(
        "admin_requests_total",
        "counter",
        ("route", "method", "code"),
        "Requests to brokers, including redirects, by HTTP status, or timeout, broken, aborted; "
        "unreachable: nothing was sent.",
    ),
    Metric("admin_request_seconds", "histogram", ("route", "method"), "Time of one request that was sent to a broker."),
    Metric(
        "api_refusals_total",
        "counter",
        ("code",),
        "API requests refused for their credentials: 401, 403, 429.",
        ("401", "403", "429"),
    ),
    Metric(
        "notifications_total",
        "counter",
        ("sink", "outcome"),
        "Notifications: sent, failed (given up after retries), dropped (too many were waiting).",
    ),
    Metric(
        "trace_spans_total",
        "counter",
        ("outcome",),
        "Spans of traces: sent, failed (the collector did not accept them).",
    ),
    Metric("notifications_waiting", "gauge", ("sink",), "Notifications that are not sent yet."),
    Metric("journal_errors_total", "counter", (), "Journal records that could not be written."),
    Metric("journal_torn_records_total", "counter", (), "Unreadable journal lines set aside."),
    Metric(
        "unexpected_errors_total", "counter", ("where",), "Unexpected errors, by the task that caught them.", ("cycle",)
    ),
    Metric("event_loop_lag_seconds", "gauge", (), "How late the event loop wakes up."),
    Metric("build_info", "gauge", ("version",), "1 for the running release."),
)
METRICS: tuple[Metric, ...] = tuple(with_features({item.name: item for item in _OWN}, "metrics", "METRICS").values())


class _Table:
    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        # In one attribute, so that another thread can render the metrics while the series are replaced.
        self.series: tuple[Sequence[str], Sequence[str], Floats] = ((), (), np.zeros((0, 1)))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge with its series, for the Prometheus registry."""
        family = GaugeMetricFamily(PREFIX + self._metric.name, self._metric.help, labels=self._metric.labels)
        rows, columns, table = self.series
        labels: Sequence[tuple[str, ...]] = [(column,) for column in columns] or [()]
        for row, values in zip(rows, table.tolist(), strict=True):
            for label, value in zip(labels, values, strict=True):
                if not math.isnan(value):
                    family.add_metric((row, *label), value)
        yield family


class PrometheusTelemetry:
    """`ports.Telemetry` on its own registry. An unknown name is a programming error and raises KeyError."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # With a prefix: Bundlekeel takes targets with the usual `process_cpu_seconds_total` in Prometheus for brokers.
        ProcessCollector(namespace=PREFIX.rstrip("_"), registry=self.registry)
        self._kinds: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._tables: dict[str, _Table] = {}
        for metric in METRICS:
            name, labels = PREFIX + metric.name, metric.labels
            if metric.kind == "counter":
                counter = self._counters[metric.name] = Counter(name, metric.help, labels, registry=self.registry)
                for value in metric.starts:
                    counter.labels(value)
            elif metric.kind == "gauge":
                self._gauges[metric.name] = Gauge(name, metric.help, labels, registry=self.registry)
            elif metric.kind == "table":
                self._tables[metric.name] = _Table(metric)
                self.registry.register(self._tables[metric.name])
            else:
                self._histograms[metric.name] = Histogram(name, metric.help, labels, registry=self.registry)

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def time(self, name: str, seconds: float, **labels: str) -> None:
        """Observe a duration."""
        histogram = self._histograms[name]
        (histogram.labels(**labels) if labels else histogram).observe(seconds)

    def table(self, name: str, rows: Sequence[str], values: Floats, columns: Sequence[str] = ()) -> None:
        """Set all series of a table."""
        table = np.array(values, dtype=np.float64).reshape(len(rows), len(columns) or 1)
        self._tables[name].series = (tuple(rows), tuple(columns), table)

    def retain(self, name: str, label: str, values: set[str]) -> None:
        """Delete the series of a gauge whose value of `label` is not in `values`, for example of brokers that left."""
        gauge = self._gauges[name]
        for sample in next(iter(gauge.collect())).samples:
            if sample.labels[label] not in values:
                gauge.remove(*(sample.labels[key] for key in self._kinds[name].labels))

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the requested format (OpenMetrics if `accept` allows it), and the content type."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type

    def content_type(self, accept: str) -> str:
        """Return the content type of `render`."""
        return choose_encoder(accept)[1]
