"""Compare our compat shedders with Pulsar's real classes, turn by turn, without any difference.

They unload the same bundles in the same sequence to the same destinations, and their memory agrees to the last bit. In
Java, equal loads and sums of doubles depend on the order of its hash maps. That order follows from the names and the
order of insertion, and our decoder computes it (compat/javamaps.py).
"""

from __future__ import annotations

import pytest

from dev.oracle import Oracle
from dev.oracle.oracle import older_jar
from tests.parity.beside import Outcome, compare_shedder
from tests.parity.states import AGREED_MONITORS, SHEDDERS, scenario

TURNS = 4


def check(outcome: Outcome, states: int) -> None:
    assert outcome.states == states
    assert not outcome.differences, f"{len(outcome.differences)} differences, first: {outcome.differences[:3]}"
    # Equal answers prove something only if the classes had something to say: each kind of verdict, and bundles.
    assert outcome.acted > states / 10
    assert len(outcome.seen) >= 4


@pytest.mark.parametrize("strategy", SHEDDERS)
def test_a_thousand_states(each_oracle: Oracle, strategy: str) -> None:
    check(compare_shedder(each_oracle, strategy, (scenario(seed, TURNS) for seed in range(250))), 1000)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategy", SHEDDERS)
def test_ten_thousand_states(each_oracle: Oracle, strategy: str) -> None:
    scenarios = (scenario(seed, TURNS) for seed in range(10_000, 12_500))
    check(compare_shedder(each_oracle, strategy, scenarios), 10_000)


def test_a_crowded_bucket(oracle: Oracle) -> None:
    """Bundles whose names' hashes meet in a bucket that Java makes a tree of, while its map grows."""
    assert compare_shedder(oracle, "overload", [scenario(12_014, TURNS)]).differences == []


def older(oracle: Oracle, seeds: range) -> Outcome:
    # The older shedder runs on 4.2's LoadData, which has its own idea of heartbeats: only those both agree on.
    scenarios = (scenario(seed, TURNS, monitors=AGREED_MONITORS) for seed in seeds)
    return compare_shedder(oracle, "uniform", scenarios, release="4.0", older_jar=str(older_jar()))


def test_uniform_of_the_4_0_line(oracle: Oracle) -> None:
    """The only class of the four whose text differs between 4.0.8 and 4.2.4: it lets a bundle exceed by 1,000."""
    check(older(oracle, range(250)), 1000)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_uniform_of_the_4_0_line_ten_thousand_states(oracle: Oracle) -> None:
    check(older(oracle, range(10_000, 12_500)), 10_000)


def test_the_4_0_and_the_4_2_form_of_uniform_differ(oracle: Oracle) -> None:
    """The comparison above would notice: 4.2's form is not what 4.0.8's class does."""
    scenarios = (scenario(seed, TURNS, monitors=AGREED_MONITORS) for seed in range(250))
    outcome = compare_shedder(oracle, "uniform", scenarios, release="4.2", older_jar=str(older_jar()))
    assert outcome.differences
