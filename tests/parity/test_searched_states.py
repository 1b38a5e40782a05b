"""States that Hypothesis searches for: doubles at the edges, thresholds met exactly, sums that round.

The seeded states have realistic figures; these have any double that JSON and Java can hold.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dev.oracle import Oracle
from tests.parity.beside import compare_placement, compare_shedder
from tests.parity.states import PLACEMENTS, SHEDDERS, Scenario, Turn

SETTINGS = settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FIGURES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
EDGES = (0.0, -0.0, 1e-6, 1e-7, 0.1, 1.0, 1000.0, 2147483647.0, 2147483648.0, 1e300, 5e-324)

# Negative sums of a broker stay out: with nothing above -1 UniformLoadShedder looks up a broker named null and fails.
amounts = st.one_of(st.sampled_from(EDGES), st.floats(0, 1e12), st.floats(0, 2e7), st.sampled_from(("NaN", "Infinity")))
signed = st.one_of(amounts, st.floats(-1e6, 1e6))
usages = st.one_of(st.sampled_from((0.0, 10.0, 20.0, 50.0, 85.0, 95.0, 100.0)), st.floats(0, 1e3), signed)
limits = st.one_of(st.just(100.0), st.sampled_from((0.0, -1.0, 1e-46, 3.0)), st.floats(1e-3, 1e6))
configs = st.fixed_dictionaries(
    {
        "loadBalancerBrokerThresholdShedderPercentage": st.integers(-5, 40),
        "loadBalancerBrokerOverloadedThresholdPercentage": st.integers(-5, 110),
        "loadBalancerBundleUnloadMinThroughputThreshold": st.sampled_from((0.0, 10.0, 1e-6)),
        "loadBalancerHistoryResourcePercentage": st.floats(0, 1),
        "lowerBoundarySheddingEnabled": st.booleans(),
        "loadBalancerCPUResourceWeight": st.floats(0, 2),
        "loadBalancerAvgShedderLowThreshold": st.integers(-1, 40),
        "loadBalancerAvgShedderHitCountLowThreshold": st.integers(0, 3),
        "loadBalancerAvgShedderHitCountHighThreshold": st.integers(0, 3),
        "maxUnloadPercentage": st.floats(0, 1),
        "minUnloadMessage": st.sampled_from((0, 1, 1000)),
        "minUnloadMessageThroughput": st.sampled_from((0, 1, 1_048_576)),
        "loadBalancerMsgRateDifferenceShedderThreshold": st.floats(-1, 200),
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": st.floats(-1, 8),
        "maxUnloadBundleNumPerShedding": st.integers(-1, 3),
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": st.integers(0, 30),
    }
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """Up to five brokers with up to five bundles; figures are any double."""
    turn = Turn(brokers={}, bundles={}, recent=[])
    for broker in range(draw(st.integers(1, 5))):
        names = [f"t/n{broker}/0x{index:08x}_0x{index + 1:08x}" for index in range(draw(st.integers(0, 5)))]
        record: dict[str, Any] = {name: draw(amounts) for name in FIGURES}
        record["cpu"] = {"usage": draw(usages), "limit": draw(limits)}
        record |= {"bundles": names, "lastStats": {name: {} for name in names}}
        turn.brokers[f"b{broker}:80"] = record
        for name in names:
            short, long = ({figure: draw(signed) for figure in FIGURES} for _ in range(2))
            turn.bundles[name] = {"shortTermData": short, "longTermData": long}
    bundles = sorted(turn.bundles)
    turn.recent = draw(st.lists(st.sampled_from(bundles), max_size=2)) if bundles else []
    names = sorted(turn.brokers)
    for _ in range(draw(st.integers(1, 3))):
        candidates = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        turn.select.append({"bundle": draw(st.sampled_from([*bundles, "t/none/0x0_0x1"])), "candidates": candidates})
    return turn


scenarios = st.builds(Scenario, seed=st.just(0), config=configs, turns=st.lists(turns(), min_size=1, max_size=3))


@SETTINGS
@given(scenario=scenarios)
def test_shedders(each_oracle: Oracle, scenario: Scenario) -> None:
    plain = Scenario(scenario.seed, scenario.config, [Turn(t.brokers, t.bundles, t.recent) for t in scenario.turns])
    for strategy in SHEDDERS:
        assert compare_shedder(each_oracle, strategy, [plain]).differences == [], strategy


@SETTINGS
@given(scenario=scenarios)
def test_placements(each_oracle: Oracle, scenario: Scenario) -> None:
    for placement in PLACEMENTS:
        assert compare_placement(each_oracle, placement, [scenario]).differences == [], placement
