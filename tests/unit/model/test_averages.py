"""Averages of bundles: when a sample counts, and what it does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.averages import DEFAULT_TRAFFIC, LONG_SAMPLES, SHORT_SAMPLES, Averages
from bundlekeel.model.load import Floats, Ints
from tests.support.builders import bundle_name, report, stored, traffic

NAME = bundle_name(1)
OTHER = bundle_name(2)


def add(store: Averages, share: float, at: int, *, broker: str = "b:1", start: int = 0, name: str = NAME) -> bool:
    """One report of one bundle."""
    return store.add_report(report(broker, {name: share}, last_update=at, start_timestamp=start), now_ms=at)


def columns(store: Averages, names: list[str]) -> tuple[Floats, Floats, Ints]:
    """The columns of these bundles, by name."""
    return store.columns(store.rows(names))


def short(store: Averages, name: str = NAME) -> float:
    """The short-term rate in, as a share of a broker."""
    return float(columns(store, [name])[0][0, 0]) / traffic(1.0)[0]


def test_unknown_bundle_has_pulsars_defaults_and_no_samples() -> None:
    """Rule: a bundle without measurements counts 50 msg/s and 50,000 B/s each way, with zero samples."""
    short_term, long_term, samples = columns(Averages(), [NAME])
    assert short_term.tolist() == long_term.tolist() == [list(DEFAULT_TRAFFIC)]
    assert samples.tolist() == [[0, 0]]


def test_rows_of_a_report_are_those_of_its_bundles() -> None:
    """Also where the report names others than it did when it was counted, or some of them have been forgotten."""
    store = Averages()
    add(store, 0.2, 1)
    broker_report = report("b:2", {OTHER: 0.1, bundle_name(3): 0.1}, last_update=5)
    assert store.rows_of(broker_report).tolist() == [-1, -1]
    store.add_report(broker_report, now_ms=5)
    assert store.rows_of(broker_report).tolist() == [1, 2]
    assert store.rows_of(replace(broker_report, bundle_names=(bundle_name(3), NAME))).tolist() == [2, 0]
    store.touch([bundle_name(3)], 9)
    store.forget_unseen(9)
    assert store.rows_of(broker_report).tolist() == [-1, 0]


def test_unknown_among_known_has_the_defaults() -> None:
    """Rule: the defaults also apply when other bundles are known (no row of another bundle is taken)."""
    store = Averages()
    add(store, 0.2, 1)
    assert columns(store, [OTHER, NAME])[0][0].tolist() == list(DEFAULT_TRAFFIC)


def test_first_sample_replaces_the_defaults() -> None:
    """Rule: n becomes 1, so the first sample wins over the defaults entirely."""
    store = Averages()
    add(store, 0.2, 1)
    assert short(store) == pytest.approx(0.2)


def test_mean_until_ten_samples_then_exponential() -> None:
    """Rule: the arithmetic mean up to 10 samples, from then on x = (9x + s) / 10."""
    store = Averages()
    for at in range(1, SHORT_SAMPLES + 1):
        add(store, at / 100, at)
    assert short(store) == pytest.approx(0.055)
    add(store, 1.0, 11)
    assert short(store) == pytest.approx((9 * 0.055 + 1.0) / 10)
    long_term = float(columns(store, [NAME])[1][0, 0]) / traffic(1.0)[0]
    assert long_term == pytest.approx((0.55 + 1.0) / 11), "the long term is still a plain mean"
    assert columns(store, [NAME])[2].tolist() == [[SHORT_SAMPLES, 11]]


def test_same_report_counts_once() -> None:
    """Rule: a report read again (its lastUpdate is the same) adds no sample."""
    store = Averages()
    assert add(store, 0.2, 1)
    assert not add(store, 0.8, 1)
    assert short(store) == pytest.approx(0.2)


def test_restart_with_the_same_last_update_counts() -> None:
    """Rule: the same broker id and lastUpdate with another start time is another report."""
    store = Averages()
    add(store, 0.2, 1, start=1)
    assert add(store, 0.4, 1, start=2)
    assert short(store) == pytest.approx(0.3)


def test_brokers_are_told_apart() -> None:
    """Rule: two brokers that report at the same millisecond both count."""
    store = Averages()
    add(store, 0.2, 1, broker="a:1")
    assert add(store, 0.4, 1, broker="b:1", name=OTHER)


def test_bundle_in_transit_is_no_measurement() -> None:
    """Rule: values that a broker reports of a bundle during a move add no sample, but keep it alive."""
    store = Averages()
    add(store, 0.2, 1)
    moving = report("b:1", {NAME: 0.0, OTHER: 0.3}, last_update=2)
    assert store.add_report(moving, now_ms=2, skip={NAME})
    assert short(store) == pytest.approx(0.2)
    assert short(store, OTHER) == pytest.approx(0.3)
    assert store.forget_unseen(2) == 0


def test_whole_report_in_transit() -> None:
    """Rule: a report of nothing but bundles in transit is taken note of and changes nothing."""
    store = Averages()
    assert store.add_report(report("b:1", {NAME: 0.2}, last_update=2), now_ms=2, skip={NAME})
    assert columns(store, [NAME])[2].tolist() == [[0, 0]]


def test_forgets_bundles_that_nobody_names() -> None:
    """Rule: a bundle not seen for long is dropped, the others keep their figures."""
    store = Averages()
    add(store, 0.2, 1, broker="a:1")
    add(store, 0.4, 100, broker="b:1", name=OTHER)
    assert store.forget_unseen(50) == 1
    assert NAME not in store
    assert short(store, OTHER) == pytest.approx(0.4)
    add(store, 0.8, 200, broker="b:1", name=OTHER)
    assert short(store, OTHER) == pytest.approx(0.6)


def test_quiet_broker_keeps_its_bundles_alive() -> None:
    """Rule: a report that stands for 15 minutes keeps its bundles known, also after others were forgotten."""
    store = Averages()
    add(store, 0.4, 1, broker="a:1", name=OTHER)
    add(store, 0.2, 1, broker="b:1")
    unchanged = report("b:1", {NAME: 0.2}, last_update=1)
    store.add_report(unchanged, now_ms=100)
    assert store.forget_unseen(50) == 1
    store.add_report(unchanged, now_ms=200)
    assert store.forget_unseen(150) == 0
    assert NAME in store


def test_touch_keeps_a_bundle_in_transit_alive() -> None:
    """Rule: a bundle that no report names while it moves does not lose its history (Pulsar issue 20544)."""
    store = Averages()
    add(store, 0.2, 1)
    store.touch([NAME, OTHER], 100)
    assert store.forget_unseen(50) == 0


def test_seed_fills_only_what_is_unknown() -> None:
    """Rule: stored averages are used for unknown bundles; measured ones stay."""
    store = Averages()
    add(store, 0.2, 1)
    store.seed([stored(NAME, 0.9), stored(OTHER, 0.5, samples=5000)])
    assert short(store) == pytest.approx(0.2)
    assert short(store, OTHER) == pytest.approx(0.5)
    assert columns(store, [OTHER])[2].tolist() == [[SHORT_SAMPLES, LONG_SAMPLES]]
    assert store.unknown([NAME, OTHER, "x"]) == ["x"]


def test_export_and_seed_are_inverse() -> None:
    """Rule: a checkpoint taken over by an empty store gives the same columns."""
    store = Averages()
    add(store, 0.2, 1)
    add(store, 0.4, 2, broker="c:1", name=OTHER)
    copy = Averages()
    copy.seed(store.export())
    for mine, theirs in zip(columns(store, [NAME, OTHER]), columns(copy, [NAME, OTHER]), strict=True):
        assert np.array_equal(mine, theirs)
    assert len(copy) == 2
