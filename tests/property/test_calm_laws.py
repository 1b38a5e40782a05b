"""Laws of the decision rule: jitter moves nothing after its first period (PIP-364), and a lasting step is balanced."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.memory import StrategyMemory
from tests.support.builders import NOW_MS, broker, bundle_name, report, snapshot

BROKERS, BUNDLES = 4, 12


@dataclass
class World:
    """Four brokers with bundles of equal loads, read every `interval` seconds; moves land before the next reading."""

    interval: int
    owners: list[int] = field(default_factory=lambda: [row // BUNDLES for row in range(BROKERS * BUNDLES)])
    memory: StrategyMemory = field(default_factory=StrategyMemory)
    recent: dict[str, RecentMove] = field(default_factory=dict)
    moves: list[int] = field(default_factory=list)

    def read(self, second: int, factor: float) -> list[float]:
        """One reading, in which the bundles that the first broker had at first carry `factor` times their load."""
        loads = [0.4 / BUNDLES * (factor if row < BUNDLES else 1.0) for row in range(len(self.owners))]
        now = NOW_MS + 1000 * second
        reports = [
            replace(
                report(
                    broker(place),
                    {bundle_name(row): loads[row] for row, owner in enumerate(self.owners) if owner == place},
                    cpu=0.05 + sum(loads[row] for row, owner in enumerate(self.owners) if owner == place),
                    last_update=now,
                ),
                interval_ms=1000 * self.interval,
            )
            for place in range(BROKERS)
        ]
        result = plan(
            PlanInput(
                snapshot=snapshot(reports, wall_ms=now),
                params=Parameters(),
                memory=self.memory,
                guard=GuardState(recent=self.recent),
            )
        )
        self.memory = result.memory
        for move in result.plan.moves:
            self.owners[int(move.bundle.rpartition("/")[2][2:6], 16)] = int(move.target[1:5])
            self.recent[move.bundle] = RecentMove(at_ms=now, source=move.source)
            self.moves.append(second)
        return [
            0.05 + sum(loads[row] for row, owner in enumerate(self.owners) if owner == place)
            for place in range(BROKERS)
        ]


@settings(max_examples=12, deadline=None)
@given(half=st.integers(2, 40), amplitude=st.floats(0.1, 0.5), interval=st.sampled_from([5, 15]))
def test_a_square_wave_moves_nothing_after_its_first_period(half: int, amplitude: float, interval: int) -> None:
    """Rule (PIP-364): one of four brokers swings by up to 50 %, with half periods of 10 s to 10 min."""
    world = World(interval=interval)
    for reading in range(1, 6 * half + 60 // interval + 1):
        up = reading > 60 // interval and (reading - 60 // interval - 1) // half % 2 == 0
        before = reading <= 60 // interval
        world.read(reading * interval, 1.0 if before else 1 + amplitude if up else 1 - amplitude)
    first = 60 + 2 * half * interval
    assert [second for second in world.moves if second > first] == []


@settings(max_examples=12, deadline=None)
@given(factor=st.floats(1.5, 2.2), interval=st.sampled_from([3, 5, 15]))
def test_a_lasting_step_is_balanced(factor: float, interval: int) -> None:
    """Rule: a load that stays is balanced within minutes, at any interval of readings."""
    world, loads = World(interval=interval), [0.0]
    for reading in range(1, 900 // interval):
        loads = world.read(reading * interval, 1.0 if reading * interval <= 60 else factor)
    assert max(loads) <= 1.2 * sum(loads) / len(loads)
    assert world.moves and world.moves[0] <= 60 + 300
