"""Laws that hold for the splits of every plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundlekeel.core.model.names import is_system_bundle, namespace_of
from bundlekeel.core.planning.engine import PlanInput, plan
from tests.support.plan_inputs import inputs, with_books

LAWS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def splitting(draw: st.DrawFn) -> PlanInput:
    """Clusters, books and guards as for moves, with bundles of many topics and sessions, and tight limits."""
    made = draw(inputs())
    made = with_books(made) if draw(st.booleans()) else made
    bundles = made.snapshot.bundles
    counts = draw(st.lists(st.sampled_from([0, 1, 2, 9, 50]), min_size=len(bundles), max_size=len(bundles)))
    column = np.array(counts, dtype=np.int64).reshape(-1, 1)
    snapshot = replace(made.snapshot, bundles=replace(bundles, counts=np.hstack([column, column, column])))
    params = replace(
        made.params,
        split_enabled=draw(st.sampled_from([True, True, True, False])),
        split_max_topics=draw(st.sampled_from([0, 5, 1000])),
        split_max_sessions=draw(st.sampled_from([0, 60])),
        split_max_msg_rate=draw(st.sampled_from([0.0, 1.0, 30_000.0])),
        split_hit_count=draw(st.sampled_from([0, 0, 1])),
        split_max_bundles=draw(st.sampled_from([1, 4, 128])),
        split_max_per_cycle=draw(st.sampled_from([0, 1, 10])),
    )
    values = {item.name: getattr(made, item.name) for item in fields(made)}
    return PlanInput(**{**values, "snapshot": snapshot, "params": params, "brokers_split": draw(st.booleans())})


@LAWS
@given(splitting())
def test_splits_are_legal(made: PlanInput) -> None:
    """Law: never a system, frozen, pinned, excluded or moving bundle, nor one of a single topic; never above budget."""
    done, params, names = plan(made).plan, made.params, made.snapshot.bundles.names
    assert params.split_enabled or not (done.splits or done.split_refusals)
    assert len(done.splits) <= params.split_max_per_cycle
    of_namespace = Counter(map(namespace_of, names))
    for namespace, count in Counter(namespace_of(split.bundle) for split in done.splits).items():
        assert of_namespace[namespace] + count <= params.split_max_bundles
    kept = {*made.guard.frozen, *made.guard.pinned, *made.ledger.bundles(), *(move.bundle for move in done.moves)}
    for split in done.splits:
        assert not is_system_bundle(split.bundle)
        assert split.bundle not in kept
        assert namespace_of(split.bundle) not in params.excluded_namespaces
        assert made.snapshot.bundles.counts[names.index(split.bundle), 0] >= 2
        assert split.value > split.limit > 0
        assert not made.brokers_split or split.rule == "hot"


@LAWS
@given(splitting())
def test_every_bundle_above_a_limit_is_accounted_for(made: PlanInput) -> None:
    """Law: split or refused, each once; hits are remembered of those that can be divided, and of nobody else."""
    result = plan(made)
    named = [split.bundle for split in result.plan.splits] + [item.bundle for item in result.plan.split_refusals]
    assert len(named) == len(set(named))
    indivisible = {item.bundle for item in result.plan.split_refusals if item.code in ("SingleTopic", "NarrowRange")}
    assert set(result.memory.split_hits) == set(named) - indivisible


@LAWS
@given(splitting())
def test_same_input_same_splits(made: PlanInput) -> None:
    """Law: a second call gives the same plan, hash included."""
    assert plan(made) == plan(made)
