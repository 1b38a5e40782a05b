"""What a run is judged by: its measures, and what its scenario expects.

Loads are the truth of the virtual cluster, not what brokers report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bundlekeel.core.model.load import Floats
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.sim.cluster import SimulatedMove, SimulatedSplit

if TYPE_CHECKING:
    pass


OVER = 0.85
EMPTY = 0.1
AN_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasures:
    """One run in figures.

    max_over_mean: at the end. mean_max_over_mean: over time. std: of the loads, over time, in points of a broker.
    over_minutes: any broker above 85 %. empty_minutes: any living broker below a tenth of the mean. moves: by the
    balancer. unloads: bundles that left their broker, for any cause (splits and restarts too). moved_load: what
    the balancer's moves carried, in brokers' worth. moved_twice: bundles it moved again within an hour.
    thrash_percent: how far loads went up and down beyond their trend, per broker, in percent of the mean.
    client_seconds: clients times seconds without service, for any cause; of which balancer_client_seconds.
    balanced_minute: since when max/mean stays at or below the limit asked for (1.15 if none) and no broker is empty;
    None if it does not.
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
    """What was sampled every cycle: loads (with and without what others take), and who was there.

    `foreign` columns count into the usage a broker suffers, not into what it carries.
    """

    times: list[float] = field(default_factory=list)
    loads: list[Floats] = field(default_factory=list)
    foreign: list[Floats] = field(default_factory=list)
    takes: list[Bools] = field(default_factory=list)

    def add(self, now: float, load: Floats, foreign: Floats, takes: Bools) -> None:
        """One sample."""
        self.times.append(now)
        self.loads.append(load)
        self.foreign.append(foreign.copy())
        self.takes.append(takes.copy())

    def table(self) -> tuple[Floats, Floats, Bools]:
        """Times (n), what each broker has to do, foreign work included (n, brokers), and whether it takes part."""
        width = len(self.loads[-1])
        used = np.zeros((len(self.times), width))
        takes = np.zeros((len(self.times), width), dtype=bool)
        for row, (load, foreign, there) in enumerate(zip(self.loads, self.foreign, self.takes, strict=True)):
            used[row, : len(load)] = load + foreign
            takes[row, : len(there)] = there
        return np.array(self.times), used, takes


def imbalance(used: Floats, takes: Bools) -> Floats:
    """max/mean over the brokers that take part, one value a sample; 1 without load."""
    there = np.where(takes, used, np.nan)
    mean = np.nanmean(there, axis=1)
    largest = np.nanmax(there, axis=1)
    found: Floats = np.divide(largest, mean, out=np.ones_like(mean), where=mean > 0)
    return found


def balanced_since(times: Floats, values: Floats, limit: float) -> float | None:
    """Seconds from when on the values stay at or below the limit; None when they do not."""
    above = np.flatnonzero(values > limit + 1e-9)
    if len(above) == 0:
        return 0.0
    return None if above[-1] == len(times) - 1 else float(times[above[-1] + 1])


def thrash(used: Floats, takes: Bools) -> float:
    """Trend-discounted total variation: sum of |changes| less |last - first|, over the mean; mean of the brokers."""
    found = []
    for column, there in zip(used.T, takes.T, strict=True):
        values = column[there]
        if len(values) > 1 and values.mean() > 0:
            found.append(float((np.abs(np.diff(values)).sum() - abs(values[-1] - values[0])) / values.mean()))
    return 100 * float(np.mean(found)) if found else 0.0


def moved_twice(moves: Sequence[SimulatedMove]) -> int:
    """Bundles moved again within an hour."""
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
    """The figures of a run."""
    times, used, takes = curves.table()
    ratio = imbalance(used, takes)
    there = np.where(takes, used, np.nan)
    mean = np.nanmean(there, axis=1, keepdims=True)
    step = float(times[1] - times[0]) / 60 if len(times) > 1 else 0.0
    own = [move for move in moves if move.by == "balancer"]
    # Among ten brokers one may be empty while the fullest is near the mean.
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
