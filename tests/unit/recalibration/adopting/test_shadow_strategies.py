"""Shadow strategies plan next to the cycle, with their own memory; metrics and the next journal line show them."""

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
    """A sidecar with shadow strategies."""

    def __init__(self, cluster: FakeCluster, *strategies: str, params: Parameters = EAGER, mode: str = "act") -> None:
        self.inputs: list[PlanInput] = []
        self.results: list[PlanResult] = []
        super().__init__(cluster, params=params, mode=mode, settings={"shadow.strategies": strategies})
        self.cycle.listeners = (*self.cycle.listeners, self.record_plan)

    def record_plan(self, _epoch: object, data: PlanInput | None, result: PlanResult | None, _record: object) -> None:
        """Record input and result of a plan."""
        if data is not None and result is not None:
            self.inputs.append(data)
            self.results.append(result)

    async def play(self) -> None:
        """Let the shadow strategies plan the recorded cycles."""
        if self.shadow_strategies is not None:
            async with asyncio.timeout(30):
                await self.shadow_strategies.play()

    def line(self) -> Any:
        """Return the journal line of the last cycle."""
        return self.journal.tail(1, kind="cycle")[0]


def planned(strategy: str) -> Plan:
    """Return the plan of a strategy for three brokers, one of which owns all bundles."""
    sidecar = FakeSidecar(FakeCluster(clock=WallClock()), params=replace(EAGER, strategy=strategy))
    return asyncio.run(_one_plan(sidecar))


async def _one_plan(sidecar: FakeSidecar) -> Plan:
    await sidecar.lead()
    snapshot, _ = await sidecar.observer.snapshot()
    return plan(PlanInput(snapshot=snapshot, params=sidecar.cycle.params)).plan


def test_a_plan_agrees_with_itself() -> None:
    """Equal plans have neither disagreement nor regret."""
    live = planned("avg")
    assert live.moves
    comparison = compare_plans(live, live)
    assert (comparison.disagreement, comparison.agreement, comparison.regret) == (0.0, "both_move", 0.0)


def test_plans_that_differ() -> None:
    """The comparison has shares of moves, the strategy that acts alone, and the better balance."""
    live = planned("avg")
    rest = replace(live, moves=(), loads=tuple(replace(row, score_after=row.score_before) for row in live.loads))
    assert compare_plans(live, rest).agreement == "only_live" and compare_plans(rest, live).agreement == "only_shadow"
    assert compare_plans(rest, rest).agreement == "both_rest" and compare_plans(rest, rest).disagreement == 0.0
    assert compare_plans(live, rest).disagreement == 1.0
    assert compare_plans(rest, live).regret > 0 > compare_plans(live, rest).regret
    assert len(live.moves) > 1
    fewer = replace(live, moves=live.moves[1:])
    assert compare_plans(live, fewer).disagreement == pytest.approx(1 / len(live.moves))


def test_drains_are_no_disagreement() -> None:
    """An operator requests drains, for every strategy."""
    live = planned("avg")
    drains = replace(live, moves=tuple(replace(move, rule=DRAIN) for move in live.moves))
    assert compare_plans(drains, drains).agreement == "both_rest" and compare_plans(drains, drains).moves == 0


async def test_a_shadow_of_avg_shedder_has_a_placement_of_its_own() -> None:
    """With `compat` other shedders use Pulsar's default placement, because that of AvgShedder belongs to AvgShedder."""
    params = replace(EAGER, strategy="avg", placement="avg", compat="4.2")
    sidecar = Playing(FakeCluster(clock=WallClock()), "threshold", params=params)
    await sidecar.lead()
    await sidecar.cycle.turn()
    await sidecar.play()
    alone = replace(params, strategy="threshold", placement="least_long_term_message_rate")
    expected = plan(replace(sidecar.inputs[0], params=alone, memory=StrategyMemory())).plan
    assert sidecar.shadow_strategies.news()["strategies"]["threshold"]["plan_hash"] == expected.hash


async def test_a_plugin_that_fails_costs_its_own_turn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next strategies plan, and the task that counts errors gets the exception."""

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


async def test_they_plan_after_the_cycle_and_are_in_the_next_journal_line() -> None:
    """Metrics change immediately, the journal with the next cycle. The live strategy is not its own shadow."""
    sidecar = Playing(FakeCluster(clock=WallClock()), "avg", "threshold", "overload")
    await sidecar.lead()
    report = await sidecar.cycle.turn()
    assert "shadow" not in sidecar.line()
    await sidecar.play()
    agreement = sidecar.metric("shadow_cycles_total")
    assert 'strategy="threshold"' in agreement and 'strategy="overload"' in agreement and '"avg"' not in agreement
    await sidecar.cycle.turn()
    shadow = sidecar.line()["shadow"]
    assert shadow["cycle"] == report.cycle and set(shadow["strategies"]) == {"threshold", "overload"}
    expected = plan(
        replace(sidecar.inputs[0], params=replace(EAGER, strategy="threshold"), memory=type(sidecar.inputs[0].memory)())
    ).plan
    assert shadow["strategies"]["threshold"]["plan_hash"] == expected.hash
    assert shadow["strategies"]["threshold"]["regret"] == compare_plans(sidecar.results[0].plan, expected).regret
    await sidecar.cycle.turn()
    assert "shadow" not in sidecar.line()


async def test_nothing_of_it_touches_the_live_plan() -> None:
    """Plans are the same with and without shadows, and only moves of the live strategy are made."""
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
    """A strategy that needs two fresh reports acts in the second cycle."""
    context = Parameters(move_price=50)
    sidecar = Playing(FakeCluster(clock=WallClock()), "avg", params=replace(context, strategy="overload"))
    await sidecar.lead()
    moves = []
    for _ in range(3):
        await sidecar.cycle.turn()
        await sidecar.play()
        moves.append(sidecar.shadow_strategies.news()["strategies"]["avg"]["moves"])
        sidecar.clock.offset += 60
        sidecar.cluster.publish()
    assert moves[0] == 0 and moves[1] > 0


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
