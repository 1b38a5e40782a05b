"""Small generated histories for back-tests: as arrays, as files of the real adapters, and with other owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bundlekeel.model.load import CPU, Ints
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures, CandidateStep, RecordedTraffic, backtest
from bundlekeel.recalibration.history.record import Frame, HistoryRecord
from bundlekeel.recalibration.history.replay import rebuilt
from dev.history_model import IDLE, World, dense
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


def hours(world: World, begin: float, end: float) -> RecordedTraffic:
    """Return the hours from `begin` to `end` of a generated history as arrays."""
    a_period = world.period_seconds / 3600
    return dense(world, round(begin / a_period), round(end / a_period))


def course(traffic: RecordedTraffic, candidate: Candidate) -> list[CandidateStep]:
    """Return every step of one candidate."""
    steps: list[CandidateStep] = []
    backtest(traffic, [candidate], observe=lambda _, step: steps.append(step))
    return steps


def whole(traffic: RecordedTraffic, candidate: Candidate, warm: int = 0) -> CandidateMeasures:
    """Return the measures of one candidate over the whole history. `warm`: number of periods that only warm up."""
    return CandidateMeasures.sum(item.measures for item in backtest(traffic, [candidate], warm=warm))


def owned(traffic: RecordedTraffic, owner: Ints) -> RecordedTraffic:
    """Return `traffic` with another recorded ownership (periods, bundles) and with brokers that report accordingly.
    Brokers that never own a bundle stay unchanged.
    """
    periods, brokers = traffic.present.shape
    carried = np.zeros((periods, brokers + 1, 4))
    topics = np.zeros((periods, brokers + 1))
    for period in range(periods):
        np.add.at(carried[period], owner[period], traffic.rates[period])
        counts = traffic.counts[period if len(traffic.counts) > 1 else 0]
        np.add.at(topics[period], owner[period], counts[:, 0])
    carried = np.round(carried[:, :brokers], 3).astype(np.float64)
    topics = topics[:, :brokers]
    usage = np.einsum("brk,tbk->tbr", traffic.per_unit, carried)
    usage[:, :, CPU] += IDLE * traffic.limit[0, :, CPU]
    usage[:, :, 4:] = 0.0
    rates = np.where((owner >= 0)[:, :, None], traffic.rates, 0.0)
    return replace(
        traffic,
        owner=owner.astype(np.int32),
        rates=rates,
        carried=carried,
        usage=np.round(usage, 3),
        topics=topics.astype(np.int64),
    )
