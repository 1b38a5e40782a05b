"""`BrokerLoadData` and `TopBundlesLoadData`: typed and tolerant reading, and the snapshot that is made of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundlekeel.compat.transfer_reports import decode_load, decode_top
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.extensible import extensible_snapshot, is_rest, load_unknown
from bundlekeel.model.load import ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.pulsar.formats.extensible import decode_broker_load, decode_top_bundles

NOW = 1_760_000_000_000
# As a 4.2.4 broker publishes it (Jackson, every field).
LOAD: dict[str, Any] = json.loads(
    """{"cpu":{"usage":30.0,"limit":100.0},"memory":{"usage":1.0,"limit":8.0},"directMemory":{"usage":1.0,"limit":8.0},
    "bandwidthIn":{"usage":0.0,"limit":-1000.0},"bandwidthOut":{"usage":0.0,"limit":-1000.0},"msgThroughputIn":6e6,
    "msgThroughputOut":4e6,"msgRateIn":600.0,"msgRateOut":400.0,"bundleCount":3,"topics":7,"maxResourceUsage":0.3,
    "weightedMaxEMA":0.4,"msgThroughputEMA":9e6,"updatedAt":1760000000000,"reportedAt":1759999995000}"""
)
COUNTS = {"consumerCount": 2, "producerCount": 1, "topics": 5, "cacheSize": 0}
RATES = {"msgRateIn": 1.0, "msgRateOut": 1.0}


def bundle(index: int) -> str:
    """A bundle's name."""
    return f"shop/a/0x{index:08x}_0x{index + 1:08x}"


def top(*sizes: float, first: int = 0) -> list[dict[str, Any]]:
    """Top bundles of these bytes/s, half in and half out."""
    return [
        {
            "bundleName": bundle(first + index),
            "stats": COUNTS | RATES | {"msgThroughputIn": size / 2, "msgThroughputOut": size / 2},
        }
        for index, size in enumerate(sizes)
    ]


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def build_snapshot(*brokers: tuple[float, list[dict[str, Any]]], bundle_count: int = 0, **changes: Any) -> Snapshot:
    """A snapshot of brokers with this score and these top bundles, which are all they carry unless told otherwise."""
    loads, tops = [], {}
    for number, (score, items) in enumerate(brokers):
        name = f"b{number}:8080"
        size = sum(item["stats"]["msgThroughputIn"] for item in items)
        rates = {"msgRateIn": float(len(items)), "msgRateOut": float(len(items))}
        options = {**LOAD, **rates, "weightedMaxEMA": score, "msgThroughputIn": size, "msgThroughputOut": size}
        loads.append(decode_broker_load(name, encoded({**options, "bundleCount": bundle_count, **changes})))
        tops[name] = decode_top_bundles(encoded(items))
    return extensible_snapshot(loads, tops, wall_ms=NOW)


def planned(snapshot: Snapshot, **params: Any) -> Plan:
    """The corrected form's plan at once."""
    at_once = {"strategy": "transfer", "transfer_hit_count": 0, "move_price": 0, "max_moves_per_source": 100}
    return plan(PlanInput(snapshot=snapshot, params=Parameters(**{**at_once, **params}))).plan


def test_what_a_broker_publishes() -> None:
    """The typed way: every figure, no fault."""
    load = decode_broker_load("b0:8080", encoded(LOAD))
    assert (load.weighted_max_ema, load.throughput_ema, load.max_resource_usage) == (0.4, 9e6, 0.3)
    assert load.traffic.tolist() == [600.0, 400.0, 6e6, 4e6]
    assert (load.bundle_count, load.topics, load.updated_at, load.faults) == (3, 7, NOW, ())


@pytest.mark.parametrize("wrap", [True, False])
def test_top_bundles_as_record_and_as_bare_list(wrap: bool) -> None:
    """Order is kept: brokers put the lowest first."""
    items = top(1e6, 2e6)
    bundles = decode_top_bundles(encoded({"topBundlesLoadData": items} if wrap else items))
    assert bundles.names == (bundle(0), bundle(1))
    assert bundles.traffic[:, 2].tolist() == [5e5, 1e6] and bundles.counts.tolist() == [[5, 2, 1]] * 2


@pytest.mark.parametrize(
    ("value", "code"),
    [("NaN", "NotANumber"), (None, "Imputed"), (-1, "NegativeValue"), ([], "WrongType"), (1e300, "NotANumber")],
)
def test_an_unusable_score_excludes_the_broker(value: Any, code: str) -> None:
    """A load that is not known must not count as none: the broker would attract bundles."""
    load = decode_broker_load("b0:8080", encoded({**LOAD, "weightedMaxEMA": value}))
    assert load_unknown(load) == (code, "weightedMaxEMA")
    snapshot = extensible_snapshot([load], {}, wall_ms=NOW)
    assert snapshot.excluded == (ExcludedBroker(broker_id="b0:8080", code=code, detail="weightedMaxEMA"),)
    assert snapshot.registered == 1 and len(snapshot.brokers) == 0


def test_other_bad_fields_are_imputed_only() -> None:
    """The broker stays; the fault is noted."""
    load = decode_broker_load("b0:8080", encoded({**LOAD, "topics": "many", "bundleCount": "12"}))
    assert load_unknown(load) is None
    assert load.faults == (("WrongType", "topics"),) and load.bundle_count == 12


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"", Code.EMPTY_REPORT), (b"{", Code.NOT_JSON), (b"[]", Code.WRONG_TYPE), (b"{}", Code.WRONG_TYPE)],
)
def test_no_load_data_at_all(data: bytes, code: Code) -> None:
    with pytest.raises(CodecError) as refused:
        decode_broker_load("b", data)
    assert refused.value.code is code
    if data != b"[]":
        with pytest.raises(CodecError):
            decode_top_bundles(data)


def test_huge_records_are_refused() -> None:
    """Before they are parsed."""
    for decode in (
        lambda data: decode_broker_load("b", data, max_bytes=10),
        lambda d: decode_top_bundles(d, max_bytes=10),
    ):
        with pytest.raises(CodecError) as refused:
            decode(b" " * 11)
        assert refused.value.code is Code.REPORT_TOO_LARGE


def test_a_bad_bundle_costs_itself() -> None:
    """Names that do not parse and statistics of another type are faults, the others stay."""
    items = [*top(1e6), {"bundleName": "no bundle", "stats": {}}, {"bundleName": bundle(7), "stats": 3}, 5]
    bundles = decode_top_bundles(encoded(items))
    assert bundles.names == (bundle(0), bundle(7)) and not bundles.traffic[1].any()
    assert {code for code, _ in bundles.faults} >= {"WrongType"}


def test_the_score_is_the_brokers_own_whatever_our_weights_are() -> None:
    """`weightedMaxEMA`, weighted by the broker already; ours must not weigh it again."""
    snapshot = build_snapshot((0.4, top(4e6)), (0.05, top(1e6, first=9)), (0.0, []))
    draft = Draft(snapshot, Ledger(), Parameters(cpu_weight=0.3))
    assert draft.score.tolist() == pytest.approx([0.4, 0.05, 0.0], abs=1e-6)


def test_the_brokers_smoothing_is_not_smoothed_again() -> None:
    """The second picture counts as it is."""
    params, memory = Parameters(strategy="transfer", transfer_hit_count=0, move_price=0), StrategyMemory()
    for score in (0.1, 0.8):
        picture = build_snapshot((score, top(1e6, 1e6, 1e6, 1e6)), (0.1, top(1e6, first=9)))
        later = replace(picture.brokers, last_update=picture.brokers.last_update + int(100_000 * score))
        result = plan(PlanInput(snapshot=replace(picture, brokers=later), params=params, memory=memory))
        memory = result.memory
    assert result.plan.verdict.code is Code.OVERLOADED and "around 45.0%" in result.plan.verdict.sentence


def test_an_idle_broker_has_room() -> None:
    """A bundle takes its share of the giver's score along, as the class assumes; no capacity need be known."""
    result = planned(build_snapshot((0.8, top(1e6, 1e6, 1e6, 1e6)), (0.0, [])))
    assert [round(row.score_after, 3) for row in result.loads] == [0.4, 0.4]


def test_shares_are_of_all_that_the_broker_carries() -> None:
    """Two named bundles of 1 MB/s out of 10 MB/s are 8 points each, not 40; the rest is a row that never moves."""
    hot = build_snapshot(
        (0.8, top(1e6, 1e6)),
        (0.0, []),
        bundle_count=40,
        msgThroughputIn=5e6,
        msgThroughputOut=5e6,
        msgRateIn=10.0,
        msgRateOut=10.0,
    )
    rest = [name for name in hot.bundles.names if is_rest(name)]
    assert len(rest) == 2
    result = planned(hot, transfer_target_std=0.01)
    assert all(not is_rest(move.bundle) for move in result.moves)
    assert result.moves and all(move.source_before - move.source_after < 0.09 for move in result.moves)
    assert {item.code for item in result.refusals if is_rest(item.bundle)} == {Code.SYSTEM_BUNDLE}


def test_a_sole_top_bundle_is_not_the_last_bundle() -> None:
    """Others that carry little are not named; `bundleCount` says that they are there."""
    alone = planned(build_snapshot((0.8, top(1e6)), (0.0, [])))
    assert [item.code for item in alone.refusals] == [Code.SOLE_BUNDLE]
    among = planned(build_snapshot((0.8, top(1e6)), (0.0, []), bundle_count=12))
    assert {item.code for item in among.refusals if not is_rest(item.bundle)} == {Code.TOO_BIG}


def test_the_newer_owner_wins() -> None:
    """A bundle that two brokers name is the one's whose data is newer."""
    old = decode_broker_load("b0:8080", encoded({**LOAD, "updatedAt": NOW - 1}))
    new = decode_broker_load("b1:8080", encoded(LOAD))
    tops = {name: decode_top_bundles(encoded(top(1e6))) for name in ("b0:8080", "b1:8080")}
    snapshot = extensible_snapshot([old, new], tops, wall_ms=NOW)
    assert snapshot.bundles.owner[snapshot.bundles.names.index(bundle(0))] == 1
    assert np.all(snapshot.brokers.percent()[:, 0] == np.float32(40))


def test_the_class_reads_as_jackson_does() -> None:
    """Absent is the default of `BrokerLoadData`, null is 0, texts may be numbers."""
    load = decode_load(encoded({"msgThroughputIn": None, "msgThroughputOut": "12.5", "updatedAt": 7.9}))
    assert (load.ema, load.throughput_ema, load.throughput_in, load.throughput_out) == (1.0, 0.0, 0.0, 12.5)
    assert load.updated_at == 7
    assert math.isnan(decode_load(b'{"weightedMaxEMA":"NaN"}').ema)
    assert decode_load(b'{"msgThroughputIn":"-Infinity"}').throughput_in == -math.inf


@pytest.mark.parametrize(
    "data", [b'{"weightedMaxEMA":true}', b'{"weightedMaxEMA":"much"}', b'{"updatedAt":1e30}', b"[]"]
)
def test_what_jackson_refuses_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode_load(data)


@pytest.mark.parametrize("items", [{}, [{"bundleName": "a/b/c"}], [{"bundleName": "a/b/c", "stats": None}]])
def test_top_bundles_at_which_the_class_would_fail(items: Any) -> None:
    with pytest.raises(CodecError):
        decode_top(encoded(items))


@pytest.mark.parametrize(
    ("changes", "cores", "used", "least"),
    [
        ({}, 1.0, 0.3, 0.125),
        ({"bandwidthOut": {"usage": 300.0, "limit": 1000.0}}, 1.0, 0.3, 0.3),
        ({"cpu": {"usage": 10.0, "limit": 25.0}, "directMemory": {"usage": 9.0, "limit": 8.0}}, 0.25, 0.1, 1.0),
        ({"cpu": {"usage": -1.0, "limit": -1.0}, "directMemory": {"usage": 1.0, "limit": 0.0}}, 0.0, 0.0, 0.0),
    ],
)
def test_cores_and_what_else_is_used(changes: dict[str, Any], cores: float, used: float, least: float) -> None:
    """The CPU's limit is in percent of a core; of the others the most used share, where they have a limit."""
    load = decode_broker_load("b", encoded(LOAD | changes))
    assert (load.cores, load.used_cores, load.least_usage) == (cores, used, least)
