"""Laws that hold for the splits of every plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundlekeel.model.names import is_system_bundle, namespace_of
from bundlekeel.planning.engine import PlanInput, plan
from tests.support.plan_inputs import inputs, with_books

LAWS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def splitting(draw: st.DrawFn) -> PlanInput:
    """Clusters, books and guards as for moves, with bundles of many topics and sessions, and tight limits."""
    plan_input = draw(inputs())
    plan_input = with_books(plan_input) if draw(st.booleans()) else plan_input
    bundles = plan_input.snapshot.bundles
    counts = draw(st.lists(st.sampled_from([0, 1, 2, 9, 50]), min_size=len(bundles), max_size=len(bundles)))
    column = np.array(counts, dtype=np.int64).reshape(-1, 1)
    snapshot = replace(plan_input.snapshot, bundles=replace(bundles, counts=np.hstack([column, column, column])))
    params = replace(
        plan_input.params,
        split_enabled=draw(st.sampled_from([True, True, True, False])),
        split_max_topics=draw(st.sampled_from([0, 5, 1000])),
        split_max_sessions=draw(st.sampled_from([0, 60])),
        split_max_msg_rate=draw(st.sampled_from([0.0, 1.0, 30_000.0])),
        split_hit_count=draw(st.sampled_from([0, 0, 1])),
        split_max_bundles=draw(st.sampled_from([1, 4, 128])),
        split_max_per_cycle=draw(st.sampled_from([0, 1, 10])),
    )
    values = {item.name: getattr(plan_input, item.name) for item in fields(plan_input)}
    return PlanInput(**{**values, "snapshot": snapshot, "params": params, "brokers_split": draw(st.booleans())})


@LAWS
@given(splitting())
def test_splits_are_legal(plan_input: PlanInput) -> None:
    """Law: never a system, frozen, pinned, excluded or moving bundle, nor one of a single topic; never above budget."""
    done, params, names = plan(plan_input).plan, plan_input.params, plan_input.snapshot.bundles.names
    assert params.split_enabled or not (done.splits or done.split_refusals)
    assert len(done.splits) <= params.split_max_per_cycle
    of_namespace = Counter(map(namespace_of, names))
    for namespace, count in Counter(namespace_of(split.bundle) for split in done.splits).items():
        assert of_namespace[namespace] + count <= params.split_max_bundles
    untouchable = {
        *plan_input.guard.frozen,
        *plan_input.guard.pinned,
        *plan_input.ledger.bundles(),
        *(move.bundle for move in done.moves),
    }
    for split in done.splits:
        assert not is_system_bundle(split.bundle)
        assert split.bundle not in untouchable
        assert namespace_of(split.bundle) not in params.excluded_namespaces
        assert plan_input.snapshot.bundles.counts[names.index(split.bundle), 0] >= 2
        assert split.value > split.limit > 0
        assert not plan_input.brokers_split or split.rule == "hot"


@LAWS
@given(splitting())
def test_every_bundle_above_a_limit_is_accounted_for(plan_input: PlanInput) -> None:
    """Every such bundle is split or refused, once. Only bundles that can be divided have hit counts."""
    result = plan(plan_input)
    named = [split.bundle for split in result.plan.splits] + [item.bundle for item in result.plan.split_refusals]
    assert len(named) == len(set(named))
    indivisible = {item.bundle for item in result.plan.split_refusals if item.code in ("SingleTopic", "NarrowRange")}
    assert set(result.memory.split_hits) == set(named) - indivisible


@LAWS
@given(splitting())
def test_same_input_same_splits(plan_input: PlanInput) -> None:
    """Law: a second call gives the same plan, hash included."""
    assert plan(plan_input) == plan(plan_input)
