"""What was done and what it cost: moves, splits, drains, how long clients wait, whether it helped."""

from __future__ import annotations

from dev.dashboards.kit import Page, Panel, Query, Row


def _quantiles(metric: str, by: str = "", legend: str = "") -> tuple[Query, ...]:
    """Median and 95th percentile of a histogram."""
    labels = f"le, {by}" if by else "le"
    return tuple(
        (
            f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{@}}[$__rate_interval])))",
            f"{legend} {word}".strip(),
        )
        for q, word in ((0.5, "median"), (0.95, "95%"))
    )


_MOVES = Row(
    "Moves",
    (
        Panel(
            "Moves by outcome",
            "Bundles moved per hour, by how it ended: unknown and refused ones deserve a look.",
            "none",
            (("sum by (outcome) (increase(bundlekeel_moves_total{@}[1h]))", "{{outcome}}"),),
            kind="stacked",
        ),
        Panel(
            "Moves by what asked for them",
            "Per hour: the strategy, drain, warm, a person; unknown: begun by an earlier leader.",
            "none",
            (("sum by (rule) (increase(bundlekeel_moves_by_rule_total{@}[1h]))", "{{rule}}"),),
            kind="stacked",
        ),
        Panel(
            "Splits",
            "Bundles split per hour, by the limit that asked for it and how it ended.",
            "none",
            (("sum by (rule, outcome) (increase(bundlekeel_splits_total{@}[1h]))", "{{rule}} {{outcome}}"),),
            kind="stacked",
        ),
        Panel(
            "Brokers that split by themselves",
            "How many have their own split on; 1 under taken over: a takeover turned it off, so there should be none.",
            "none",
            (
                ("sum(max by (broker) (bundlekeel_broker_splits_itself{@}))", "brokers"),
                ("max(bundlekeel_splits_taken_over{@})", "taken over"),
            ),
        ),
    ),
)

_COST = Row(
    "What it costs",
    (
        Panel(
            "How long a move takes",
            "From the first call to the landing: so long the clients of a bundle reconnect.",
            "s",
            _quantiles("bundlekeel_move_duration_seconds"),
        ),
        Panel(
            "Lookups",
            "Time of the lookups that have a bundle taken by its new broker.",
            "s",
            (
                (
                    'sum(rate(bundlekeel_admin_request_seconds_sum{@,route=~"/lookup.*"}[$__rate_interval]))'
                    ' / sum(rate(bundlekeel_admin_request_seconds_count{@,route=~"/lookup.*"}[$__rate_interval]))',
                    "mean",
                ),
            ),
        ),
        Panel(
            "Bundles not settled",
            "Moves that the reports do not show yet (ledger), and moves announced and not ended (intents).",
            "none",
            (
                ("max(bundlekeel_ledger_entries{@})", "ledger"),
                ("max(bundlekeel_open_intents{@})", "intents"),
            ),
        ),
        Panel(
            "Requests to brokers",
            "Per second, by route and answer, redirects included.",
            "reqps",
            (
                (
                    "sum by (method, route, code) (rate(bundlekeel_admin_requests_total{@}[$__rate_interval]))",
                    "{{method}} {{route}} {{code}}",
                ),
            ),
            span=12,
        ),
        Panel(
            "Time of requests to brokers",
            "95th percentile by route.",
            "s",
            (
                (
                    "histogram_quantile(0.95, sum by (le, method, route)"
                    " (rate(bundlekeel_admin_request_seconds_bucket{@}[$__rate_interval])))",
                    "{{method}} {{route}}",
                ),
            ),
            span=12,
        ),
    ),
)

_USE = Row(
    "What it brings",
    (
        Panel(
            "Did moves help",
            "Moves judged in the 6 hours before, by what came of them.",
            "none",
            (("sum by (result) (increase(bundlekeel_moves_helped_total{@}[6h]))", "{{result}}"),),
            kind="stacked",
        ),
        Panel(
            "Moves by others",
            "Bundles that somebody else moved, per hour; undone: back to where we had taken them from.",
            "none",
            (("sum by (undone) (increase(bundlekeel_foreign_moves_total{@}[1h]))", "undone {{undone}}"),),
            kind="stacked",
        ),
        Panel(
            "Quarantined pairs",
            "Pairs of brokers between which moves did not help, and are not made for a while.",
            "none",
            (("max(bundlekeel_quarantined_pairs{@})", "pairs"),),
        ),
        Panel(
            "Drains",
            "Bundles that draining brokers still own.",
            "none",
            (("max by (broker) (bundlekeel_drain_bundles{@})", "{{broker}}"),),
            span=12,
        ),
        Panel(
            "Bundle-seconds of drains",
            "Bundles times seconds spent on brokers that were to be empty, per hour: lower is a faster drain.",
            "none",
            (("sum by (broker) (increase(bundlekeel_drain_bundle_seconds_total{@}[1h]))", "{{broker}}"),),
            span=12,
        ),
    ),
)

PAGE = Page(
    "bundlekeel-actions",
    "Bundlekeel: actions and what they cost",
    "What was moved and split, how long it took, whether it helped.",
    (_MOVES, _COST, _USE),
)
