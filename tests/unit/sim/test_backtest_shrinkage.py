"""What candidates are expected to come to: figures drawn half-way to a surface through all of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from bundlekeel.core.model.parameters import Parameters
from bundlekeel.sim.backtest import Candidate, CandidateMeasures
from bundlekeel.sim.backtest.choice import ShrunkEstimate, choose, shrunk_estimates
from bundlekeel.sim.backtest.measures import Value
from bundlekeel.sim.backtest.search import TriedCandidates, present

BASE = Parameters()
BLOCKS = tuple(range(8))


def candidates() -> list[Candidate]:
    """Thresholds times hit counts, the present among them."""
    found = [present()]
    for low in range(10, 40, 5):
        for hits in range(2, 15, 2):
            changes: dict[str, Value] = {"avg_low_threshold_percent": float(low), "split_hit_count": hits}
            found.append(Candidate(name=f"{low} {hits}", changes=changes))
    return found


def block(imbalance: float, moves: float) -> CandidateMeasures:
    """Six hours."""
    return CandidateMeasures(seconds=21_600.0, weighted=imbalance * 21_600, moves=moves)


def tried(given: list[Candidate], says: Mapping[str, tuple[float, float]]) -> TriedCandidates:
    """Imbalance and moves by key, the same in every block."""
    results = {key: dict.fromkeys(BLOCKS, block(*found)) for key, found in says.items()}
    return TriedCandidates(present=present().key, candidates={item.key: item for item in given}, results=results)


def smooth(item: Candidate) -> tuple[float, float]:
    """More balanced the lower the threshold, fewer moves the higher it and the hit count are."""
    params = item.params(BASE)
    low, hits = params.avg_low_threshold_percent, params.split_hit_count
    return 0.1 * 1.01 ** (low - 15), 100 * 0.97 ** (low - 15) * 0.95 ** (hits - 8)


def error(found: Mapping[str, ShrunkEstimate], truth: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Root mean square of the logarithms, of imbalance and moves."""
    rows = [
        (np.log(found[key].imbalance / imbalance), np.log(found[key].moves / moves))
        for key, (imbalance, moves) in truth.items()
    ]
    one, other = np.sqrt((np.array(rows) ** 2).mean(axis=0))
    return float(one), float(other)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_nearer_to_the_truth_than_what_was_seen(seed: int) -> None:
    """Luck is drawn: what is left of it is little more than half."""
    given, rng = candidates(), np.random.default_rng(seed)
    truth = {item.key: smooth(item) for item in given}
    lucky = {key: (one * rng.lognormal(0, 0.03), other * rng.lognormal(0, 0.2)) for key, (one, other) in truth.items()}
    seen = {key: ShrunkEstimate(imbalance=one, moves=other * len(BLOCKS)) for key, (one, other) in lucky.items()}
    whole = {key: (one, other * len(BLOCKS)) for key, (one, other) in truth.items()}
    before = error(seen, whole)
    after = error(shrunk_estimates(tried(given, lucky), BASE, BLOCKS), whole)
    assert after[0] < 0.75 * before[0] and after[1] < 0.75 * before[1]


def test_one_lucky_candidate_is_not_believed() -> None:
    """A tenth of the moves where all around need ten times as many: half-way on a scale of factors."""
    given = candidates()
    says = {item.key: smooth(item) for item in given}
    one = given[10]
    says[one.key] = (says[one.key][0], says[one.key][1] / 10)
    found = shrunk_estimates(tried(given, says), BASE, BLOCKS)
    assert 2 < found[one.key].moves / (says[one.key][1] * len(BLOCKS)) < 4


def test_each_strategy_and_cycle_has_its_own_surface() -> None:
    """What another strategy came to says nothing about this one; so few that there is no surface keep their figures."""
    given = candidates()
    says = {item.key: smooth(item) for item in given}
    alone = shrunk_estimates(tried(given, says), BASE, BLOCKS)
    others = [
        Candidate(name="threshold", changes={"strategy": "threshold"}),
        Candidate(name="slow", changes={}, cycle_seconds=300),
    ]
    more = {others[0].key: (5.0, 7.0), others[1].key: (0.01, 0.0)}
    found = shrunk_estimates(tried([*given, *others], says | more), BASE, BLOCKS)
    assert {key: found[key] for key in alone} == alone
    assert found[others[0].key] == ShrunkEstimate(imbalance=pytest.approx(5.0), moves=7.0 * len(BLOCKS))
    assert found[others[1].key] == ShrunkEstimate(imbalance=pytest.approx(0.01), moves=0.0)


def test_no_moves_at_all() -> None:
    """Nothing has no logarithm: it stays nothing, and some of it stays at least nothing."""
    given = candidates()
    none = {item.key: (0.1, 0.0) for item in given}
    assert all(item.moves == 0.0 for item in shrunk_estimates(tried(given, none), BASE, BLOCKS).values())
    some = none | {item.key: (0.1, 5.0) for item in given[:20]}
    assert all(item.moves >= 0.0 for item in shrunk_estimates(tried(given, some), BASE, BLOCKS).values())


def test_only_the_blocks_that_may_be_looked_at() -> None:
    """What is held out is not known to it."""
    given = candidates()
    made = tried(given, {item.key: smooth(item) for item in given})
    spoilt = {key: {**found, 7: block(9.0, 999.0)} for key, found in made.results.items()}
    other = TriedCandidates(present=made.present, candidates=made.candidates, results=spoilt)
    assert shrunk_estimates(other, BASE, BLOCKS[:6]) == shrunk_estimates(made, BASE, BLOCKS[:6])


def test_next_to_no_imbalance_is_no_reason_to_fail() -> None:
    """What is in force is balanced but for a trace, so that it may be drawn down to nothing: no share of that is asked
    for."""
    given, down = [present(), *candidates()[1::4]], 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        says = {item.key: (float(rng.choice([0.0, 0.0, 1e-6, 0.3])), float(rng.integers(0, 30))) for item in given}
        says[present().key] = (1e-6, 20.0)
        made = tried(given, says)
        down += shrunk_estimates(made, BASE, BLOCKS)[present().key].imbalance == 0.0
        assert choose(made, BASE, train=BLOCKS[:6], held=BLOCKS[6:]).reason
    assert down, "no seed leads there"
