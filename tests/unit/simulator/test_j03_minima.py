"""Pulsar's absolute minima, as operators set them: below them the corrected strategies move nothing."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import BY_PULSAR_KEY, Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import to_parameters
from tests.support.builders import cluster, eager

# 60,000 msg/s and 60 MB/s on one broker, nothing on the other: a plan of `avg` moves half, that of
# `threshold` 60 - 30 - 10 + 5 points of the score, that of `uniform` a fifth of the difference.
ONE_SIDED = cluster([[0.05] * 12, []])
MIB = 1024 * 1024


def planned(strategy: str, **params: Any) -> Plan:
    return eager(ONE_SIDED, strategy=strategy, **params).plan


@pytest.mark.parametrize(
    ("strategy", "enough", "too_much"),
    [
        # One of both measures does, as in AvgShedder: messages or bytes.
        (
            "avg",
            {"minUnloadMessage": 29_000, "minUnloadMessageThroughput": 10**9},
            {"minUnloadMessage": 31_000, "minUnloadMessageThroughput": 10**9},
        ),
        (
            "avg",
            {"minUnloadMessage": 10**9, "minUnloadMessageThroughput": 29_000_000},
            {"minUnloadMessage": 10**9, "minUnloadMessageThroughput": 31_000_000},
        ),
        ("avg", {"minUnloadMessage": 29_000}, {"minUnloadMessage": 31_000}),
        # Here too the bytes may be worth it where the messages are not.
        (
            "uniform",
            {"minUnloadMessage": 11_900, "minUnloadMessageThroughput": 10**9},
            {"minUnloadMessage": 12_100, "minUnloadMessageThroughput": 10**9},
        ),
        (
            "uniform",
            {"minUnloadMessageThroughput": 11_900_000, "loadBalancerMsgRateDifferenceShedderThreshold": 0},
            {"minUnloadMessageThroughput": 12_100_000, "loadBalancerMsgRateDifferenceShedderThreshold": 0},
        ),
        (
            "threshold",
            {"loadBalancerBundleUnloadMinThroughputThreshold": 24.9e6 / MIB},
            {"loadBalancerBundleUnloadMinThroughputThreshold": 25.1e6 / MIB},
        ),
    ],
)
def test_j03_below_an_absolute_minimum_nothing_moves(
    strategy: str, enough: dict[str, float], too_much: dict[str, float]
) -> None:
    for keys, moves in ((enough, True), (too_much, False)):
        adopted, _ = to_parameters(
            Settings(adopt_broker_settings=True), {key: str(value) for key, value in keys.items()}
        )
        names = [spec.name for key in keys for spec in BY_PULSAR_KEY[key]]
        plan = planned(strategy, **{name: getattr(adopted, name) for name in names})
        assert bool(plan.moves) is moves
        assert moves or {item.code for item in plan.refusals} == {Code.BELOW_MINIMUM}


def test_j03_a_plan_that_is_worth_it_goes_on_to_the_end() -> None:
    """The minimum is about what a broker gives altogether, not about its last bundle."""
    assert planned("avg", min_unload_message_rate=29_000.0).moves == planned("avg").moves


def test_j03_a_small_cluster_is_balanced_unless_somebody_sets_a_minimum() -> None:
    """Pulsar's 1,000 msg/s, 1 MiB/s and 10 MiB/s are defaults of its own classes alone."""
    ours, pulsars = Parameters(), to_parameters(Settings(compat="4.2"))[0]
    assert (ours.min_unload_message_rate, ours.min_unload_throughput, ours.min_unload_throughput_mb) == (0, 0, 0)
    result = (pulsars.min_unload_message_rate, pulsars.min_unload_throughput, pulsars.min_unload_throughput_mb)
    assert result == (1000.0, 1_048_576.0, 10.0)


def test_j03_the_verdict_names_the_minimum() -> None:
    """Not "no bundle would make it better"."""
    verdict = planned("threshold", min_unload_throughput_mb=1e6).verdict
    assert verdict.code is Code.BELOW_MINIMUM and "25000000 B/s" in verdict.sentence
