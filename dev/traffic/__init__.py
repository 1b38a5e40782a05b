"""Real producers and consumers that count lost messages and measure every break in service."""

from dev.traffic.admin import AdminError, ensure_namespace, place_all_on
from dev.traffic.bundles import bundle_of, topic_hash
from dev.traffic.report import Gap, TopicReport, TrafficReport
from dev.traffic.spec import TopicPlan, TrafficError, TrafficSpec, plan_topics
from dev.traffic.traffic import Traffic

__all__ = [
    "AdminError",
    "Gap",
    "TopicPlan",
    "TopicReport",
    "Traffic",
    "TrafficError",
    "TrafficReport",
    "TrafficSpec",
    "bundle_of",
    "ensure_namespace",
    "place_all_on",
    "plan_topics",
    "topic_hash",
]
