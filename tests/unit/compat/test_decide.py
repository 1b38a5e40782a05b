"""`bundlekeel decide`: turns, resets, errors by line and field, bench; no input whatsoever makes it crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.compat import decide
from bundlekeel.compat.decide_corrected import CorrectedDecider
from bundlekeel.model.parameters import BY_PULSAR_KEY
from tests.support.deciding import ask, bundle

MINUTE = 60_000
KEYS = "loadBalancerAvgShedderHitCountHighThreshold"


def report(namespace: str, cpu: float, *, at: int = 1, bundles: int = 6) -> dict[str, Any]:
    """A broker's znode: `bundles` equal bundles and a CPU load."""
    rates = {"msgRateIn": 100.0, "msgRateOut": 200.0, "msgThroughputIn": 1e6, "msgThroughputOut": 2e6}
    stats = {
        bundle(namespace, i): {**rates, "topics": 3, "consumerCount": 1, "producerCount": 1} for i in range(bundles)
    }
    blind = {"usage": 0.0, "limit": -1000.0}
    return {
        "cpu": {"usage": 4 * cpu, "limit": 400.0},
        "directMemory": {"usage": 10.0, "limit": 1000.0},
        "bandwidthIn": blind,
        "bandwidthOut": blind,
        **{key: value * bundles for key, value in rates.items()},
        "lastUpdate": at * MINUTE,
        "lastStats": stats,
        "bundles": list(stats),
        "loadReportType": "LocalBrokerData",
    }


def turn(at: int, **more: Any) -> dict[str, Any]:
    """One hot, two cold brokers."""
    loads = {"b0:8080": ("a", 90.0), "b1:8080": ("b", 10.0), "b2:8080": ("c", 20.0)}
    brokers = {name: report(ns, cpu, at=at) for name, (ns, cpu) in loads.items()}
    return {"brokers": brokers, **more}


def test_memory_lives_from_turn_to_turn_until_a_reset() -> None:
    """The high hit count is reached in the second turn, and a reset starts from nothing."""
    reset = {"reset": {"strategy": "avg", "config": {KEYS: 2}}}
    first, second, third = ask(reset, turn(1), turn(2), reset, turn(3))
    assert first["verdict"]["code"] == third["verdict"]["code"] == "HitCount"
    assert first["unload"] == {} and second["verdict"]["code"] == "Overloaded"
    (source, moved), *_ = second["unload"].items()
    assert source == "b0:8080" and set(moved) == set(second["to"])
    assert set(second["to"].values()) <= {"b1:8080", "b2:8080"}
    assert set(second) == {"unload", "to", "verdict", "refused", "plan_hash"}


@pytest.mark.parametrize("strategy", ["avg", "threshold", "uniform"])
@pytest.mark.parametrize("compat", [{}, {"compat": None}, {"compat": "none"}])
def test_every_strategy_answers_the_same_each_time(strategy: str, compat: dict[str, Any]) -> None:
    """Same lines, same bytes."""
    lines = [{"reset": {"strategy": strategy, "seed": 7, **compat}}, turn(1), turn(2)]
    assert ask(*lines) == ask(*lines)
    assert all(answer["plan_hash"] for answer in ask(*lines))


def test_budgets_are_off() -> None:
    """The bare decision shows, however many moves it has."""
    config = {"loadBalancerAvgShedderHitCountHighThreshold": 1}
    brokers = {"b0:8080": report("a", 95.0, bundles=60), "b1:8080": report("b", 2.0, bundles=1)}
    (answer,) = ask({"reset": {"config": config}}, {"brokers": brokers})
    assert len(answer["to"]) > 10


def test_recent_bundles_stay() -> None:
    config = {KEYS: 1, "loadBalancerSheddingGracePeriodMinutes": 0}
    recent = [bundle("a", i) for i in range(6)]
    (answer,) = ask({"reset": {"config": config}}, turn(1, recent=recent))
    assert "b0:8080" not in answer["unload"]
    assert {item["bundle"] for item in answer["refused"] if item["code"] == "CoolDown"} == set(recent)


def test_bundles_without_averages_count_as_they_are_now() -> None:
    """A bundle that `bundles` leaves out is taken at its last report, not at Pulsar's default of 50 msg/s."""
    rates = {"msgRateIn": 100.0, "msgRateOut": 200.0, "msgThroughputIn": 1e6, "msgThroughputOut": 2e6}
    data = {"shortTermData": {"numSamples": 1, **rates}, "longTermData": {"numSamples": 1, **rates}, "topics": 3}
    given_all = {bundle(ns, i): data for ns in "abc" for i in range(6)}
    reset = {"reset": {"config": {KEYS: 1}}}
    without, with_all = ask(reset, turn(1), reset, turn(1, bundles=given_all))
    assert without == with_all and without["to"]


def test_capacity_as_in_the_settings_file() -> None:
    reset = {"reset": {"config": {KEYS: 1}}}
    ignored = {"b*:8080": {"cpu": "ignore", "throughput": 1e8}}
    loud, quiet = ask(reset, turn(1), reset, turn(1, capacity=ignored))
    assert loud["to"] and not quiet["to"]


def test_unreadable_records_are_left_out_and_named() -> None:
    inputs = turn(1, bundles={bundle("a", 0): {"x": 1}})
    inputs["brokers"]["b9:8080"] = {"webServiceUrl": "http://b9:8080"}
    (answer,) = ask(inputs)
    assert {item.get("broker") or item.get("bundle") for item in answer["excluded"]} == {"b9:8080", bundle("a", 0)}
    assert all(item["code"] == "WrongType" for item in answer["excluded"])


@pytest.mark.parametrize("figure", ["x", [], True, "NaN", 1e300])
@pytest.mark.parametrize("place", ["cpu.usage", "directMemory.limit", "msgRateIn", "lastUpdate"])
def test_a_broker_with_a_figure_that_cannot_be_read_is_left_out(place: str, figure: object) -> None:
    """The figure does not count as 0: the broker takes no bundle, and the field is named."""
    inputs = turn(1)
    section, _, name = f"{place}".rpartition(".")
    owned = inputs["brokers"]["b1:8080"]
    (owned[section] if section else owned)[name] = figure
    (answer,) = ask({"reset": {"config": {KEYS: 1}}}, inputs)
    assert [(item["broker"], item["detail"]) for item in answer["excluded"]] == [("b1:8080", f"{place} cannot be read")]
    assert set(answer["to"].values()) == {"b2:8080"}


@pytest.mark.parametrize(("value", "left_out"), [("x", True), ({"msgRateIn": "x"}, True), ({}, False), (None, False)])
def test_a_bundles_figures_in_a_report_are_read_or_missing(value: object, left_out: bool) -> None:
    """A missing one is 0 by contract; one of a wrong type leaves its broker out, as Pulsar's mapper does."""
    inputs = turn(1)
    inputs["brokers"]["b1:8080"]["lastStats"][bundle("b", 0)] = value
    (answer,) = ask({"reset": {"config": {KEYS: 1}}}, inputs)
    assert ("b1:8080" not in answer["to"].values()) == left_out == ("excluded" in answer)


def test_a_figure_behind_many_other_faults_does_not_count_as_zero() -> None:
    """Faults beyond the hundredth are only counted: one of them may be a figure that cannot be read."""
    inputs = turn(1)
    inputs["brokers"]["b1:8080"]["lastStats"] = {f"no bundle {number}": {} for number in range(150)}
    inputs["brokers"]["b1:8080"]["lastStats"][bundle("b", 0)] = {"msgRateIn": "x"}
    (answer,) = ask({"reset": {"config": {KEYS: 1}}}, inputs)
    assert [item["broker"] for item in answer["excluded"]] == ["b1:8080"]


def test_figures_that_are_missing_are_zero() -> None:
    inputs = turn(1)
    inputs["brokers"]["b1:8080"] = {"cpu": {"usage": 4.0, "limit": 400.0}, "lastUpdate": MINUTE}
    (answer,) = ask({"reset": {"config": {KEYS: 1}}}, inputs)
    assert "excluded" not in answer and "b1:8080" in answer["to"].values()


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        ({"brokers": []}, "brokers", "expected an object, not a list"),
        ({"brokers": {}, "now": "x"}, "now", "expected a whole number or null, not a text"),
        ({"foo": 1}, "foo", "unknown field 'foo'"),
        ({"brokers": {"": {}}}, "brokers", "expected a text of at least 1 character"),
        ({"brokers": {}, "now": -1}, "now", "-1 is not allowed; expected a whole number, 0 or more"),
        (
            {"reset": {"seed": 2**64}},
            "reset.seed",
            "18446744073709551616 is not allowed; expected a whole number, at most 9223372036854775807",
        ),
        (
            {"brokers": {}, "capacity": {"b": {"nic_gbps": "x"}}},
            "capacity.b.nic_gbps",
            "'x': not allowed (allowed: number, more than 0, or null)",
        ),
        (
            {"brokers": {}, "capacity": {"b": {"nic": 1}}},
            "capacity.b.nic",
            "1: unknown key (allowed: nic_gbps, cores, msg_rate, throughput, direct_memory_mb, cpu, bandwidth, "
            "direct_memory)",
        ),
        (
            {"brokers": {}, "capacity": {"b": {"cpu": "ignore", "cores": 8}}},
            "capacity.b.cores",
            "cpu is ignored, so cores would have no effect (allowed: cores, or cpu: ignore; not both)",
        ),
        (
            {"brokers": {}, "policies": {"failure_domains": {"d": "b1"}}},
            "policies.failure_domains[...]",
            "expected a list, not a text",
        ),
        (
            {"reset": {"config": {"maxUnloadPercentage": "half"}}},
            "reset.config.maxUnloadPercentage",
            "'half' is not a number; expected a number, from 0 to 1 (ratio)",
        ),
        (
            {"reset": {"config": {"max_unload_ratio": 1}}},
            "reset.config.max_unload_ratio",
            "unknown key 'max_unload_ratio'; did you mean maxUnloadPercentage?",
        ),
    ],
)
def test_errors_are_in_the_words_of_json_and_name_pulsars_key(line: dict[str, Any], field: str, reason: str) -> None:
    """No type of the program; of our name for a parameter, Pulsar's."""
    (answer,) = ask(line)
    assert (answer["error"]["field"], answer["error"]["reason"]) == (field, reason)


def test_now_is_the_newest_report_unless_given() -> None:
    """So that the same lines decide the same on any day; silence counts by the time given."""
    reset = {"reset": {"config": {KEYS: 2}}}
    same = ask(reset, turn(1), turn(1))
    later = ask(reset, turn(1, now=MINUTE), turn(1, now=3 * MINUTE))
    assert same[1]["verdict"]["code"] == "HitCount" and later[1]["verdict"]["code"] == "Overloaded"


def test_config_takes_a_whole_broker_conf() -> None:
    """Keys that no strategy reads are fine, Pulsar's class names choose the strategy, text is as good as numbers."""
    package = "org.apache.pulsar.broker.loadbalance.impl."
    config = {
        "loadBalancerLoadSheddingStrategy": f"{package}ThresholdShedder",
        "loadBalancerLoadPlacementStrategy": f"{package}LeastResourceUsageWithWeight",
        "loadBalancerBrokerThresholdShedderPercentage": "5",
        "loadBalancerEnabled": "true",
        "loadBalancerAutoBundleSplitEnabled": False,
        "loadBalancerSheddingExcludedNamespaces": ["shop/a"],
        "loadBalancerHostUsageCheckIntervalMinutes": 1,
        "loadBalancerOverrideBrokerNicSpeedGbps": None,
    }
    (answer,) = ask({"reset": {"config": config}}, turn(1))
    assert "error" not in answer
    state = decide.DecideRun()
    assert state.answer(1, json.dumps({"reset": {"config": config}}).encode()) is None
    assert isinstance(state.decider, CorrectedDecider)
    assert (state.decider.params.strategy, state.decider.params.threshold_percent) == ("threshold", 5.0)


def test_policies_narrow_where_a_bundle_may_go() -> None:
    isolated = {
        "namespaces": ["shop/.*"],
        "primary": [".*"],
        "secondary": [],
        "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "1"}},
    }
    line = turn(1)
    hot = max(line["brokers"], key=lambda name: line["brokers"][name]["cpu"]["usage"])
    only = isolated | {"primary": [hot.rpartition(":")[0].replace(".", "[.]")]}
    eager = {"config": {KEYS: 1}}
    free, bound = ask({"reset": eager}, line, {"reset": eager}, line | {"policies": {"isolation": {"p": only}}})
    assert free["unload"]
    assert not bound["unload"]
    assert {item["code"] for item in bound["refused"]} >= {"PolicyForbids"}


BAD = [
    (b"{nonsense", "", "not JSON"),
    (b"\xff\xfe", "", "not JSON"),
    (b"[]", "", "object"),
    (b'{"now": -1, nonsense', "now", "expected a whole number, 0 or more"),
    (b"{}", "", "expected reset, brokers or bench"),
    ({"turn": 1}, "turn", "unknown field"),
    ({"brokers": []}, "brokers", "object"),
    ({"brokers": {"b:1": 7}}, "brokers.b:1", "object"),
    ({"brokers": {}, "bench": 1}, "bench", "one line"),
    ({"reset": {}, "now": 5}, "now", "belongs to a turn"),
    ({"brokers": {}, "now": "x"}, "now", "whole number"),
    ({"brokers": {}, "recent": "x"}, "recent", "expected a list"),
    ({"brokers": {}, "bundles": {"a/b/c": None}}, "bundles.a/b/c", "object"),
    ({"brokers": {}, "policies": {"a": 1}}, "policies.a", "unknown field 'a'"),
    ({"brokers": {}, "policies": {"isolation": {"p": {}}}}, None, "auto_failover_policy"),
    ({"brokers": {}, "capacity": []}, "capacity", "settings file"),
    ({"brokers": {}, "capacity": {"b": {"nic": 1}}}, "capacity.b.nic", ""),
    ({"brokers": {}, "capacity": {"/(/": {"cores": 1}}}, "capacity./(/", "regular expression"),
    ({"bench": 1}, "bench", "no turn"),
    ({"bench": 0}, "bench", "0 is not allowed; expected a whole number, 1 or more"),
    ({"reset": 5}, "reset", "object"),
    ({"reset": {"strateggy": "avg"}}, "reset.strateggy", "unknown field"),
    ({"reset": {"strategy": "best"}}, "reset.strategy", "not one of avg, threshold"),
    ({"reset": {"strategy": "threshold", "compat": "3.0"}}, "reset.compat", "not one of none, 4.0, 4.2"),
    ({"reset": {"strategy": "deviation", "compat": "4.2"}}, "reset.strategy", "ships no class"),
    ({"reset": {"placement": "best"}}, "reset.placement", "not one of least_resource_usage"),
    ({"reset": {"seed": "x"}}, "reset.seed", "whole number"),
    ({"reset": {"config": {"loadBalancerAvgShedderLowTreshold": 1}}}, None, "LowThreshold"),
    ({"reset": {"config": {KEYS: "many"}}}, f"reset.config.{KEYS}", "number"),
    ({"reset": {"config": {KEYS: "Infinity"}}}, f"reset.config.{KEYS}", "number"),
    ({"reset": {"config": {"statsUpdateFrequencyInSecs": 1e300}}}, "reset.config.statsUpdateFrequencyInSecs", ""),
    (
        {"reset": {"config": {"loadBalancerLoadSheddingStrategy": "a.b.OwnShedder"}}},
        "reset.config.loadBalancerLoadSheddingStrategy",
        "no class we know",
    ),
]


@pytest.mark.parametrize(("line", "field", "reason"), BAD, ids=lambda item: str(item)[:60])
def test_a_bad_line_names_itself_and_the_rest_goes_on(line: Any, field: str | None, reason: str) -> None:
    """Line number, field and reason; then the next line is answered as ever."""
    error, after = ask(b"", line, {"reset": {}}, turn(1))
    assert set(error) == {"error"} and set(error["error"]) == {"line", "field", "reason"}
    assert error["error"]["line"] == 2
    assert reason in error["error"]["reason"]
    assert field is None or error["error"]["field"] == field
    assert after["plan_hash"]


def test_after_a_refused_reset_nothing_is_decided() -> None:
    """A turn must not be answered by the parameters of the run before."""
    errors = ask({"reset": {"strategy": "best"}}, turn(1), {"reset": {}}, turn(1))
    assert "line 1" in errors[1]["error"]["reason"] and "unload" in errors[2]


def test_a_bad_turn_leaves_memory_alone() -> None:
    """Garbage between two turns changes nothing."""
    reset = {"reset": {"config": {KEYS: 2}}}
    clean = ask(reset, turn(1), turn(2))
    disturbed = ask(reset, turn(1), b"garbage", {"brokers": {"x": 1}}, turn(2))
    assert [disturbed[0], disturbed[-1]] == clean


def test_bench_repeats_the_last_turn() -> None:
    """Medians in milliseconds."""
    _, bench = ask(turn(1), {"bench": 3})
    assert bench["bench"] == 3 and bench["decode_ms_median"] > 0 and bench["plan_ms_median"] > 0


NUMBERS = st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.sampled_from(["NaN", "1e999", "x", -1, 0]))
JSON = st.recursive(
    NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("reset", "brokers", "bundles", "recent", "now", "capacity", "policies", "bench")


@st.composite
def turns(draw: st.DrawFn) -> dict[str, Any]:
    """A turn that is nearly right: real reports with some figures replaced."""
    plan = turn(draw(st.integers(1, 5)))
    for name in draw(st.lists(st.sampled_from(sorted(plan["brokers"])), max_size=3)):
        one = plan["brokers"][name]
        key = draw(st.sampled_from(sorted(one)))
        one[key] = draw(JSON)
        if isinstance(one.get("lastStats"), dict):
            for stats in list(one["lastStats"].values())[:2]:
                if isinstance(stats, dict):
                    stats[draw(st.sampled_from(["msgRateIn", "msgThroughputOut", "topics"]))] = draw(NUMBERS)
        one["cpu"] = {"usage": draw(NUMBERS), "limit": draw(NUMBERS)}
    for field in draw(st.lists(st.sampled_from(FIELDS[2:7]), max_size=2)):
        plan[field] = draw(JSON)
    return plan


CONFIGS = st.dictionaries(st.sampled_from(sorted(BY_PULSAR_KEY)), NUMBERS, max_size=4)
RESETS = st.builds(
    lambda config, strategy: {"reset": {"config": config, "strategy": strategy}},
    CONFIGS,
    st.sampled_from(["avg", "threshold", "uniform"]),
)
LINES = st.one_of(
    st.binary(max_size=40),
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3).map(lambda item: json.dumps(item).encode()),
    RESETS.map(lambda item: json.dumps(item).encode()),
    turns().map(lambda item: json.dumps(item).encode()),
    st.just(b'{"bench":1}'),
)


@given(st.lists(LINES, min_size=1, max_size=5))
def test_nothing_makes_it_crash(lines: list[bytes]) -> None:
    """Whatever the bytes, at most one answer a line, each of them JSON."""
    lines = [line.replace(b"\n", b" ") for line in lines]
    answers = ask(*lines)
    assert len(answers) <= len(lines)
    for answer in answers:
        assert {"error", "unload", "bench"} & set(answer)


def worn(value: float) -> dict[str, Any]:
    """`BundleData` whose averages are all `value`."""
    names = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
    term = {"numSamples": 10, "maxSamples": 10, **dict.fromkeys(names, value)}
    return {"shortTermData": term, "longTermData": {**term, "maxSamples": 1000}, "topics": 3}


@pytest.mark.parametrize("strategy", ["avg", "threshold"])
@pytest.mark.parametrize("value", [1e-20, 1e-300, 5e-324, 1e-4])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_n_l_averages_worn_to_almost_nothing_count_as_the_present_traffic(
    strategy: str, value: float, count: int
) -> None:
    """All or some bundles were idle for hundreds of samples and are busy now: the plan is that of present traffic."""
    reset = {"reset": {"strategy": strategy, "config": {KEYS: 1}}}
    stored = {bundle("a", i): worn(value) for i in range(count)}
    (faint,), (plain,) = ask(reset, turn(1, bundles=stored)), ask(reset, turn(1))
    assert plain["to"]
    assert faint | {"plan_hash": ""} == plain | {"plan_hash": ""}


def test_n_l_a_bundle_without_present_traffic_stays_idle() -> None:
    """An average of almost nothing does not make an idle bundle busy."""
    line = turn(1, bundles={bundle("a", 0): worn(1e-20)})
    line["brokers"]["b0:8080"]["lastStats"][bundle("a", 0)] = {"topics": 3}
    (answer,) = ask({"reset": {"config": {KEYS: 1}}}, line)
    assert {item["bundle"] for item in answer["refused"] if item["code"] == "Idle"} == {bundle("a", 0)}
