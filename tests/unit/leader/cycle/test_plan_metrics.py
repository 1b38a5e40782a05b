"""The metrics of one plan: their values against what the plan was made from."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it
from bundlekeel.leader.cycle.plan_metrics import publish_plan
from bundlekeel.leader.execution.intents import OutcomeWord
from bundlekeel.leader.execution.split_intents import SplitWord
from bundlekeel.model.codes import Code
from bundlekeel.model.parameter_table import RELEASES, STRATEGIES
from bundlekeel.model.parameters import compat_defaults
from bundlekeel.model.plan import Refusal
from bundlekeel.records.metrics import METRICS, PREFIX, PrometheusTelemetry
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params

PATIENT = with_params(move_price=50)


def values(telemetry: PrometheusTelemetry, name: str) -> dict[tuple[str, ...], float]:
    """Samples of a metric by their labels' values, in the order of the table."""
    labels = next(metric.labels for metric in METRICS if metric.name == name)
    text = telemetry.render("text/plain")[0].decode()
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == PREFIX + name
    }


async def test_pairs_against_their_thresholds() -> None:
    """All load on one of three brokers: it and the least loaded one are a pair, the third has no partner."""
    sidecar = await FakeSidecar(FakeCluster(), params=PATIENT).lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None
    scores = {(load.broker,): load.score_before for load in report.plan.loads}
    assert values(sidecar.telemetry, "broker_score_ratio") == pytest.approx(scores)
    differences = values(sidecar.telemetry, "broker_pair_difference_ratio")
    widest = max(scores.values()) - min(scores.values())
    assert sorted(differences.values()) == pytest.approx([0.0, widest, widest])
    costs = values(sidecar.telemetry, "broker_imbalance_cost")
    assert 0 < costs[BROKERS[0], "so_far"] < costs[BROKERS[0], "price"] and len(costs) == 6
    assert 0 < values(sidecar.telemetry, "pair_threshold_ratio")["low",] < widest
    assert values(sidecar.telemetry, "decisions_total")["avg", "cluster", "HitCount"] == 1.0
    assert sum(count for key, count in values(sidecar.telemetry, "decisions_total").items() if key[1] == "broker") == 3


async def test_usage_averages_and_bundles_are_sums_of_the_snapshot() -> None:
    sidecar = await FakeSidecar(FakeCluster(), params=PATIENT).lead()
    await sidecar.cycle.turn()
    snapshot = sidecar.cycle.snapshot
    assert snapshot is not None
    of_first = snapshot.bundles.owner == snapshot.brokers.ids.index(BROKERS[0])
    assert of_first.sum() == 6
    for window, table in (("short", snapshot.bundles.short), ("long", snapshot.bundles.long)):
        rate, size = float(table[of_first][:, :2].sum()), float(table[of_first][:, 2:].sum())
        assert values(sidecar.telemetry, "broker_average_msg_rate")[BROKERS[0], window] == pytest.approx(rate)
        assert values(sidecar.telemetry, "broker_average_bytes_per_second")[BROKERS[0], window] == pytest.approx(size)
        assert rate > 0 and size > 0
    usage = values(sidecar.telemetry, "broker_usage_ratio")
    assert usage[BROKERS[0], "cpu"] == pytest.approx(snapshot.brokers.percent()[0, 0] / 100)
    limited = np.count_nonzero(snapshot.brokers.limit > 0)
    assert len(usage) == limited
    assert values(sidecar.telemetry, "snapshot_bundles") == {(): 6.0}


async def test_moves_by_rule_and_preallocated_bundles() -> None:
    """Moves are counted with the rule that asked for them; until reports show them they are preallocated."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    report = await sidecar.cycle.turn()
    counted = {labels: count for labels, count in values(sidecar.telemetry, "moves_by_rule_total").items() if count}
    assert counted == {("avg", "done"): float(len(report.outcomes))}
    await sidecar.cycle.turn()
    targets = [outcome.destination for outcome in report.outcomes]
    waiting = values(sidecar.telemetry, "broker_preallocated_bundles")
    assert waiting == {(broker,): float(targets.count(broker)) for broker in BROKERS}
    assert sum(waiting.values()) > 0


@pytest.mark.parametrize("compat", RELEASES)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_moves_and_splits_by_rule_begin_at_zero(strategy: str, compat: str) -> None:
    """`increase` ignores a series that starts at 1, so dashboards would not show the first move."""
    eager = {"strategy": strategy, "compat": compat, "overloaded_threshold_percent": 50.0}
    counts = {"avg_hit_count_low": 1, "avg_hit_count_high": 1, "transfer_hit_count": 0}
    eager |= {"move_price": 0.0} if compat == "none" else counts
    params = with_params(**compat_defaults(compat, strategy) | eager)
    sidecar = await FakeSidecar(FakeCluster(), params=params, mode="recommend").lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.plan.moves
    moves, splits = (values(sidecar.telemetry, name) for name in ("moves_by_rule_total", "splits_total"))
    assert {*moves.values(), *splits.values()} == {0.0}
    rules = {move.rule for move in report.plan.moves} | {"drain", "warm", "by hand", "revert", "unknown"}
    rules |= {"avg swap"} if (strategy, compat) == ("avg", "none") else set()
    assert {(rule, outcome) for rule in rules for outcome in get_args(OutcomeWord)} <= moves.keys()
    rules = {"topics", "sessions", "msg_rate", "bandwidth", "hot", "by hand"}
    assert {(outcome, rule) for rule in rules for outcome in get_args(SplitWord)} == splits.keys()


async def test_what_is_in_the_way_is_one_series_that_goes() -> None:
    """`recommend` is in the way; a leader in act has nothing in its way."""
    recommending = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await recommending.cycle.turn()
    assert values(recommending.telemetry, "obstacle_info") == {("RecommendOnly",): 1.0}
    acting = await FakeSidecar(FakeCluster()).lead()
    await acting.cycle.turn()
    assert values(acting.telemetry, "obstacle_info") == {}


async def test_brokers_that_are_gone_and_other_strategies_leave_no_series() -> None:
    """Cardinality follows the live brokers; differences of pairs are those of `avg` only."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, params=with_params(strategy="threshold")).lead()
    await sidecar.cycle.turn()
    assert {broker for broker, _ in values(sidecar.telemetry, "broker_imbalance_cost")} == set(BROKERS)
    for name in ("broker_pair_difference_ratio", "pair_threshold_ratio"):
        assert values(sidecar.telemetry, name) == {}
    cluster.source.remove(BROKERS[2])
    await sidecar.cycle.turn()
    text = sidecar.telemetry.render("text/plain")[0].decode()
    assert BROKERS[1] in text and BROKERS[2] not in text


async def test_no_bundle_is_a_label() -> None:
    """Whatever happens: bundles are named in the journal, never in metrics."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    for _ in range(2):
        await sidecar.cycle.turn()
        cluster.publish()
    text = sidecar.telemetry.render("text/plain")[0].decode()
    assert sidecar.moves() and not re.search(r"0x[0-9a-f]{8}", text)


async def test_parameters_and_unsplit_bundles() -> None:
    """Numbers and switches by our names; bundles that stay whole by the reason, until they do no longer."""
    sidecar = await FakeSidecar(FakeCluster(), params=PATIENT).lead()
    await sidecar.cycle.turn()
    values_by_labels = values(sidecar.telemetry, "parameter")
    assert values_by_labels["move_price",] == 50.0
    assert values_by_labels["overloaded_threshold_percent",] == PATIENT.overloaded_threshold_percent
    assert ("strategy",) not in values_by_labels
    assert sidecar.cycle.snapshot is not None
    inputs = sidecar.cycle.plan_input(sidecar.cycle.snapshot)
    result = await sidecar.cycle.compute(inputs)
    hot = (Refusal(Code.SINGLE_TOPIC, "t/ns/0x00000000_0x10000000"), Refusal(Code.SINGLE_TOPIC, "other"))
    telemetry = PrometheusTelemetry()
    publish_plan(telemetry, inputs, replace(result, plan=replace(result.plan, split_refusals=hot)))
    assert values(telemetry, "unsplit_bundles") == {("SingleTopic",): 2.0}
    publish_plan(telemetry, inputs, result)
    assert values(telemetry, "unsplit_bundles") == {}


@pytest.mark.parametrize(
    ("accept", "start", "end"),
    [
        ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text", b"# EOF\n"),
        ("text/plain", "text/plain", b"\n"),
        ("", "text/plain", b"\n"),
    ],
)
def test_the_scraper_chooses_the_format(accept: str, start: str, end: bytes) -> None:
    """OpenMetrics when asked for: counters are typed without `_total` there, and it has an end mark."""
    telemetry = PrometheusTelemetry()
    telemetry.count("outages_total")
    body, content_type = telemetry.render(accept)
    assert content_type.startswith(start) and body.endswith(end)
    openmetrics = b"# TYPE bundlekeel_outages counter" in body
    assert openmetrics == ("openmetrics" in accept) and b"bundlekeel_outages_total 1.0" in body
