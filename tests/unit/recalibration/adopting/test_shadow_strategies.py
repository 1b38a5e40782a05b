"""Strategies that plan along: beside the cycle, with their own memory, seen in metrics and the next journal line."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.planning.relocation import DRAIN
from bundlekeel.planning.strategies import SHEDDERS, Context, Decision
from bundlekeel.recalibration.adopting.comparison import compare_plans
from tests.support.world import EAGER, FakeCluster, FakeSidecar, WallClock


class Playing(FakeSidecar):
    """With strategies that plan along."""

    def __init__(self, cluster: FakeCluster, *strategies: str, params: Parameters = EAGER, mode: str = "act") -> None:
        self.given: list[PlanInput] = []
        self.results: list[PlanResult] = []
        super().__init__(cluster, params=params, mode=mode, settings={"shadow.strategies": strategies})
        self.cycle.listeners = (*self.cycle.listeners, self.heard)

    def heard(self, _epoch: object, given: PlanInput | None, result: PlanResult | None, _record: object) -> None:
        """Note what was planned."""
        if given is not None and result is not None:
            self.given.append(given)
            self.results.append(result)

    async def play(self) -> None:
        """Let them plan what they heard of."""
        if self.shadow_strategies is not None:
            async with asyncio.timeout(30):
                await self.shadow_strategies.play()

    def line(self) -> Any:
        """The last cycle's journal line."""
        return self.journal.tail(1, kind="cycle")[0]


def planned(strategy: str) -> Plan:
    """What a strategy plans for three brokers, one of which has everything."""
    sidecar = FakeSidecar(FakeCluster(clock=WallClock()), params=replace(EAGER, strategy=strategy))
    return asyncio.run(_one_plan(sidecar))


async def _one_plan(sidecar: FakeSidecar) -> Plan:
    await sidecar.lead()
    snapshot, _ = await sidecar.observer.snapshot()
    return plan(PlanInput(snapshot=snapshot, params=sidecar.cycle.params)).plan


def test_a_plan_agrees_with_itself() -> None:
    """No disagreement, no regret."""
    made = planned("avg")
    assert made.moves
    found = compare_plans(made, made)
    assert (found.disagreement, found.agreement, found.regret) == (0.0, "both_move", 0.0)


def test_plans_that_differ() -> None:
    """Shares of moves, who acts alone, and which one leaves the brokers more even."""
    made = planned("avg")
    rest = replace(made, moves=(), loads=tuple(replace(row, score_after=row.score_before) for row in made.loads))
    assert compare_plans(made, rest).agreement == "only_live" and compare_plans(rest, made).agreement == "only_shadow"
    assert compare_plans(rest, rest).agreement == "both_rest" and compare_plans(rest, rest).disagreement == 0.0
    assert compare_plans(made, rest).disagreement == 1.0
    assert compare_plans(rest, made).regret > 0 > compare_plans(made, rest).regret
    assert len(made.moves) > 1
    fewer = replace(made, moves=made.moves[1:])
    assert compare_plans(made, fewer).disagreement == pytest.approx(1 / len(made.moves))


def test_drains_are_no_disagreement() -> None:
    """They are asked for, whatever the strategy."""
    made = planned("avg")
    drains = replace(made, moves=tuple(replace(move, rule=DRAIN) for move in made.moves))
    assert compare_plans(drains, drains).agreement == "both_rest" and compare_plans(drains, drains).moves == 0


async def test_a_shadow_of_avg_shedder_has_a_placement_of_its_own() -> None:
    """In `compat` the other shedders plan along with Pulsar's default placement: half of AvgShedder is no pair."""
    params = replace(EAGER, strategy="avg", placement="avg", compat="4.2")
    sidecar = Playing(FakeCluster(clock=WallClock()), "threshold", params=params)
    await sidecar.lead()
    await sidecar.cycle.turn()
    await sidecar.play()
    alone = replace(params, strategy="threshold", placement="least_long_term_message_rate")
    expected = plan(replace(sidecar.given[0], params=alone, memory=StrategyMemory())).plan
    assert sidecar.shadow_strategies.news()["strategies"]["threshold"]["plan_hash"] == expected.hash


async def test_a_plugin_that_fails_costs_its_own_turn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those after it play, and its mistake is raised to the task that counts it."""

    def broken(_: Context) -> Decision:
        raise ZeroDivisionError("theirs")

    monkeypatch.setitem(SHEDDERS, "uniform", broken)
    sidecar = Playing(FakeCluster(clock=WallClock()), "uniform", "threshold")
    await sidecar.lead()
    await sidecar.cycle.turn()
    with pytest.raises(ZeroDivisionError):
        await sidecar.play()
    assert not sidecar.shadow_strategies.busy
    await sidecar.cycle.turn()
    assert set(sidecar.line()["shadow"]["strategies"]) == {"threshold"}


async def test_they_plan_beside_the_cycle_and_are_told_with_the_next() -> None:
    """Metrics at once, the journal line of the next cycle; the live strategy is not played against itself."""
    sidecar = Playing(FakeCluster(clock=WallClock()), "avg", "threshold", "overload")
    await sidecar.lead()
    report = await sidecar.cycle.turn()
    assert "shadow" not in sidecar.line()
    await sidecar.play()
    agreement = sidecar.metric("shadow_cycles_total")
    assert 'strategy="threshold"' in agreement and 'strategy="overload"' in agreement and '"avg"' not in agreement
    await sidecar.cycle.turn()
    told = sidecar.line()["shadow"]
    assert told["cycle"] == report.cycle and set(told["strategies"]) == {"threshold", "overload"}
    wanted = plan(
        replace(sidecar.given[0], params=replace(EAGER, strategy="threshold"), memory=type(sidecar.given[0].memory)())
    ).plan
    assert told["strategies"]["threshold"]["plan_hash"] == wanted.hash
    assert told["strategies"]["threshold"]["regret"] == compare_plans(sidecar.results[0].plan, wanted).regret
    await sidecar.cycle.turn()
    assert "shadow" not in sidecar.line()


async def test_nothing_of_it_touches_the_live_plan() -> None:
    """The same plans with and without, and nothing but the live strategy's moves is made."""
    plain, playing = (
        Playing(FakeCluster(clock=WallClock())),
        Playing(FakeCluster(clock=WallClock()), "threshold", "uniform"),
    )
    for sidecar in (plain, playing):
        await sidecar.lead()
        for _ in range(3):
            await sidecar.cycle.turn()
            await sidecar.play()
            sidecar.clock.offset += 60
            sidecar.cluster.publish()
    moved = [[(m.bundle, m.target) for m in result.plan.moves] for result in plain.results]
    assert moved == [[(m.bundle, m.target) for m in result.plan.moves] for result in playing.results]
    assert plain.moves() == playing.moves() != []


async def test_each_has_its_own_memory() -> None:
    """Hit counts grow from cycle to cycle: what needs two fresh reports acts in the second cycle."""
    context = Parameters(move_price=50)
    sidecar = Playing(FakeCluster(clock=WallClock()), "avg", params=replace(context, strategy="overload"))
    await sidecar.lead()
    seen = []
    for _ in range(3):
        await sidecar.cycle.turn()
        await sidecar.play()
        seen.append(sidecar.shadow_strategies.news()["strategies"]["avg"]["moves"])
        sidecar.clock.offset += 60
        sidecar.cluster.publish()
    assert seen[0] == 0 and seen[1] > 0


async def test_a_cycle_does_not_wait() -> None:
    """While they are at it, further cycles are passed over and counted; a follower's are not played at all."""
    sidecar = Playing(FakeCluster(clock=WallClock()), "threshold")
    await sidecar.lead()
    for _ in range(3):
        await sidecar.cycle.turn()
    assert sidecar.metric("shadow_skipped_total").endswith(" 2.0")
    await sidecar.play()
    await sidecar.leadership.stop()
    await sidecar.cycle.turn()
    assert not sidecar.shadow_strategies.busy
