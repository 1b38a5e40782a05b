"""Measures of a simulated run.

Loads are the true loads of the virtual cluster, not the reported loads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bundlekeel.model.load import Floats
from bundlekeel.model.snapshot import Bools
from bundlekeel.simulator.cluster import SimulatedMove, SimulatedSplit

if TYPE_CHECKING:
    pass


OVER = 0.85
EMPTY = 0.1
AN_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasures:
    """The measures of one run. max/mean is the highest load of a broker divided by the mean load.

    max_over_mean: max/mean at the end. mean_max_over_mean: time mean of max/mean. std: time mean of the standard
    deviation of the loads, in percent of a broker. over_minutes: minutes with any broker above 85 %. empty_minutes:
    minutes with any running broker below a tenth of the mean. moves: number of the balancer's moves. unloads: bundles
    that left their broker for any reason, splits and restarts included. moved_load: load of the balancer's moves; 1 is
    the capacity of one broker. moved_twice: bundles that the balancer moved again within an hour. thrash_percent:
    changes of loads beyond their trend, per broker, in percent of the mean. client_seconds: clients times seconds
    without service for any reason. balancer_client_seconds: the part of client_seconds that the balancer caused.
    balanced_minute: minute from which max/mean stays within the expected limit (default 1.15) and no broker is empty;
    None: never.
    """

    max_over_mean: float
    mean_max_over_mean: float
    std: float
    spread: float
    highest: float
    over_minutes: float
    empty_minutes: float
    moves: int
    unloads: int
    splits: int
    moved_load: float
    moved_twice: int
    thrash_percent: float
    client_seconds: float
    balancer_client_seconds: float
    balanced_minute: float | None
    last_move_minute: float | None


@dataclass(slots=True)
class Curves:
    """Samples of all brokers' loads, one per cycle, from which the measures are computed.

    `takes`: whether a broker accepts bundles. `foreign`: usage by other processes on the broker's host, which `loads`
    does not contain.
    """

    times: list[float] = field(default_factory=list)
    loads: list[Floats] = field(default_factory=list)
    foreign: list[Floats] = field(default_factory=list)
    takes: list[Bools] = field(default_factory=list)

    def add(self, now: float, load: Floats, foreign: Floats, takes: Bools) -> None:
        """Add one sample."""
        self.times.append(now)
        self.loads.append(load)
        self.foreign.append(foreign.copy())
        self.takes.append(takes.copy())

    def table(self) -> tuple[Floats, Floats, Bools]:
        """Return times (n), each broker's load plus foreign usage (n, brokers), and whether it accepts bundles."""
        width = len(self.loads[-1])
        used = np.zeros((len(self.times), width))
        takes = np.zeros((len(self.times), width), dtype=bool)
        for row, (load, foreign, there) in enumerate(zip(self.loads, self.foreign, self.takes, strict=True)):
            used[row, : len(load)] = load + foreign
            takes[row, : len(there)] = there
        return np.array(self.times), used, takes


def imbalance(used: Floats, takes: Bools) -> Floats:
    """Return max/mean of the brokers that accept bundles, one value per sample; 1 without load."""
    there = np.where(takes, used, np.nan)
    mean = np.nanmean(there, axis=1)
    largest = np.nanmax(there, axis=1)
    ratio: Floats = np.divide(largest, mean, out=np.ones_like(mean), where=mean > 0)
    return ratio


def balanced_since(times: Floats, values: Floats, limit: float) -> float | None:
    """Return the time (seconds) from which the values stay at or below the limit; None: the last value is above it."""
    above = np.flatnonzero(values > limit + 1e-9)
    if len(above) == 0:
        return 0.0
    return None if above[-1] == len(times) - 1 else float(times[above[-1] + 1])


def thrash(used: Floats, takes: Bools) -> float:
    """Return by how much loads went up and down beyond their trend, in percent, as the mean over the brokers.

    Per broker: (sum of |changes| - |last - first|) / mean load, over the samples in which it accepts bundles.
    """
    variations = []
    for column, there in zip(used.T, takes.T, strict=True):
        values = column[there]
        if len(values) > 1 and values.mean() > 0:
            variations.append(float((np.abs(np.diff(values)).sum() - abs(values[-1] - values[0])) / values.mean()))
    return 100 * float(np.mean(variations)) if variations else 0.0


def moved_twice(moves: Sequence[SimulatedMove]) -> int:
    """Return the number of bundles that were moved a second time within an hour."""
    last: dict[str, float] = {}
    twice: Counter[str] = Counter()
    for move in moves:
        if move.at - last.get(move.bundle, -np.inf) < AN_HOUR:
            twice[move.bundle] += 1
        last[move.bundle] = move.at
    return len(twice)


def measure(
    curves: Curves, moves: Sequence[SimulatedMove], splits: Sequence[SimulatedSplit], limit: float = 1.15
) -> RunMeasures:
    """Return the measures of a run. `limit`: highest max/mean that counts as balanced."""
    times, used, takes = curves.table()
    ratio = imbalance(used, takes)
    there = np.where(takes, used, np.nan)
    mean = np.nanmean(there, axis=1, keepdims=True)
    step = float(times[1] - times[0]) / 60 if len(times) > 1 else 0.0
    own = [move for move in moves if move.by == "balancer"]
    # Empty brokers are checked separately: with ten brokers, max/mean can be low although one broker is empty.
    empty = (takes & (used < EMPTY * mean)).any(axis=1)
    since = balanced_since(times, np.where(empty, np.inf, ratio), limit)
    return RunMeasures(
        max_over_mean=float(ratio[-1]),
        mean_max_over_mean=float(ratio.mean()),
        std=100 * float(np.nanstd(there, axis=1).mean()),
        spread=100 * float(np.nanmax(there[-1]) - np.nanmin(there[-1])),
        highest=100 * float(np.nanmax(there)),
        over_minutes=step * int((np.nanmax(there, axis=1) > OVER).sum()),
        empty_minutes=step * int(empty.sum()),
        moves=len(own),
        unloads=len(moves),
        splits=len(splits),
        moved_load=sum(move.load for move in own),
        moved_twice=moved_twice(own),
        thrash_percent=thrash(used, takes),
        client_seconds=sum(move.clients * move.gap for move in moves),
        balancer_client_seconds=sum(move.clients * move.gap for move in own),
        balanced_minute=None if since is None else since / 60,
        last_move_minute=own[-1].at / 60 if own else None,
    )
