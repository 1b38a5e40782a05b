"""Scenarios of one broker whose load swings or steps, and the moves that are made in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bundlekeel.simulator.balancers import Bundlekeel, RunBooks
from bundlekeel.simulator.cluster import SimulatedMove
from bundlekeel.simulator.run import DEFAULT, Simulation
from bundlekeel.simulator.scenario import BrokerGroup, Event, Scenario, ScenarioSettings, Tenant
from bundlekeel.simulator.virtual_time import run_virtually


def play(scenario: Scenario, seed: int, *, counters: bool, books: RunBooks | None = None) -> list[SimulatedMove]:
    """Run a scenario and return the moves. `books`: used instead of the simulation's own."""
    simulation = Simulation(scenario, replace(DEFAULT, source="counters" if counters else "reports"), seed)
    if books is not None:
        assert isinstance(simulation.balancer, Bundlekeel)
        simulation.balancer.books = books
    run_virtually(simulation.run())
    return simulation.cluster.moved


def square_wave(half: float, low: float, high: float, *, usage: float, minutes: float) -> Scenario:
    """One of four brokers has `high` and `low` times its usual load, `half` seconds each, from the third minute on."""
    turns = range(int((60 * minutes - 180) / half))
    scales = [(180 + half * turn, low / high if turn % 2 else high / low) for turn in turns]
    return _scaled(f"wave-{half:g}", usage, minutes, [(180, high), *scales[1:]])


def lasting_step(factor: float, at: float, *, usage: float) -> Scenario:
    """One of four brokers has `factor` times its usual load from second `at` on."""
    return _scaled("step", usage, 4.0, [(at, factor)])


def _scaled(name: str, usage: float, minutes: float, scales: Sequence[tuple[float, float]]) -> Scenario:
    own = usage / 4
    return Scenario(
        name=name,
        title=name,
        minutes=minutes,
        brokers=(BrokerGroup(count=4),),
        tenants=(
            Tenant(name="t/wave", bundles=12, topics=3, usage=own, zipf=0.7, owners=(0,)),
            Tenant(name="t/even", bundles=36, topics=3, usage=3 * own, zipf=0.7, owners=(1, 2, 3), start="balanced"),
        ),
        settings=ScenarioSettings(tick=1.0),
        events=tuple(Event(at=at / 60, do="scale", tenant="t/wave", factor=factor) for at, factor in scales),
    )
