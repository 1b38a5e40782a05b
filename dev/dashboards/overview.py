"""The first dashboard to open: is it balanced, who leads, does anything happen, is anything in the way."""

from __future__ import annotations

from dev.dashboards.kit import Page, Panel, Row

_NOW = Row(
    "Now",
    (
        Panel(
            "Busiest broker",
            "The highest score of a broker: its most used weighted resource, of what it can carry.",
            "percentunit",
            (("max(bundlekeel_broker_score_ratio{@})", "score"),),
            kind="number",
            span=4,
            limits=(0.7, 0.85),
        ),
        Panel(
            "Unevenness",
            "Highest score over mean score; 1 is perfectly even.",
            "none",
            (('max(bundlekeel_load_spread_ratio{@,stat="score_max_mean"})', "max/mean"),),
            kind="number",
            span=4,
            limits=(1.3, 1.6),
        ),
        Panel(
            "Leaders",
            "Sidecars that lead; exactly one is right.",
            "none",
            (("sum(bundlekeel_leader{@})", "leaders"),),
            kind="number",
            span=4,
        ),
        Panel(
            "Sidecars",
            "Sidecars that are scraped, by version.",
            "none",
            (("count by (version) (bundlekeel_build_info{@})", "{{version}}"),),
            kind="number",
            span=4,
        ),
        Panel(
            "What is in the way",
            "Why nothing is carried out, by code; NotLeader is normal for followers, nothing else means that it acts.",
            "none",
            (("count by (code) (bundlekeel_obstacle_info{@} == 1)", "{{code}}"),),
            kind="number",
            span=4,
        ),
        Panel(
            "Mode",
            "The mode in force, by number of sidecars; paused: how many are paused by a person.",
            "none",
            (
                ("sum by (mode) (bundlekeel_mode_info{@}) > 0", "{{mode}}"),
                ("sum(bundlekeel_paused{@})", "paused"),
            ),
            kind="number",
            span=4,
        ),
    ),
)

_LOAD = Row(
    "Load by broker",
    (
        Panel(
            "Score",
            "Predicted score of each broker: moves under way are reckoned with. Above the overload threshold it sheds.",
            "percentunit",
            (
                ("max by (broker) (bundlekeel_broker_score_ratio{@})", "{{broker}}"),
                ('max(bundlekeel_parameter{@,parameter="overloaded_threshold_percent"}) / 100', "overload threshold"),
            ),
            span=12,
        ),
        Panel(
            "Score now",
            "The same as bars, the busiest broker first.",
            "percentunit",
            (("sort_desc(max by (broker) (bundlekeel_broker_score_ratio{@}))", "{{broker}}"),),
            kind="bars",
            span=12,
            limits=(0.7, 0.85),
            top=1.0,
        ),
        Panel(
            "Throughput",
            "Bytes in and out of each broker, predicted.",
            "Bps",
            (("max by (broker) (bundlekeel_broker_throughput_bytes_per_second{@})", "{{broker}}"),),
        ),
        Panel(
            "Messages",
            "Messages in and out of each broker, predicted.",
            "mps",
            (("max by (broker) (bundlekeel_broker_msg_rate{@})", "{{broker}}"),),
        ),
        Panel(
            "Bundles",
            "Bundles by owner.",
            "none",
            (("max by (broker) (bundlekeel_broker_bundles{@})", "{{broker}}"),),
        ),
    ),
)

_DOES = Row(
    "What it does",
    (
        Panel(
            "Unevenness over time",
            "Highest over mean, of score and of throughput; 1 is perfectly even.",
            "none",
            (("max by (stat) (bundlekeel_load_spread_ratio{@})", "{{stat}}"),),
        ),
        Panel(
            "Moves an hour",
            "Bundles moved in the hour before, by how that ended.",
            "none",
            (("sum by (outcome) (increase(bundlekeel_moves_total{@}[1h]))", "{{outcome}}"),),
            kind="stacked",
        ),
        Panel(
            "Verdicts of cycles",
            "Share of cycles by verdict; docs/reference/codes.md explains each code.",
            "percentunit",
            (
                (
                    "sum by (outcome) (rate(bundlekeel_cycles_total{@}[$__rate_interval]))"
                    " / ignoring (outcome) group_left () sum(rate(bundlekeel_cycles_total{@}[$__rate_interval]))",
                    "{{outcome}}",
                ),
            ),
            kind="stacked",
            top=1.0,
        ),
    ),
)

_QUOTAS = Row(
    "Quota groups",
    (
        Panel(
            "Used of the limit",
            "What the members of a quota group pass together, of what they may, by kind of rate.",
            "percentunit",
            (("max by (group, kind) (bundlekeel_quota_used_ratio{@})", "{{group}} {{kind}}"),),
        ),
        Panel(
            "Topics held back",
            "Topics of each group that are at their limit.",
            "none",
            (("max by (group) (bundlekeel_quota_held_back_topics{@})", "{{group}}"),),
        ),
        Panel(
            "Rates written, and left",
            "Rates of topics written a second, and those that are not as shares would have them, by why.",
            "none",
            (
                ("sum by (outcome) (rate(bundlekeel_quota_writes_total{@}[$__rate_interval]))", "{{outcome}}"),
                ("max by (code) (bundlekeel_quota_rates_left{@})", "left: {{code}}"),
            ),
        ),
        *(
            Panel(
                f"Topics: {what}",
                f"{said} Of topics with metrics of their own (`quotas.topic_metrics`), as a part of the group's limit.",
                "percentunit",
                (
                    (
                        f"topk(10, max by (group, topic, kind) (bundlekeel_quota_topic_{what}{{@}}) / on (group, kind)"
                        " group_left () max by (group, kind) (bundlekeel_quota_limit{@}))",
                        "{{topic}} {{kind}}",
                    ),
                ),
            )
            for what, said in (
                ("usage", "What each passes."),
                ("limit", "What all its partitions may pass by the rates in force."),
                ("share", "What it may pass in the next cycle."),
                ("loss", "What of its share nobody uses, since demand sits in too few partitions."),
            )
        ),
    ),
)

PAGE = Page(
    "bundlekeel-overview",
    "Bundlekeel: overview",
    "Is the cluster balanced, who leads, what happens, what is in the way.",
    (_NOW, _LOAD, _DOES, _QUOTAS),
)
