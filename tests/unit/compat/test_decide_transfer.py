"""`bundlekeel decide` for `transfer`: the extensible shape, corrected and compat, errors by line and field, bench."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.deciding import ask, bundle
from tests.unit.compat.test_decide import report

MINUTE = 60_000
HITS = "loadBalancerSheddingConditionHitCountThreshold"
TRANSFER = "loadBalancerTransferEnabled"


def load(score: float, size: float, *, at: int) -> dict[str, Any]:
    """A broker's load data: score, and bytes/s in and out together."""
    return {
        "weightedMaxEMA": score,
        "msgThroughputEMA": size,
        "msgThroughputIn": size / 2,
        "msgThroughputOut": size / 2,
        "msgRateIn": size / 1000,
        "msgRateOut": size / 1000,
        "updatedAt": at * MINUTE,
    }


def top(namespace: str, *sizes: float) -> list[dict[str, Any]]:
    """Top bundles of these bytes/s, lowest first."""
    return [
        {
            "bundleName": bundle(namespace, index),
            "stats": {
                "msgThroughputIn": size / 2,
                "msgThroughputOut": size / 2,
                "msgRateIn": size / 1000,
                "msgRateOut": size / 1000,
            },
        }
        for index, size in enumerate(sizes)
    ]


def turn(at: int = 1, **more: Any) -> dict[str, Any]:
    """One hot, one cold broker."""
    return {
        "now": at * MINUTE,
        "brokers": {"b0:8080": load(0.8, 8e6, at=at), "b1:8080": load(0.1, 1e6, at=at)},
        "top_bundles": {"b0:8080": top("a", 1e6, 1e6, 2e6, 4e6), "b1:8080": top("b", 5e5, 5e5)},
        "missing": [],
        "recent": [],
        "recent_brokers": {},
        **more,
    }


def reset(compat: str = "none", **config: Any) -> dict[str, Any]:
    """A reset that acts in the first turn."""
    return {"reset": {"strategy": "transfer", "compat": compat, "config": {HITS: 0, **config}}}


@pytest.mark.parametrize("compat", ["4.0", "4.2"])
def test_the_fourth_turn_in_a_row_acts(compat: str) -> None:
    """Strictly more than 3 hits, Pulsar's default; a reset starts from nothing."""
    start = {"reset": {"strategy": "transfer", "compat": compat, "config": {}}}
    answers = ask(start, *(turn(minute) for minute in range(1, 5)), start, turn(5))
    codes = [answer["verdict"]["code"] for answer in answers]
    assert codes == ["HitCount"] * 3 + ["Overloaded", "HitCount"]
    # The class swaps: the surplus of the cold broker comes back as a smaller bundle.
    assert set(answers[3]["unload"]) == {"b0:8080", "b1:8080"}
    assert {"unload", "to", "verdict", "refused", "plan_hash"} == set(answers[3])


def test_without_compat_the_cost_of_the_imbalance_decides() -> None:
    """A second reading confirms a large imbalance; a reset starts from nothing."""
    start = {"reset": {"strategy": "transfer", "config": {}}}
    answers = ask(start, turn(1), turn(2), start, turn(3))
    assert [answer["verdict"]["code"] for answer in answers] == ["HitCount", "Overloaded", "HitCount"]
    assert set(answers[1]["unload"]) == {"b0:8080"}


def test_corrected_tells_every_destination_and_every_refusal() -> None:
    """35 points of 80: the 4 MB/s bundle would be 40, so 20 and 10 go."""
    (answer,) = ask(reset(), turn())
    assert set(answer["to"].values()) == {"b1:8080"}
    assert sorted(answer["to"]) == sorted(answer["unload"]["b0:8080"])
    named = {*answer["to"], *(item["bundle"] for item in answer["refused"])}
    assert named == {bundle("a", index) for index in range(4)}


@pytest.mark.parametrize("compat", ["4.0", "4.2"])
def test_compat_takes_the_smallest_first(compat: str) -> None:
    """The class's own choice: 3.5 MB/s may go, 1 + 1 fit; for 2 more, 0.5 come back."""
    (answer,) = ask(reset(compat, **{TRANSFER: True}), turn())
    moved = [bundle("a", 0), bundle("a", 1), bundle("a", 2)]
    assert {name: sorted(bundles) for name, bundles in answer["unload"].items()} == {
        "b0:8080": moved,
        "b1:8080": [bundle("b", 0)],
    }
    assert answer["to"] == dict.fromkeys(moved, "b1:8080") | {bundle("b", 0): "b0:8080"}
    assert answer["refused"] == [] and answer["verdict"]["label"] == "Success"


def test_compat_transfers_by_default() -> None:
    """`loadBalancerTransferEnabled` is true in Pulsar; false: `unload` names the bundles, `to` none."""
    (answer,) = ask(reset("4.2"), turn())
    assert set(answer["to"]) == {name for bundles in answer["unload"].values() for name in bundles}
    (answer,) = ask(reset("4.2", **{TRANSFER: False}), turn())
    assert answer["unload"] and answer["to"] == {}


def test_corrected_always_has_a_destination() -> None:
    """Whatever the key says."""
    (answer,) = ask(reset("none", **{TRANSFER: False}), turn())
    assert set(answer["to"]) == set(answer["unload"]["b0:8080"])


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"missing": ["b9:8080"]}, "NoLoadData"),
        ({"recent_brokers": {"b1:8080": MINUTE - 1}}, "CoolDown"),
        ({"brokers": {}}, "NoBrokers"),
        ({"now": MINUTE + 1_800_001}, "OutDatedData"),
        ({"top_bundles": {}}, "NoLoadData"),
        ({"top_bundles": {"b0:8080": top("a", 1e6)}}, "NoBundles"),
        ({"recent": [bundle("a", index) for index in range(4)]}, "NoBundles"),
    ],
)
def test_compat_skips_for_the_reasons_of_the_class(more: dict[str, Any], code: str) -> None:
    """One broker that is missing or cooling down ends the cycle."""
    (answer,) = ask(reset("4.2"), turn(**more))
    assert answer["unload"] == {}
    assert (answer["verdict"]["label"], answer["verdict"]["code"]) == ("Skip", code)


def test_the_class_counts_hits_from_turn_to_turn() -> None:
    """`hits` shows the count; a cycle that is skipped leaves it."""
    start = {"reset": {"strategy": "transfer", "compat": "4.2", "config": {}}}
    answers = ask(start, turn(1), turn(2, missing=["b9:8080"]), turn(3))
    assert [answer["verdict"]["hits"] for answer in answers] == [1, 1, 2]


def test_excluded_namespaces_are_newer_than_4_0() -> None:
    """PIP-380 came after 4.0."""
    key = {"loadBalancerSheddingExcludedNamespaces": ["shop/a"]}
    older, newer, ours = ask(reset("4.0", **key), turn(), reset("4.2", **key), turn(), reset(**key), turn())
    assert older["unload"] and not newer["unload"] and not ours["unload"]


def test_corrected_goes_on_without_the_brokers_that_must_wait() -> None:
    """Another hot and cold pair acts; the missing broker is only not there."""
    inputs = turn()
    inputs["brokers"] |= {"b2:8080": load(0.7, 7e6, at=1), "b3:8080": load(0.0, 0.0, at=1)}
    inputs["top_bundles"] |= {"b2:8080": top("c", 1e6, 2e6, 2e6, 2e6), "b3:8080": []}
    waiting = {"recent_brokers": {"b0:8080": MINUTE - 1000}, "missing": ["b9:8080"]}
    (answer,) = ask(reset(), {**inputs, **waiting})
    assert set(answer["unload"]) == {"b2:8080"} and set(answer["to"].values()) == {"b3:8080"}
    codes = {item["broker"]: item["code"] for item in answer["verdict"]["brokers"]}
    assert codes["b0:8080"] == "CoolDown"


def test_policies_hold_here_too() -> None:
    """Bundles of a namespace with a policy are left alone, and a wrong field is named."""
    isolated = {
        "namespaces": ["shop/a"],
        "primary": ["b0"],
        "secondary": [],
        "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "1"}},
    }
    free, bound, wrong = ask(
        reset(**{HITS: 0}), turn(),
        reset(**{HITS: 0}), turn(policies={"isolation": {"p": isolated}}),
        turn(policies={"isolatoin": {}}),
    )  # fmt: skip
    assert free["unload"] and not bound["unload"]
    assert {item["code"] for item in bound["refused"]} & {"HasPolicy", "PolicyForbids"}
    assert wrong["error"]["field"] == "policies.isolatoin"


@pytest.mark.parametrize("compat", ["none", "4.2"])
def test_one_blank_record_does_not_hide_the_shape(compat: str) -> None:
    """Whichever broker comes first."""
    blank: dict[str, Any] = {"a0:8080": {}}
    brokers = turn()["brokers"]
    lines = [{"now": MINUTE, "brokers": blank | brokers}, {"now": MINUTE, "brokers": brokers | blank}]
    assert [("error" in answer) for answer in ask(reset(compat), *lines)] == [False, False]


def test_recent_bundles_stay() -> None:
    """Corrected: refused with their code; the broker they are on may give others."""
    (answer,) = ask(reset(), turn(recent=[bundle("a", 0), bundle("a", 1)]))
    refused = {item["bundle"] for item in answer["refused"] if item["code"] == "CoolDown"}
    assert refused == {bundle("a", 0), bundle("a", 1)} and answer["unload"]


def test_what_a_broker_carries_besides_is_not_listed() -> None:
    inputs = turn()
    inputs["brokers"]["b0:8080"] |= {"bundleCount": 40, "msgThroughputIn": 9e6}
    (answer,) = ask(reset(), inputs)
    assert all(name.startswith("shop/") for name in [*answer["to"], *(item["bundle"] for item in answer["refused"])])


@pytest.mark.parametrize("compat", ["none", "4.2"])
def test_unreadable_records_are_left_out_and_named(compat: str) -> None:
    inputs = turn()
    inputs["brokers"]["b9:8080"] = {"weightedMaxEMA": [], "updatedAt": MINUTE}
    inputs["top_bundles"]["b8:8080"] = [{"bundleName": 3}]
    (answer,) = ask(reset(compat), inputs)
    assert answer["excluded"][0]["broker"] == "b9:8080"
    if compat == "none":
        assert answer["to"]
    else:
        assert answer["verdict"]["code"] == "NoLoadData"
        assert answer["excluded"][1]["record"] == "top_bundles.b8:8080"


@pytest.mark.parametrize("compat", ["none", "4.2"])
@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"now": "soon"}, "now"),
        ({"missing": [3]}, "missing[0]"),
        ({"recent_brokers": {"b0:8080": "now"}}, "recent_brokers[...]"),
        ({"top_bundles": {"b0:8080": 5}}, "top_bundles.b0:8080"),
        ({"brokers": {"b0:8080": []}}, "brokers.b0:8080"),
        ({"bundles": {bundle("a", 0): {}}}, "bundles"),
        ({"capacity": {"*": {"cores": 2}}}, "capacity"),
    ],
)
def test_a_bad_line_gives_an_error_and_the_rest_goes_on(compat: str, bad: dict[str, Any], field: str) -> None:
    """Line and field are named."""
    error, answer = ask(reset(compat), turn(**bad), turn())
    assert error["error"]["line"] == 2 and error["error"]["field"] == field
    assert answer["unload"]


def test_other_strategies_do_not_read_this_shape() -> None:
    for strategy in ("avg", "threshold"):
        (error,) = ask({"reset": {"strategy": strategy}}, turn())
        assert error["error"] == {
            "line": 2,
            "field": "brokers",
            "reason": "only strategy transfer reads the load data of the extensible load manager",
        }


def test_corrected_reads_modular_pictures_too() -> None:
    """Told apart by the turn's own fields or by the records; compat reads only what the class reads."""
    options = {"brokers": {"b0:8080": report("a", 90.0), "b1:8080": report("b", 10.0)}}
    corrected, error = ask(reset(), options, reset("4.2"), options)
    assert corrected["to"] and set(corrected["to"].values()) == {"b1:8080"}
    assert error["error"]["field"] == "brokers" and error["error"]["line"] == 4


def test_the_shape_is_told_by_the_records_alone() -> None:
    """Without the turn's own fields nothing can move, but the load data are read as such."""
    options = {"now": MINUTE, "brokers": turn()["brokers"]}
    (answer,) = ask(reset(), options)
    assert {item["broker"] for item in answer["verdict"]["brokers"]} == {"b0:8080", "b1:8080"}
    assert answer["unload"] == {} and "excluded" not in answer


@pytest.mark.parametrize("compat", ["none", "4.2"])
def test_bench(compat: str) -> None:
    """On the last turn."""
    *_, answer = ask(reset(compat), turn(), {"bench": 3})
    assert answer["bench"] == 3 and answer["decode_ms_median"] > 0 and answer["plan_ms_median"] > 0


@pytest.mark.parametrize("compat", ["none", "4.2"])
def test_same_lines_same_bytes(compat: str) -> None:
    """`now` is the newest load data unless given, so that the day does not matter."""
    inputs = turn()
    del inputs["now"]
    lines = [reset(compat), inputs, inputs]
    assert ask(*lines) == ask(*lines)
    assert ask(*lines)[0]["unload"] == ask(reset(compat), turn())[0]["unload"]


@given(
    st.sampled_from(["none", "4.0", "4.2"]),
    st.dictionaries(
        st.sampled_from(["now", "brokers", "top_bundles", "missing", "recent", "recent_brokers", "policies"]),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["weightedMaxEMA", "bundleName", "stats", "b"]), inner, max_size=3)
            ),
            max_leaves=10,
        ),
    ),
)
def test_no_line_makes_it_crash(compat: str, more: dict[str, Any]) -> None:
    """Whatever is in the fields, there is one answer or one error."""
    answers = ask(reset(compat), {**turn(), **more})
    assert len(answers) == 1 and ("error" in answers[0]) is not ("verdict" in answers[0])
