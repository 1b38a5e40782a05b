"""Settings that are valid and hardly meant: one sentence each, with what would be better."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bundlekeel.settings.describe import warnings_of
from bundlekeel.settings.load import load_settings
from bundlekeel.settings.model import Settings

OF_POINTS = "is in percent points, so less than 1 %"


def warned(options: dict[str, Any]) -> list[str]:
    return warnings_of(load_settings(None, {"cluster": "c", **options}, environ={}).settings)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "overloaded_threshold_percent",
            0.85,
            "= 0.85: is in percent, so less than 1 %: a broker with a higher load is overloaded, "
            "and gets no bundle (better: 85)",
        ),
        ("loadBalancerBrokerOverloadedThresholdPercentage", 0.07, " = 0.07: is in percent,"),
        (
            "threshold_percent",
            0.1,
            f"= 0.1: {OF_POINTS}: a broker whose score is this far above the average sheds (better: 10)",
        ),
        ("avg_low_threshold_percent", 0.15, f"= 0.15: {OF_POINTS}"),
        ("avg_low_floor_percent", 0.02, f"= 0.02: {OF_POINTS}"),
        ("overloaded_threshold_percent", 1, ""),
        ("overloaded_threshold_percent", 0, ""),
        ("avg_low_floor_percent", 0.5, ""),
    ],
)
def test_a_ratio_where_percent_are_meant(name: str, value: float, message: str) -> None:
    """It is in range, and stops every move or makes a strategy far too eager. A low floor can be meant."""
    warnings = warned({"parameters": {name: value}})
    assert len(warnings) == bool(message) and message in "".join(warnings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"capacity": {"b*": {"nic_gbps": 10_000}}},
            "capacity.b*.nic_gbps = 10000.0: is in Gbit/s, each way (better: 10)",
        ),
        ({"capacity": {"b*": {"nic_gbps": 800}}}, None),
        (
            {"parameters": {"transfer_target_std": 25}},
            "parameters.transfer_target_std = 25.0: is a ratio, scores are 0 to 1 (better: 0.25)",
        ),
        ({"parameters": {"transfer_target_std": 1}}, None),
        (
            {"compat": "4.2", "strategy": "threshold", "parameters": {"history_weight": 1}},
            "parameters.history_weight = 1.0: the smoothed score never changes (better: 0.9)",
        ),
        ({"compat": "4.2", "strategy": "threshold", "parameters": {"history_weight": 0.99}}, None),
        (
            {"admin.read_timeout": "59s"},
            "admin.read_timeout = '59s': an unload takes up to 60s at the brokers, slower ones count as unknown "
            "(better: 90s)",
        ),
        ({"admin.read_timeout": "60s"}, None),
        (
            {"store.call_timeout": "11s"},
            "store.call_timeout = '11s': longer than store.session_timeout (10s), after which leadership is lost "
            "(better: 3s)",
        ),
        ({"store.call_timeout": "10s"}, None),
    ],
)
def test_a_wrong_unit(options: dict[str, Any], message: str | None) -> None:
    """It is in range, and makes a limit or a strategy useless, or work look like failure."""
    assert warned(options) == ([] if message is None else [message])


def test_a_cycle_that_the_failsafe_as_shipped_refuses() -> None:
    """Three cycles must fit into the `--after` of the units."""
    unit = Path(__file__).parents[3] / "deploy/systemd/bundlekeel-deadman.service"
    after = re.search(r"deadman --after (\d+)m ", unit.read_text())
    assert after is not None
    longest = int(after[1]) * 60 / 3
    assert warned({"cycle.interval": longest}) == []
    assert warned({"cycle.interval": longest + 1}) == [
        "cycle.interval = '201s': 3 cycles take longer than 10m, so the failsafe refuses its default, `--after 10m` "
        "(better: at most 200s, or a longer --after)"
    ]


@pytest.mark.parametrize("more", [[], [{"cron": "0 9 * * 1-5", "minutes": 480}]])
def test_a_freeze_without_an_end(more: list[dict[str, Any]]) -> None:
    """It wins over all other windows; there is nothing to say of those."""
    assert warned({"windows": [*more, {"cron": "*  * * * *", "minutes": 1, "allow": "nothing"}]}) == [
        "windows: one of allow: nothing is always open, so nothing moves by itself "
        "(better: mode recommend, or a window that ends)"
    ]


@pytest.mark.parametrize("source", ["brokers", "off", "prometheus"])
def test_a_prometheus_that_nobody_asks(source: str) -> None:
    warnings = warned({"counters.source": source, "prometheus.url": "http://p:9090"})
    expected = (
        "prometheus.url = 'http://p:9090': has no effect while counters.source is "
        f"{source} (better: counters.source: prometheus)"
    )
    assert warnings == ([] if source == "prometheus" else [expected])


@pytest.mark.parametrize(
    ("options", "expected"), [({}, True), ({"strategy": "transfer"}, True), ({"strategy": "overload"}, False)]
)
def test_a_weight_of_the_past_counts_where_a_strategy_smooths(options: dict[str, Any], expected: bool) -> None:
    """ThresholdShedder, the default of `compat`, and TransferShedder do."""
    warnings = warned({"compat": "4.2", **options, "parameters": {"history_weight": 1}})
    assert any(text.startswith("parameters.history_weight = 1.0: ") for text in warnings) == expected


@pytest.mark.parametrize(
    ("patterns", "hidden"),
    [
        (["broker-*", "broker-1*"], {"broker-1*": "broker-*"}),
        (["broker-1*", "broker-*"], {}),
        (["b*", "b1:8080"], {}),
        (["b?:*", "b*"], {}),
        (["b*", "b?:8080"], {"b?:8080": "b*"}),
        (["*", "b*"], {}),
        (["*:*", "*"], {"*": "*:*"}),
        (["*:8080", "*"], {}),
        (["/.*/", "/b.*/"], {"/b.*/": "/.*/"}),
        (["/b.*/", "/.*/", "*"], {"*": "/.*/"}),
        (["/b.*/", "*"], {}),
        (["b[0-9]*", "b[1]*"], {}),
    ],
)
def test_a_capacity_that_never_counts(patterns: list[str], hidden: dict[str, str]) -> None:
    """One entry counts for a broker: whatever this one matches has another."""
    assert warned({"capacity": {pattern: {"nic_gbps": 10} for pattern in patterns}}) == [
        f"capacity.{pattern}: has no effect: {other!r} counts for every broker that it matches "
        f"(better: omit it, or narrow {other!r})"
        for pattern, other in hidden.items()
    ]


@pytest.mark.parametrize(
    "name",
    [
        "avg_hit_count_low",
        "avg_hit_count_high",
        "avg_high_threshold_percent",
        "transfer_hit_count",
        "history_weight",
        "loadBalancerSheddingConditionHitCountThreshold",
    ],
)
def test_parameters_that_the_decision_rule_replaced_are_rejected(name: str) -> None:
    """Rule: without `compat` the message names the replacement; with it they are accepted."""
    options = {"metadata_store": "zk:h:2181", "parameters": {name: 1}}
    with pytest.raises(ValidationError, match="set move_price"):
        Settings(**options)
    assert Settings(**options, compat="4.2", strategy="threshold").parameters
