"""Compat classes inside a plan, and the parts that tests/parity does not reach."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from bundlekeel.compat.in_plan import picture_of, shed_in_plan
from bundlekeel.compat.javamaps import concurrent_order, spread_hashes
from bundlekeel.compat.shedders import COMPAT_SHEDDERS, shed
from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters, compat_defaults
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.guard.eligibility import eligibility
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import CompatMemory, StrategyMemory
from bundlekeel.planning.strategies.common import Context
from bundlekeel.planning.strategies.placement import PLACEMENTS
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, snapshot
from tests.support.pulsar import decode_compat

LOADS = ([0.3, 0.2, 0.2, 0.1, 0.1], [0.02, 0.01], [0.03, 0.02])


def context(current: Snapshot, **changes: Any) -> Context:
    memory, guard, seed = (
        changes.pop("memory", StrategyMemory()),
        changes.pop("guard", GuardState()),
        changes.pop("seed", 0),
    )
    params = Parameters(**{**compat_defaults("4.2"), "compat": "4.2", **changes})
    draft = Draft(current, Ledger(), params)
    eligible = eligibility(current, guard, params, current.wall_ms, frozenset())
    return Context(
        snapshot=current,
        draft=draft,
        eligible=eligible,
        memory=memory,
        params=params,
        placement=PLACEMENTS["least_resource_usage"],
        unsettled=frozenset(),
        seed=seed,
        guard=guard,
    )


def moved(plan_context: Context) -> list[tuple[str, str, str]]:
    return [(move.bundle, move.source, move.target) for move in plan_context.draft.moves]


@pytest.mark.parametrize("strategy", COMPAT_SHEDDERS)
def test_a_snapshot_is_the_same_picture_as_the_reports_it_came_from(strategy: str) -> None:
    reports = cluster(LOADS)
    texts, data = {}, {}
    for item in reports:
        rate_in, rate_out, bytes_in, bytes_out = item.traffic.tolist()
        record: dict[str, Any] = {"msgRateIn": rate_in, "msgRateOut": rate_out, "bundles": list(item.bundle_names)}
        record |= {"msgThroughputIn": bytes_in, "msgThroughputOut": bytes_out}
        record["cpu"] = {"usage": float(item.usage[0]), "limit": float(item.limit[0])}
        texts[item.broker_id] = msgspec.json.encode(record)
        for name, row in zip(item.bundle_names, item.bundle_traffic.tolist(), strict=True):
            term = dict(zip(("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut"), row, strict=True))
            data[name] = msgspec.json.encode({"shortTermData": term, "longTermData": term})
    params = Parameters(max_unload_ratio=0.5, avg_hit_count_high=1, overloaded_threshold_percent=80)
    results = []
    for picture in (picture_of(snapshot(reports)), decode_compat(texts, data)):
        result = shed(picture, params, CompatMemory(), strategy, "4.2")
        results.append(({picture.bundles.names[row] for row, _ in result.unload}, result.memory.usage))
    assert results[0] == results[1]
    assert results[0][0]


def test_avg_moves_to_the_broker_it_paired() -> None:
    inputs = context(snapshot(cluster(LOADS)), strategy="avg", avg_hit_count_high=1, max_unload_ratio=0.5)
    decision = shed_in_plan(inputs)
    assert decision.verdict.code is Code.OVERLOADED
    # 0.90 against 0.03: half of the difference is 0.435.
    assert [(bundle, target) for bundle, _, target in moved(inputs)] == [
        (bundle_name(0), broker(1)),
        (bundle_name(3), broker(1)),
    ]


def test_hits_are_kept_between_plans() -> None:
    current, memory = snapshot(cluster(LOADS)), StrategyMemory()
    codes: list[Code] = []
    for _ in range(2):
        decision = shed_in_plan(context(current, strategy="avg", memory=memory))
        memory, codes = decision.memory, [*codes, decision.verdict.code]
    assert codes == [Code.HIT_COUNT, Code.OVERLOADED]


def test_a_bundle_placed_on_its_owner_stays() -> None:
    """Pulsar's placement may choose the broker that sheds; the loop then skips the bundle."""
    outcomes = set()
    for seed in range(30):
        # All are far above: everybody is "best", and the draw may hit the owner.
        even = snapshot(cluster([[0.45, 0.45], [0.45, 0.45]]))
        inputs = context(even, strategy="overload", placement="least_resource_usage", seed=seed)
        decision = shed_in_plan(inputs)
        for refusal in decision.refusals:
            assert refusal.code is Code.SAME_BROKER
            outcomes.add("stays")
        outcomes |= {"moves" for _ in moved(inputs)}
        assert len(decision.refusals) + len(moved(inputs)) == 2
    assert outcomes == {"stays", "moves"}


def test_what_moved_lately_is_not_selected() -> None:
    current = snapshot(cluster(LOADS))
    first = context(current, strategy="overload")
    shed_in_plan(first)
    moves = moved(first)[0][0]
    second = context(
        current, strategy="overload", guard=GuardState(recent={moves: RecentMove(at_ms=NOW_MS, source=broker(0))})
    )
    shed_in_plan(second)
    assert moves == bundle_name(0)
    assert [bundle for bundle, _, _ in moved(second)][:1] == [bundle_name(1)]


def test_policies_narrow_the_candidates() -> None:
    inputs = context(snapshot(cluster(LOADS)), strategy="overload", placement="least_long_term_message_rate")
    inputs.draft.permitted = np.array([[True, False, True]])
    shed_in_plan(inputs)
    assert {target for _, _, target in moved(inputs)} == {broker(2)}


def test_a_full_broker_is_no_candidate() -> None:
    reports = cluster(LOADS)
    crowded = [*reports[:1], replace(reports[1], num_topics=60_000), reports[2]]
    inputs = context(snapshot(crowded), strategy="overload", placement="least_long_term_message_rate")
    shed_in_plan(inputs)
    assert {target for _, _, target in moved(inputs)} == {broker(2)}


def test_the_seed_decides_the_draw() -> None:
    current = snapshot(cluster([[0.5, 0.4], *([[]] * 20)]))

    def targets(seed: int) -> list[str]:
        inputs = context(current, strategy="overload", placement="least_resource_usage", seed=seed)
        shed_in_plan(inputs)
        return [target for _, _, target in moved(inputs)]

    assert [targets(seed) for seed in range(10)] == [targets(seed) for seed in range(10)]
    assert len({target for seed in range(10) for target in targets(seed)}) > 1


@pytest.mark.parametrize("strategy", COMPAT_SHEDDERS)
def test_nothing_at_all_is_balanced_or_says_why(strategy: str) -> None:
    result = shed(decode_compat({}, {}), Parameters(), CompatMemory(), strategy, "4.2")
    assert result.unload == ()
    assert result.verdict.code in (Code.BALANCED, Code.ZERO_AVERAGE)


def test_hash_codes_are_those_of_java() -> None:
    """Values from Java: "a" 97, "Aa" and "BB" both 2112, the empty text 0, and one of two UTF-16 units."""
    words = ["a", "Aa", "BB", "", "\U0001f600"]
    expected = [97, 2112, 2112, 0, (0xD83D * 31 + 0xDE00)]
    assert spread_hashes(words).tolist() == [(value ^ (value >> 16)) & 0x7FFFFFFF for value in expected]


def test_a_concurrent_map_turns_keys_of_a_bucket_round_as_it_grows() -> None:
    """Keys 0, 32, 64 and 16 share a bucket of the first table; the twelfth key makes it grow."""
    hashes = np.array([0, 32, 64, 16, *range(1, 9)], dtype=np.int64)
    order = hashes[concurrent_order(hashes)].tolist()
    # 16 was last in its bucket and leaves it; the entries before it come out in reverse.
    assert order[:3] == [64, 32, 0]
    assert order[-1] == 16


@pytest.mark.parametrize(
    ("keys", "java"),
    [
        # Nine in a bucket of the first table make it eight times as large. The tenth makes a tree, two come before it.
        (range(0, 12288, 1024), [11264, 10240, *range(0, 10240, 1024)]),
        # The tree parts as the table doubles twice; what came into it stays in front of what made it.
        (
            [*range(1, 40), *range(64, 896, 64), *range(40, 63), *range(896, 3200, 64)],
            [
                *(*range(3072, 1279, -256), 256, 512, 768, 1024, *range(1, 63)),
                *(*range(3136, 1343, -256), 64, 320, 576, 832, 1088),
                *(*range(2944, 1407, -256), 128, 384, 640, 896, 1152),
                *(*range(3008, 1215, -256), 192, 448, 704, 960),
            ],
        ),
    ],
)
def test_a_concurrent_map_makes_trees_of_crowded_buckets(keys: Iterable[int], java: list[int]) -> None:
    """The orders are those of Java 17's `ConcurrentHashMap<Integer, Integer>`."""
    hashes = np.array(list(keys), dtype=np.int64)
    assert hashes[concurrent_order(hashes)].tolist() == java


_SAYS = """
import msgspec
from tests.support.pulsar import decode_compat
from bundlekeel.compat.shedders import COMPAT_SHEDDERS, shed
from bundlekeel.planning.memory import CompatMemory
from tests.parity.beside import parameters
from tests.parity.states import scenario

for seed in range(40):
    made = scenario(seed, 2)
    for strategy in COMPAT_SHEDDERS:
        memory = CompatMemory()
        for turn in made.turns:
            parts = (turn.brokers, turn.bundles)
            texts = [{name: msgspec.json.encode(item) for name, item in part.items()} for part in parts]
            result = shed(decode_compat(*texts, turn.recent), parameters(made.config), memory, strategy, "4.2")
            memory = result.memory
            print(result.unload, dict(result.to), memory, result.verdict, result.brokers)
"""


def test_the_hash_seed_of_python_changes_nothing() -> None:
    """A report's bundles are read into a set; its order must not show."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", _SAYS],
            capture_output=True,
            check=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 10_000
