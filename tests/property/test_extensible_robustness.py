"""Any bytes in the load-data topics are decoded or raise CodecError; decoded loads make a snapshot."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.compat.transfer import TransferPicture, find_bundles
from bundlekeel.compat.transfer_reports import decode_load, decode_top
from bundlekeel.model.extensible import extensible_snapshot
from bundlekeel.model.names import is_system_bundle, parse_bundle
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.pulsar.formats.extensible import decode_broker_load, decode_top_bundles
from tests.support.odd_values import attempt, encoded, scalars, values

BUNDLES = [f"shop/a/0x{n:08x}_0x{n + 1:08x}" for n in range(5)]
FIELDS = [
    *("weightedMaxEMA", "msgThroughputEMA", "maxResourceUsage", "msgThroughputIn", "msgThroughputOut"),
    *("msgRateIn", "msgRateOut", "updatedAt", "reportedAt", "bundleCount", "topics", "cpu", "usage", "limit"),
    *("topBundlesLoadData", "bundleName", "stats", "consumerCount", "producerCount"),
]
SCALARS = scalars(["12.5", " 7 ", *BUNDLES])
NAMES = st.sampled_from(FIELDS) | st.text(max_size=5)
VALUES = values(SCALARS, NAMES, max_leaves=30)
FIGURES = st.one_of(st.floats(0, 2), st.floats(0, 1e9), st.integers(0, 10**6), SCALARS)
LOADS = st.dictionaries(st.sampled_from(FIELDS[:10]), FIGURES, min_size=1)
TOPS = st.lists(
    st.fixed_dictionaries({"bundleName": st.sampled_from(BUNDLES) | st.text(max_size=8)})
    | st.fixed_dictionaries(
        {
            "bundleName": st.sampled_from(BUNDLES),
            "stats": st.dictionaries(st.sampled_from(FIELDS[3:7]), FIGURES) | SCALARS,
        }
    ),
    max_size=6,
)
DECODERS = (lambda data: decode_broker_load("b", data), decode_top_bundles, decode_load, decode_top)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """The bytes are not JSON."""
    for decoder in DECODERS:
        attempt(decoder, data)


@given(VALUES | LOADS | TOPS, st.booleans())
def test_any_json(value: Any, ascii_only: bool) -> None:
    """JSON of any shape, with the fields that matter in likely and unlikely places."""
    for decoder in DECODERS:
        attempt(decoder, encoded(value, ascii_only=ascii_only))


@given(LOADS, TOPS)
def test_figures_are_finite_and_aligned(load: dict[str, Any], top: list[Any]) -> None:
    """No value is negative or NaN. There is one row per bundle, names parse, and faults can be encoded."""
    decoded = attempt(lambda data: decode_broker_load("b", data), encoded(load))
    if decoded is not None:
        figures = [decoded.weighted_max_ema, decoded.throughput_ema, decoded.max_resource_usage, *decoded.traffic]
        assert np.isfinite(figures).all() and min(figures) >= 0
        assert min(decoded.updated_at, decoded.bundle_count, decoded.topics) >= 0
        json.dumps(decoded.faults, ensure_ascii=False).encode()
    bundles = decode_top_bundles(encoded(top))
    assert bundles.traffic.shape == (len(bundles.names), 4) and bundles.counts.shape == (len(bundles.names), 3)
    assert np.isfinite(bundles.traffic).all() and (bundles.traffic >= 0).all() and (bundles.counts >= 0).all()
    for name in bundles.names:
        parse_bundle(name)
    json.dumps(bundles.faults, ensure_ascii=False).encode()


@given(st.lists(st.tuples(LOADS, TOPS), max_size=4))
def test_whatever_can_be_read_can_be_planned_on(records: list[tuple[dict[str, Any], list[Any]]]) -> None:
    """The corrected form plans lawfully on the snapshot, the compat form never fails."""
    loads, averages, tops, class_tops = [], {}, {}, {}
    for number, (load, top) in enumerate(records):
        broker, data = f"b{number}:8080", encoded(load)
        decoded = attempt(lambda text, name=broker: decode_broker_load(name, text), data)
        if decoded is not None:
            loads.append(decoded)
        tops[broker] = decode_top_bundles(encoded(top))
        as_sent = attempt(decode_load, data)
        if as_sent is not None:
            averages[broker] = as_sent
        class_tops[broker] = attempt(decode_top, encoded(top)) or []
    params = Parameters(
        strategy="transfer", transfer_hit_count=0, move_price=0, transfer_target_std=0.01, load_data_ttl_seconds=1e15
    )
    picture = extensible_snapshot(loads, tops, wall_ms=10**12)
    result = plan(PlanInput(snapshot=picture, params=params)).plan
    assert all(move.target in picture.brokers.ids and not is_system_bundle(move.bundle) for move in result.moves)
    if result.loads:
        assert max(row.score_after for row in result.loads) <= max(row.score_before for row in result.loads) + 1e-5
    for enabled in (True, False):
        outcome = find_bundles(
            TransferPicture(now_ms=10**12, brokers=averages, top=class_tops),
            Parameters(strategy="transfer", compat="4.2", transfer_hit_count=0, move_price=0, transfer_enabled=enabled),
            0,
        )
        assert all(bool(item.target) is enabled for item in outcome.unloads)
