"""Metrics of quota groups."""

from __future__ import annotations

from typing import Final

from bundlekeel.records.metric import Metric

_ROWS: Final = (
    Metric("quota_limit", "gauge", ("group", "kind"), "Limit of a quota group over all brokers, per second."),
    Metric("quota_usage", "gauge", ("group", "kind"), "Throughput of a quota group over all brokers, per second."),
    Metric("quota_share", "gauge", ("group", "kind"), "Sum of the shares of a quota group's topics, per second."),
    Metric("quota_used_ratio", "gauge", ("group", "kind"), "Usage of a quota group divided by its limit."),
    Metric(
        "quota_skew_loss",
        "gauge",
        ("group", "kind"),
        "Unused shares per second, because the demand is in too few partitions of a topic.",
    ),
    Metric(
        "quota_topic_usage",
        "gauge",
        ("group", "topic", "kind"),
        "Throughput of a topic per second; only of the `quotas.topic_metrics` topics with the largest loss.",
    ),
    Metric(
        "quota_topic_limit",
        "gauge",
        ("group", "topic", "kind"),
        "Limit of all partitions of a topic by its rates in effect, per second; +Inf: no limit.",
    ),
    Metric(
        "quota_topic_share",
        "gauge",
        ("group", "topic", "kind"),
        "Share of the group's limit that a topic gets, per second.",
    ),
    Metric(
        "quota_topic_loss",
        "gauge",
        ("group", "topic", "kind"),
        "Unused part of a topic's share, because the demand is in too few of its partitions.",
    ),
    Metric("quota_topics", "gauge", ("group",), "Topics of a quota group that a broker serves."),
    Metric("quota_held_back_topics", "gauge", ("group",), "Topics of a quota group that are at their limit."),
    Metric("quota_held_back_seconds_total", "counter", ("group",), "Sum over topics of the seconds at their limit."),
    Metric(
        "quota_writes_total",
        "counter",
        ("outcome",),
        "Writes of topic rates and resource groups, by outcome: written, failed.",
    ),
    Metric(
        "quota_rates_left",
        "gauge",
        ("code",),
        "Topic rates that differ from their share and are not written, by code of the reason.",
    ),
    Metric("quota_rates_held", "gauge", (), "Topic rates set by Bundlekeel, which a handback restores."),
)
# Metrics of this feature, by the metric of the sidecar that comes after them.
METRICS: Final = {"admin_requests_total": {row.name: row for row in _ROWS}}
