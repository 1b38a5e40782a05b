"""Quotas in simulation: the scenarios of issue G under our rule, and the same under the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bundlekeel.model.load import Floats
from bundlekeel.quotas.rules.shares import ShareTuning
from evidence.quota_rules import Bundled, Fair, Native, Proposed, main
from evidence.quota_scenarios import (
    Curve,
    Death,
    Move,
    NewLimit,
    Outcome,
    Part,
    Rule,
    Scenario,
    Scene,
    Topic,
    constant,
    play,
    skewed,
    step,
    with_events,
)

ROOT = Path(__file__).resolve().parents[4]
LIMIT = 1000.0
WHEN = 8
BASE = skewed(LIMIT)
HOT, COLD = BASE.topics[0].name, BASE.topics[-1].name


class Unlimited:
    """The rule without any limit."""

    def passes(self, scene: Scene, parts: Sequence[Part]) -> Floats:
        return np.array([part.demand for part in parts])

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Do nothing: there are no limits."""


def partition_loss(outcome: Outcome) -> Floats:
    """Return for each cycle the part of the fair shares that cannot pass because all partitions of a topic have the
    same rate."""
    whole = outcome.fair.sum(axis=1)
    return np.maximum(whole - outcome.reachable.sum(axis=1), 0.0) / whole


def newcomers(count: int, demand: float, since: int = WHEN) -> tuple[Topic, ...]:
    """Topics that are made in the middle."""
    return tuple(
        Topic(name=f"persistent://acme/ns0/new{row}", demand=constant(demand), owners=(row % 3,), since=since)
        for row in range(count)
    )


def jump(name: str, before: float, after: float) -> Scenario:
    """The demand of one topic changes in the middle."""
    topics = tuple(
        replace(topic, demand=step(before, after, WHEN)) if topic.name == name else topic for topic in BASE.topics
    )
    return replace(BASE, topics=topics)


def wakes() -> Scenario:
    """A topic that exists and passes nothing until the middle."""
    idle = Topic(name="persistent://acme/ns1/idle", demand=step(0, 500, WHEN), owners=(1,))
    return replace(BASE, topics=(*BASE.topics, idle))


def lost(broker: int) -> Scenario:
    """A broker dies and its topics are without service for two cycles."""
    return with_events(BASE, Death(cycle=WHEN, broker=broker, gap=2))


SCENARIOS = {
    "move": with_events(BASE, Move(cycle=WHEN, topic=HOT, target=2)),
    "slow move": with_events(BASE, Move(cycle=WHEN, topic=HOT, target=2, gap=2)),
    "many moves": with_events(
        BASE, *(Move(cycle=WHEN + row, topic=BASE.topics[row].name, target=1) for row in range(6))
    ),
    "death": with_events(BASE, Death(cycle=WHEN, broker=0)),
    "slow death": lost(0),
    "new topic": replace(BASE, topics=(*BASE.topics, *newcomers(1, 300))),
    "hundred new topics": replace(BASE, topics=(*BASE.topics, *newcomers(100, 50))),
    "a topic wakes": wakes(),
    "small becomes large": jump(COLD, 5, 800),
    "large becomes small": jump(HOT, 800, 5),
    "limit is raised": with_events(BASE, NewLimit(cycle=WHEN, limit=2500)),
    "limit is lowered": with_events(BASE, NewLimit(cycle=WHEN, limit=250)),
}


def test_skewed_topics() -> None:
    """3 brokers, 2 namespaces of 8 topics, 4 times the limit offered: within 10 % from the third report cycle on, and
    every topic has 80 % of its fair share.
    """
    moved = play(BASE, Fair())
    assert all(moved.good()[3:])
    assert moved.demand[0].sum() == pytest.approx(4 * LIMIT)
    assert moved.starved_seconds() == 0


@pytest.mark.parametrize("name", SCENARIOS)
def test_steps(name: str) -> None:
    """Whatever happens, it is good again in three cycles and stays so."""
    moved = play(SCENARIOS[name], Fair())
    settled = moved.cycles_to_settle(WHEN)
    assert settled is not None
    assert settled <= 3
    assert all(moved.good()[3:WHEN])


@pytest.mark.parametrize("name", ["move", "slow move", "many moves"])
def test_moves_starve_nobody(name: str) -> None:
    """The share belongs to the topic: its broker does not matter."""
    assert play(SCENARIOS[name], Fair()).starved_seconds() == 0


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_flutter(name: str) -> None:
    """No share changes its direction more than once after a step."""
    passed = play(SCENARIOS[name], Fair()).passed[WHEN + 1 :]
    for column in passed.T:
        changes = np.diff(column)
        signs = np.sign(changes[np.abs(changes) > 0.01 * max(1.0, column.max())])
        assert int((np.diff(signs) != 0).sum()) <= 1


def test_never_above_the_limit() -> None:
    """Once topics are known, with the world at rest, nothing passes beyond the limit."""
    moved = play(BASE, Fair())
    assert (moved.passed[1:].sum(axis=1) <= moved.limit[1:]).all()


def test_proportional_is_slower() -> None:
    """In proportion to past usage a small topic that grows needs long: that is what it says."""
    scenario = SCENARIOS["small becomes large"]
    even, slow = play(scenario, Fair()), play(scenario, Fair(ShareTuning(split="proportional")))
    assert slow.of_fair()[WHEN + 3].min() < 0.5 < even.of_fair()[WHEN + 3].min()
    assert np.abs(slow.accuracy()[WHEN:] - 1).max() <= 0.1


def test_even_partitions() -> None:
    """A partitioned topic over three brokers is one topic: one share, no loss."""
    topic = Topic(name="persistent://acme/ns0/parts", demand=constant(600), owners=(0, 1, 2, 0))
    moved = play(replace(BASE, topics=(*BASE.topics, topic)), Fair())
    assert all(moved.good()[3:])
    assert partition_loss(moved).max() == pytest.approx(0)


def test_skewed_partitions() -> None:
    """Three quarters of the demand in one of four partitions: the loss equals the computed one, and does not grow."""
    topic = Topic(name="persistent://acme/ns0/parts", demand=constant(600), owners=(0, 1, 2, 0), weights=(9, 1, 1, 1))
    moved = play(Scenario(topics=(topic, BASE.topics[0]), brokers=3, limit=LIMIT), Fair())
    loss = partition_loss(moved)[-1]
    assert 0.1 < loss < 0.4
    assert moved.accuracy()[-1] >= 1 - loss - 0.1
    assert np.ptp(moved.passed[5:, 0]) == pytest.approx(0)


@pytest.mark.parametrize(("overcommit", "least"), [(0.0, 0.7), (0.1, 0.75)])
def test_jitter(overcommit: float, least: float) -> None:
    """Demands that go up and down by 5 % in each cycle, 1.4 times the limit together: mostly within 10 %, and the room
    of the small is what the largest topics miss without overcommitting."""
    draws = np.random.default_rng(3).uniform(0.95, 1.05, size=(len(BASE.topics), 60)).tolist()

    def curve(rate: float, factors: list[float]) -> Curve:
        return lambda cycle: rate * factors[cycle]

    pairs = zip(BASE.topics, draws, strict=True)
    topics = tuple(replace(topic, demand=curve(topic.demand(0), factors)) for topic, factors in pairs)
    scenario = replace(BASE, topics=topics, limit=2.8 * LIMIT, cycles=60)
    moved = play(scenario, Fair(ShareTuning(overcommit=overcommit)))
    assert np.abs(moved.accuracy()[3:].mean() - 1) <= 0.1
    assert np.abs(moved.accuracy()[3:] - 1).max() <= 0.12
    assert moved.of_fair()[3:].min() >= least


class TestOthers:
    """The same scenarios under other rules, with their usage exchange."""

    def test_unlimited(self) -> None:
        """Four times the limit passes."""
        assert play(BASE, Unlimited()).accuracy() == pytest.approx(np.full(BASE.cycles, 4.0))

    def test_proposed_comes_close_slowly(self) -> None:
        """PIP-82's stealing overshoots, and comes to within 10 % cycle by cycle."""
        accuracy = play(BASE, Proposed()).accuracy()
        assert accuracy[2] > 1.1
        assert np.abs(accuracy[10:] - 1).max() <= 0.1

    def test_native_holds_the_limit_but_is_not_fair(self) -> None:
        """The total is right, the shares are those of the past: a broker of small topics stays small."""
        moved = play(BASE, Native())
        assert np.abs(moved.accuracy()[2:] - 1).max() <= 0.1
        assert moved.of_fair()[-1].min() < 0.5

    def test_native_starves_a_moved_topic(self) -> None:
        """A topic moved to a broker without usage gets one message a second, and stays there; ours does not notice."""
        topics = tuple(replace(topic, owners=(row % 2,)) for row, topic in enumerate(BASE.topics))
        scenario = Scenario(topics=topics, brokers=3, limit=LIMIT, events=(Move(cycle=WHEN, topic=HOT, target=2),))
        moved = play(scenario, Native())
        assert moved.passed[WHEN:, 0] == pytest.approx(np.ones(scenario.cycles - WHEN))
        assert moved.starved_seconds() > play(scenario, Fair()).starved_seconds() == 0

    def test_native_counts_the_dead(self) -> None:
        scenario = SCENARIOS["death"]
        assert play(scenario, Native()).accuracy()[-1] < 0.8
        assert play(scenario, Fair()).accuracy()[WHEN + 2 :].min() > 0.9

    def test_native_does_not_enforce_dispatch(self) -> None:
        """It measures it only."""
        assert play(BASE, Native(enforced=False)).accuracy()[-1] == pytest.approx(4)

    def test_bundles_waste(self) -> None:
        """Idle bundles keep their part: with 16 bundles and 16 topics a third of the limit at least."""
        accuracy = play(BASE, Bundled(16)).accuracy()
        assert accuracy.max() < 0.7
        assert np.ptp(accuracy) == 0

    @pytest.mark.parametrize("make", [Fair, Proposed, Native, lambda: Bundled(4)])
    def test_deterministic(self, make: Callable[[], Rule]) -> None:
        one, other = (play(SCENARIOS["death"], make()) for _ in range(2))
        assert np.array_equal(one.passed, other.passed)


def test_j09_the_table_of_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/concepts/quotas.md, row by row."""
    main()
    assert capsys.readouterr().out in (ROOT / "docs/concepts/quotas.md").read_text(encoding="utf-8")
