"""Small generated histories for back-tests: as arrays, and as files of the real adapters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures, CandidateStep, DayMeasures, backtest
from bundlekeel.recalibration.history.record import Frame, HistoryRecord
from bundlekeel.recalibration.history.replay import rebuilt
from dev.history_model import GeneratedTraffic, World, dense, inputs_of
from dev.history_worlds import write

# Unsteady traffic and a snapshot every two minutes, so that the default strategy moves and splits bundles.
BUSY = World(days=1, brokers=5, bundles=60, period_seconds=120, noise=0.25, spiky=1, seed=4)
PRESENT = Candidate(name="present")
UNSPLIT = Candidate(name="unsplit", changes={"split_enabled": False})
EAGER_SPLITS = Candidate(name="splits", changes={"split_hot_share": 0.1, "split_hit_count": 0})
STILL = Candidate(name="still", changes={"max_moves_per_cycle": 0, "split_enabled": False})


@lru_cache(maxsize=4)
def history(world: World) -> tuple[HistoryRecord, ...]:
    """Return the records of the world's own balancer, written to files and read again."""
    with TemporaryDirectory() as folder:
        store = write(world, Path(folder))
        return tuple(record for file in store.files() for record in store.records(file))


def frames(records: Sequence[HistoryRecord]) -> list[Frame]:
    """Return the frames of `records`. Every frame can be rebuilt."""
    frames_rebuilt = [item.frame for item in rebuilt(records)]
    return [frame for frame in frames_rebuilt if frame is not None]


def hours(world: World, begin: float, end: float) -> GeneratedTraffic:
    """Return the hours from `begin` to `end` of a generated history as arrays."""
    a_period = world.period_seconds / 3600
    return dense(world, round(begin / a_period), round(end / a_period))


def measured(traffic: GeneratedTraffic, candidates: Sequence[Candidate], **options: Any) -> list[DayMeasures]:
    """Back-test these candidates on generated traffic."""
    return backtest(inputs_of(traffic), candidates, traffic.costs, **options)


def course(traffic: GeneratedTraffic, candidate: Candidate) -> list[CandidateStep]:
    """Return every step of one candidate."""
    steps: list[CandidateStep] = []
    measured(traffic, [candidate], observe=lambda _, step: steps.append(step))
    return steps


def whole(traffic: GeneratedTraffic, candidate: Candidate) -> CandidateMeasures:
    """Return the measures of one candidate over the whole history."""
    return CandidateMeasures.sum(item.measures for item in measured(traffic, [candidate]))
