"""Why bundles move, or do not: verdicts, refusals, hit counts, differences against thresholds, averages."""

from __future__ import annotations

from dev.dashboards.kit import Page, Panel, Row

_VERDICTS = Row(
    "Verdicts and refusals",
    (
        Panel(
            "Verdicts of the cluster",
            "Cycles by strategy and verdict, per minute.",
            "cpm",
            (
                (
                    "60 * sum by (strategy, code)"
                    ' (rate(bundlekeel_decisions_total{@,scope="cluster"}[$__rate_interval]))',
                    "{{strategy}} {{code}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            "Verdicts of brokers",
            "Brokers by verdict, a cycle: how many are overloaded, underloaded, waiting for their hit count.",
            "none",
            (
                (
                    'sum by (code) (rate(bundlekeel_decisions_total{@,scope="broker"}[$__rate_interval]))'
                    " / ignoring (code) group_left ()"
                    ' sum(rate(bundlekeel_decisions_total{@,scope="cluster"}[$__rate_interval]))',
                    "{{code}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            "Refused candidates",
            "Bundles that were looked at and do not move, by why, per second.",
            "cps",
            (("sum by (code) (rate(bundlekeel_refusals_total{@}[$__rate_interval]))", "{{code}}"),),
            kind="stacked",
        ),
        Panel(
            "Planned",
            "Moves and splits of the latest plan, of the sidecar that plans most.",
            "none",
            (
                ("max(bundlekeel_planned_moves{@})", "moves"),
                ("max(bundlekeel_planned_splits{@})", "splits"),
            ),
        ),
        Panel(
            "Hot bundles that are not split",
            "Bundles above a split limit, by why they stay whole; SingleTopic and DominantTopic need partitions.",
            "none",
            (("max by (code) (bundlekeel_unsplit_bundles{@})", "{{code}}"),),
            kind="stacked",
        ),
        Panel(
            "Bundles seen",
            "Bundles in the latest picture.",
            "none",
            (("max(bundlekeel_snapshot_bundles{@})", "bundles"),),
        ),
    ),
)

_PAIRS = Row(
    "Pairs of brokers (strategy avg)",
    (
        Panel(
            "Difference to the partner against the thresholds",
            "The most loaded broker is paired with the least loaded one, and so on. Above `low` for enough fresh"
            " reports, or above `high` for a few, bundles move.",
            "percentunit",
            (
                ("max by (broker) (bundlekeel_broker_pair_difference_ratio{@})", "{{broker}}"),
                ("max by (threshold) (bundlekeel_pair_threshold_ratio{@})", "threshold {{threshold}}"),
            ),
            span=12,
        ),
        Panel(
            "Hit counts",
            "Fresh reports in a row with such a difference, beside the counts that are needed.",
            "none",
            (
                ("max by (broker, threshold) (bundlekeel_broker_hits{@})", "{{broker}} {{threshold}}"),
                ('max(bundlekeel_parameter{@,parameter="avg_hit_count_low"})', "needed low"),
                ('max(bundlekeel_parameter{@,parameter="avg_hit_count_high"})', "needed high"),
            ),
            span=12,
        ),
    ),
)

_INPUTS = Row(
    "What it is decided from",
    (
        Panel(
            "Score and smoothed score",
            "The score now, and the history score where the strategy keeps one (threshold).",
            "percentunit",
            (
                ("max by (broker) (bundlekeel_broker_score_ratio{@})", "{{broker}}"),
                ("max by (broker) (bundlekeel_broker_history_score_ratio{@})", "{{broker}} smoothed"),
            ),
            span=12,
        ),
        Panel(
            "Usage by resource",
            "What brokers report to use of each resource, of its limit, unweighted; the highest weighted is the score.",
            "percentunit",
            (("max by (broker, resource) (bundlekeel_broker_usage_ratio{@})", "{{broker}} {{resource}}"),),
            span=12,
        ),
        Panel(
            "Throughput by averages",
            "Sums of the bundles' short (10 samples) and long (1,000 samples) averages.",
            "Bps",
            (("max by (broker, window) (bundlekeel_broker_average_bytes_per_second{@})", "{{broker}} {{window}}"),),
        ),
        Panel(
            "Messages by averages",
            "The same of message rates.",
            "mps",
            (("max by (broker, window) (bundlekeel_broker_average_msg_rate{@})", "{{broker}} {{window}}"),),
        ),
        Panel(
            "Preallocated bundles",
            "Bundles on their way to a broker, or landed there and not in its report yet.",
            "none",
            (("max by (broker) (bundlekeel_broker_preallocated_bundles{@})", "{{broker}}"),),
        ),
    ),
)

PAGE = Page(
    "bundlekeel-decisions",
    "Bundlekeel: decisions",
    "Why bundles move, or do not: verdicts, refusals, hit counts, thresholds, averages.",
    (_VERDICTS, _PAIRS, _INPUTS),
)
