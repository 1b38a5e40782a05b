"""Metrics of quota groups."""

from __future__ import annotations

from typing import Final

from bundlekeel.records.metric import Metric

_ROWS: Final = (
    Metric("quota_limit", "gauge", ("group", "kind"), "What a quota group may pass a second, over all brokers."),
    Metric("quota_usage", "gauge", ("group", "kind"), "What a quota group passes a second, over all brokers."),
    Metric("quota_share", "gauge", ("group", "kind"), "Sum of the shares of a quota group's topics, a second."),
    Metric("quota_used_ratio", "gauge", ("group", "kind"), "Usage of a quota group, of its limit."),
    Metric(
        "quota_skew_loss",
        "gauge",
        ("group", "kind"),
        "Shares a second that are not used, since demand sits in too few partitions of a topic.",
    ),
    Metric(
        "quota_topic_usage",
        "gauge",
        ("group", "topic", "kind"),
        "What a topic passes a second; of `quotas.topic_metrics` topics, those that lose most first.",
    ),
    Metric(
        "quota_topic_limit",
        "gauge",
        ("group", "topic", "kind"),
        "What all partitions of such a topic may pass a second by the rates in force; +Inf for no limit.",
    ),
    Metric("quota_topic_share", "gauge", ("group", "topic", "kind"), "The share of such a topic, a second."),
    Metric(
        "quota_topic_loss",
        "gauge",
        ("group", "topic", "kind"),
        "What of that share is not used, since demand sits in too few partitions of the topic.",
    ),
    Metric("quota_topics", "gauge", ("group",), "Topics of a quota group that are served."),
    Metric("quota_held_back_topics", "gauge", ("group",), "Topics of a quota group that are at their limit."),
    Metric("quota_held_back_seconds_total", "counter", ("group",), "Topics times seconds at their limit."),
    Metric("quota_writes_total", "counter", ("outcome",), "Rates and resource groups: written, failed."),
    Metric("quota_rates_left", "gauge", ("code",), "Rates of topics that are not as shares would have them, by why."),
    Metric("quota_rates_held", "gauge", (), "Rates of topics set by us, to be given back."),
)
# Metrics of this feature, by the metric of the sidecar that comes after them.
METRICS: Final = {"admin_requests_total": {row.name: row for row in _ROWS}}
