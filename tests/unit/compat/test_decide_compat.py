"""`bundlekeel decide` with `compat`: the class's own answer; what the class is, tests/parity shows."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from bundlekeel.compat.decide import run
from bundlekeel.compat.decide_lines import parse_config

NAMES = [f"t/n/0x{n:08x}_0x{n + 1:08x}" for n in range(4)]
TOTAL = 60e6


def ask(*lines: Any) -> list[dict[str, Any]]:
    """The answers to these lines."""
    out = io.BytesIO()
    run([json.dumps(line).encode() for line in lines], out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def report(cpu: float, throughput: float, bundles: list[str]) -> dict[str, Any]:
    """A report as in its znode."""
    return {
        "cpu": {"usage": cpu, "limit": 100.0},
        "msgThroughputIn": throughput,
        "msgRateIn": throughput / 1000,
        "lastStats": {name: {} for name in bundles},
        "bundles": bundles,
    }


def data(throughput: float) -> dict[str, Any]:
    """`BundleData` as in its znode."""
    term = {"msgThroughputIn": throughput, "msgRateIn": throughput / 1000, "maxSamples": 10, "numSamples": 10}
    return {"shortTermData": term, "longTermData": term | {"maxSamples": 1000}, "topics": 2}


def turn(*, recent: tuple[str, ...] = ()) -> dict[str, Any]:
    """One hot broker with three bundles and one cold; the smallest bundle has no data."""
    expected_names = {NAMES[0]: data(30e6), NAMES[1]: data(20e6), NAMES[3]: data(1e6)}
    brokers = {"hot:1": report(90, TOTAL, NAMES[:3]), "cold:1": report(10, 1e6, NAMES[3:])}
    return {"brokers": brokers, "bundles": expected_names, "recent": list(recent)}


def reset(strategy: str, **more: Any) -> dict[str, Any]:
    """A reset with `compat`."""
    return {"reset": {"strategy": strategy, "compat": "4.2", **more}}


def test_threshold_unloads_by_its_own_arithmetic_and_names_no_destination() -> None:
    """(0.9 - 0.5 - 0.1 + 0.05) of 60 MB/s is 21 MB/s: the largest bundle alone covers it."""
    (answer,) = ask(reset("threshold"), turn())
    assert (answer["unload"], answer["to"], answer["refused"]) == ({"hot:1": [NAMES[0]]}, {}, [])


def test_a_bundle_without_data_is_no_candidate_and_a_recent_one_is_left_out() -> None:
    (answer,) = ask(reset("threshold"), turn(recent=(NAMES[0],)))
    assert answer["unload"] == {"hot:1": [NAMES[1]]}


def test_avg_couples_the_destination() -> None:
    """AvgShedder says where each bundle goes; 0.2 of the difference is its default, so nothing fits before 0.5."""
    hits = {"loadBalancerAvgShedderHitCountHighThreshold": 1}
    lazy, eager = ask(
        reset("avg", config=hits), turn(), reset("avg", config=hits | {"maxUnloadPercentage": 0.5}), turn()
    )
    assert lazy["unload"] == {}
    assert (eager["unload"], eager["to"]) == ({"hot:1": [NAMES[1]]}, {NAMES[1]: "cold:1"})


@pytest.mark.parametrize(
    ("release", "overloaded", "targets"),
    [
        ("4.2", 85, ("cold-2:1", "cold-2:1")),
        ("5.0", 85, ("cold-1:1", "cold-2:1")),
        ("5.0", 15, ("cold-1:1", "cold-1:1")),
    ],
)
def test_since_5_0_avg_keeps_targets_by_name_and_replaces_overloaded_ones(
    release: str, overloaded: int, targets: tuple[str, str]
) -> None:
    """Each of two pairs moves a bundle, both with equal data. 20 % are above a threshold of 15, and 10 % are not."""
    brokers = {
        "cold-1:1": report(10, 1e6, []),
        "cold-2:1": report(20, 1e6, []),
        "hot-2:1": report(80, TOTAL, NAMES[1:2]),
        "hot-1:1": report(90, TOTAL, NAMES[:1]),
    }
    line = {"brokers": brokers, "bundles": {name: data(20e6) for name in NAMES[:2]}}
    config = {
        "loadBalancerAvgShedderHitCountHighThreshold": 1,
        "maxUnloadPercentage": 0.5,
        "loadBalancerBrokerOverloadedThresholdPercentage": overloaded,
    }
    (answer,) = ask(reset("avg", compat=release, config=config), line)
    assert answer["to"] == dict(zip(NAMES[:2], targets, strict=True))


def test_a_named_placement_chooses_among_all_brokers() -> None:
    """Lowest long-term rate: the cold broker."""
    (answer,) = ask(reset("threshold", placement="least_long_term_message_rate"), turn())
    assert answer["to"] == {NAMES[0]: "cold:1"}


def test_memory_survives_a_turn_and_ends_with_a_reset() -> None:
    cool = turn()
    cool["brokers"]["hot:1"] = report(10, TOTAL, NAMES[:3])
    second, alone = ask(reset("threshold"), turn(), cool, reset("threshold"), cool)[1:]
    assert second["unload"] and not alone["unload"]


@pytest.mark.parametrize("release", ["4.0", "4.2"])
def test_releases_differ_where_pulsar_does(release: str) -> None:
    brokers = {"a:1": report(50, 10e6, NAMES[:2]), "b:1": report(50, 0.0, NAMES[2:])}
    line = {"brokers": brokers, "bundles": {NAMES[0]: data(2.4e6), NAMES[1]: data(7.6e6)}}
    (answer,) = ask({"reset": {"strategy": "uniform", "compat": release}}, line)
    assert answer["unload"] == ({"a:1": [NAMES[0]]} if release == "4.0" else {})


def test_any_number_that_the_class_takes_is_taken() -> None:
    """A hit count of 0 and a negative threshold are outside our ranges, not outside Java's."""
    config = {"loadBalancerAvgShedderHitCountLowThreshold": 0, "loadBalancerAvgShedderLowThreshold": -5}
    (answer,) = ask(reset("avg", config=config | {"maxUnloadPercentage": 0.5}), turn())
    assert answer["to"] == {NAMES[1]: "cold:1"}


def test_without_a_strategy_it_is_the_one_of_brokers_without() -> None:
    config = {"loadBalancerBundleUnloadMinThroughputThreshold": 1e18}
    named, unnamed, off = ask(
        reset("threshold"), turn(), {"reset": {"compat": "4.2"}}, turn() | {"recent": None},
        {"reset": {"compat": "4.2", "config": config}}, turn(),
    )  # fmt: skip
    assert named == unnamed
    assert off["unload"] == {}


def test_bench_repeats_the_turn() -> None:
    """Both figures are there."""
    answer = ask(reset("overload"), turn(), {"bench": 3})[1]
    assert answer["bench"] == 3
    assert answer["decode_ms_median"] > 0 and answer["plan_ms_median"] > 0


def test_a_record_that_pulsar_cannot_read_is_listed() -> None:
    line = turn()
    line["brokers"]["odd:1"] = {"cpu": None}
    (answer,) = ask(reset("threshold"), line)
    assert answer["unload"] and [item["record"] for item in answer["excluded"]] == ["odd:1"]


@pytest.mark.parametrize("keys", [("Bandwidth", "Bandwith"), ("Bandwith", "Bandwidth")])
def test_of_two_spellings_of_one_key_the_order_does_not_decide(keys: tuple[str, str]) -> None:
    weights = {"Bandwidth": 0.7, "Bandwith": 0.2}
    named = {f"loadBalancer{key}InResourceWeight": weights[key] for key in keys}
    assert parse_config(named)["bandwidth_in_weight"] == 0.7


@pytest.mark.parametrize("release", ["4.0", "4.2", "5.0"])
@pytest.mark.parametrize(
    ("strategy", "placement"),
    [("threshold", "avg"), ("uniform", "avg"), ("overload", "avg"), ("avg", "least_long_term_message_rate")],
)
def test_n_l_half_of_avg_is_refused_as_in_the_settings(release: str, strategy: str, placement: str) -> None:
    """AvgShedder is shedder and placement in one object: brokers do not start with one half. Those of 5.0 replace the
    placement, or place the bundles of the shedder by the other placement."""
    answers = ask(reset(strategy, placement=placement, compat=release), turn())
    if (release, strategy) == ("5.0", "avg"):
        assert not any("error" in answer for answer in answers)
        return
    assert answers[0]["error"]["field"] == "reset.placement"
    assert "half of AvgShedder" in answers[0]["error"]["reason"]
    assert "the reset in line 1 was refused" in answers[1]["error"]["reason"]


def test_n_l_half_of_avg_by_class_names_is_refused_too() -> None:
    """`config` names the classes as broker.conf does."""
    config = {"loadBalancerLoadPlacementStrategy": "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"}
    (answer,) = ask(reset("threshold", config=config))
    assert answer["error"]["field"] == "reset.config.loadBalancerLoadPlacementStrategy"


def test_n_l_both_halves_of_avg_are_accepted() -> None:
    """Without a placement, AvgShedder brings its own along."""
    answers = ask(reset("avg"), turn(), reset("avg", placement="avg"), turn())
    assert not any("error" in answer for answer in answers)
