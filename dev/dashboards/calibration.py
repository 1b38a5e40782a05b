"""Are the thresholds right: predictions against what came of them, parameters in force, and the history kept."""

from __future__ import annotations

from dev.dashboards.kit import Page, Panel, Row

_FIT = Row(
    "Do predictions hold",
    (
        Panel(
            "Predicted less realised gain",
            "Of the moves judged last, of a broker's capacity: far above 0, moves promise more than they bring.",
            "percentunit",
            (("max(bundlekeel_effect_error_ratio{@})", "error"),),
            bottom=None,
        ),
        Panel(
            "Share of moves that helped",
            "Of those judged in the 24 hours before.",
            "percentunit",
            (
                (
                    'sum(increase(bundlekeel_moves_helped_total{@,result="helped"}[24h]))'
                    " / sum(increase(bundlekeel_moves_helped_total{@}[24h]))",
                    "helped",
                ),
            ),
            top=1.0,
        ),
        Panel(
            "Moves a day",
            "Bundles moved in the 24 hours before: what the thresholds cost.",
            "none",
            (("sum(increase(bundlekeel_moves_total{@}[24h]))", "moves"),),
        ),
        Panel(
            "Unevenness, mean of the day before",
            "What the thresholds leave over: highest over mean score.",
            "none",
            (('max(avg_over_time(bundlekeel_load_spread_ratio{@,stat="score_max_mean"}[24h]))', "max/mean"),),
        ),
        Panel(
            "Short against long averages",
            "Short over long average of throughput, by broker: far from 1, load changes faster than the averages.",
            "none",
            (
                (
                    'max by (broker) (bundlekeel_broker_average_bytes_per_second{@,window="short"})'
                    ' / max by (broker) (bundlekeel_broker_average_bytes_per_second{@,window="long"} > 0)',
                    "{{broker}}",
                ),
            ),
        ),
        Panel(
            "Widest difference against the thresholds",
            "The widest difference of a pair, beside the thresholds in force (strategy avg).",
            "percentunit",
            (
                ("max(bundlekeel_broker_pair_difference_ratio{@})", "widest"),
                ("max by (threshold) (bundlekeel_pair_threshold_ratio{@})", "threshold {{threshold}}"),
            ),
        ),
    ),
)

_PARAMETERS = Row(
    "Parameters in force",
    (
        Panel(
            "Thresholds in percent",
            "Every parameter in percent; a step is a change of settings, an adoption, or a change at the brokers.",
            "percent",
            (('max by (parameter) (bundlekeel_parameter{@,parameter=~".*_percent"})', "{{parameter}}"),),
            span=12,
        ),
        Panel(
            "Hit counts and weights",
            "How often a difference must be seen, and how much each resource counts.",
            "none",
            (('max by (parameter) (bundlekeel_parameter{@,parameter=~".*hit_count.*|.*_weight"})', "{{parameter}}"),),
            span=12,
        ),
    ),
)

_ADOPTION = Row(
    "Adoption",
    (
        Panel(
            "Adopted thresholds",
            "Parameters that adopted thresholds set; on trial: 1 while they are watched, to be kept or reverted.",
            "none",
            (
                ("max(bundlekeel_thresholds_in_force{@})", "in force"),
                ("max(bundlekeel_thresholds_on_trial{@})", "on trial"),
            ),
        ),
        Panel(
            "What became of proposals",
            "Per day: recommended, refused, adopted, kept, reverted; and attempts to read proposals that failed.",
            "none",
            (
                ("sum by (what) (increase(bundlekeel_thresholds_total{@}[24h]))", "{{what}}"),
                ("sum(increase(bundlekeel_thresholds_store_errors_total{@}[24h]))", "store refused"),
            ),
        ),
        Panel(
            "Newest proposal",
            "Its age; the nightly job makes one a day.",
            "s",
            (("max(bundlekeel_thresholds_age_seconds{@})", "age"),),
        ),
        Panel(
            "Why it is not adopted",
            "1 for each objection to the newest proposal, by code.",
            "none",
            (("max by (code) (bundlekeel_thresholds_objections{@})", "{{code}}"),),
            kind="states",
            span=24,
            top=1.0,
        ),
    ),
)

_SHADOW = Row(
    "Other strategies beside the one in force (shadow.strategies)",
    (
        Panel(
            "Would another strategy do better",
            "Predicted max/mean after the plan in force less after the other one's: above 0 it would do better.",
            "none",
            (("max by (strategy) (bundlekeel_shadow_regret_ratio{@})", "{{strategy}}"),),
            bottom=None,
        ),
        Panel(
            "How far plans differ",
            "Share of the moves of either plan that the other lacks.",
            "percentunit",
            (("max by (strategy) (bundlekeel_shadow_disagreement_ratio{@})", "{{strategy}}"),),
            top=1.0,
        ),
        Panel(
            "Cycles by agreement",
            "Per hour: both move, both rest, or only one of them would move.",
            "none",
            (
                (
                    "sum by (strategy, agreement) (increase(bundlekeel_shadow_cycles_total{@}[1h]))",
                    "{{strategy}} {{agreement}}",
                ),
            ),
        ),
        Panel(
            "Time of a plan of another strategy",
            "95th percentile; it runs beside the cycles.",
            "s",
            (
                (
                    "histogram_quantile(0.95, sum by (le)"
                    " (rate(bundlekeel_shadow_seconds_bucket{@}[$__rate_interval])))",
                    "95%",
                ),
            ),
            span=12,
        ),
        Panel(
            "Cycles left out",
            "Per hour: the other strategies were still at an earlier one.",
            "none",
            (("sum(increase(bundlekeel_shadow_skipped_total{@}[1h]))", "left out"),),
            span=12,
        ),
    ),
)

_HISTORY = Row(
    "History that calibration reads",
    (
        Panel(
            "Recorded cycles",
            "Cycles per minute by what became of their record; dropped ones are gaps.",
            "cpm",
            (("60 * sum by (outcome) (rate(bundlekeel_history_cycles_total{@}[$__rate_interval]))", "{{outcome}}"),),
            kind="stacked",
        ),
        Panel(
            "Not published yet",
            "Bytes of history on the sidecars' own disks.",
            "bytes",
            (("max by (instance) (bundlekeel_history_wal_bytes{@})", "{{instance}}"),),
        ),
        Panel(
            "Time to write a cycle",
            "95th percentile; it runs beside the cycles.",
            "s",
            (
                (
                    "histogram_quantile(0.95, sum by (le)"
                    " (rate(bundlekeel_history_write_seconds_bucket{@}[$__rate_interval])))",
                    "95%",
                ),
            ),
        ),
        Panel(
            "Files",
            "Per hour: published, merged, removed because they are old, set aside.",
            "none",
            (("sum by (what) (increase(bundlekeel_history_files_total{@}[1h]))", "{{what}}"),),
            span=12,
        ),
        Panel(
            "Torn ends and refusals",
            "Torn ends of logs and files, and attempts to publish that the store refused, per hour.",
            "none",
            (
                ("sum by (where) (increase(bundlekeel_history_torn_total{@}[1h]))", "torn {{where}}"),
                ("sum(increase(bundlekeel_history_store_errors_total{@}[1h]))", "refused"),
            ),
            span=12,
        ),
    ),
)

PAGE = Page(
    "bundlekeel-calibration",
    "Bundlekeel: calibration",
    "Are the thresholds right: predictions against what came of them, parameters in force, history kept.",
    (_FIT, _PARAMETERS, _ADOPTION, _SHADOW, _HISTORY),
)
