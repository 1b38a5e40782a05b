"""What a run is judged by: its measures, and what its scenario expects.

Loads are the truth of the virtual cluster, not what brokers report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bundlekeel.core.model.load import Floats
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.sim.bundles import GONE
from bundlekeel.sim.cluster import SimulatedMove, SimulatedSplit
from bundlekeel.sim.scenario import Expect, Filled

if TYPE_CHECKING:
    from bundlekeel.sim.run import Run


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


# What a scenario expects, judged on a finished run. Each expectation is one finding with its figures.


EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationResult:
    """One expectation: its name, whether it held, and in words what was seen against what was wanted."""

    name: str
    held: bool
    detail: str


def judge(run: Run, *, still: float, direct: int) -> tuple[ExpectationResult, ...]:
    """All findings. `still`: mean max/mean without a balancer; `direct`: moves the plan needs on true reports."""
    expect = run.scenario.expect
    return (
        *_limits(run, expect),
        *_in_time(run, expect),
        *_codes(run, expect),
        *_moves(run, expect, direct),
        *_others(run, expect, still),
    )


def _limits(run: Run, expect: Expect) -> Iterator[ExpectationResult]:
    found = run.measures
    most: tuple[tuple[str, float, float | None], ...] = (
        ("balanced", found.max_over_mean, expect.balanced),
        ("spread", found.spread, expect.spread),
        ("most_moves", found.moves, expect.most_moves),
        ("most_splits", found.splits, expect.most_splits),
        ("moved_twice", found.moved_twice, expect.moved_twice),
        ("most_over_minutes", found.over_minutes, expect.most_over_minutes),
        ("most_empty_minutes", found.empty_minutes, expect.most_empty_minutes),
        ("most_client_seconds", found.client_seconds, expect.most_client_seconds),
        ("most_thrash_percent", found.thrash_percent, expect.most_thrash_percent),
    )
    for name, value, limit in most:
        if limit is not None:
            yield ExpectationResult(
                name=name, held=value <= limit + EPSILON, detail=f"{value:.4g}, expected at most {limit:g}"
            )
    for name, value, limit in (
        ("fewest_moves", found.moves, expect.fewest_moves),
        ("fewest_splits", found.splits, expect.fewest_splits),
    ):
        if limit is not None:
            yield ExpectationResult(name=name, held=value >= limit, detail=f"{value}, expected at least {limit:g}")
    if expect.plan_seconds is not None and run.books.timer is not None:
        slowest = run.books.slowest
        detail = f"slowest plan {slowest:.3f} s, at most {expect.plan_seconds:g}"
        yield ExpectationResult(name="plan_seconds", held=slowest <= expect.plan_seconds, detail=detail)


def _in_time(run: Run, expect: Expect) -> Iterator[ExpectationResult]:
    found = run.measures
    if expect.balanced_by is not None:
        since = found.balanced_minute
        detail = f"since minute {since:.1f}" if since is not None else "never"
        held = since is not None and since <= expect.balanced_by + EPSILON
        yield ExpectationResult(
            name="balanced_by", held=held, detail=f"{detail}, wanted by minute {expect.balanced_by:g}"
        )
    if expect.steady_after is not None:
        last = found.last_move_minute
        detail = "no move" if last is None else f"last move at minute {last:.1f}"
        held = last is None or last <= expect.steady_after + EPSILON
        yield ExpectationResult(
            name="steady_after", held=held, detail=f"{detail}, none wanted after {expect.steady_after:g}"
        )
    own = [move.at / 60 for move in run.cluster.moved if move.by == "balancer"]
    for start, end in expect.quiet:
        inside = sum(start <= at < end for at in own)
        detail = f"{inside} moves between minutes {start:g} and {end:g}"
        yield ExpectationResult(name="quiet", held=inside == 0, detail=detail)
    times, used, takes = run.curves.table()
    if expect.never_over is not None:
        late = times >= 60 * expect.over_from
        highest = 100 * float(np.where(takes, used, 0.0)[late].max())
        detail = f"highest {highest:.1f} % from minute {expect.over_from:g}, at most {expect.never_over:g} %"
        yield ExpectationResult(name="never_over", held=highest <= expect.never_over + EPSILON, detail=detail)
    for item in expect.filled:
        yield _filled(run, item)


def _filled(run: Run, item: Filled) -> ExpectationResult:
    times, used, takes = run.curves.table()
    late = times >= 60 * item.by
    mean = np.nanmean(np.where(takes, used, np.nan), axis=1)
    share = float((used[late, item.broker] / mean[late]).min())
    detail = f"broker {item.broker} has at least {share:.2f} of the mean from minute {item.by:g}, wanted {item.share:g}"
    return ExpectationResult(name="filled", held=share >= item.share - EPSILON, detail=detail)


def _codes(run: Run, expect: Expect) -> Iterator[ExpectationResult]:
    for name, wanted, seen in (
        ("verdicts", expect.verdicts, run.books.verdicts),
        ("refusals", expect.refusals, run.books.refusals),
    ):
        for code in wanted:
            yield ExpectationResult(name=name, held=seen[code] > 0, detail=f"{code} seen {seen[code]} times")
    if expect.verdicts_any:
        counts = {code: run.books.verdicts[code] for code in expect.verdicts_any}
        detail = ", ".join(f"{code} {count}" for code, count in counts.items())
        yield ExpectationResult(name="verdicts_any", held=any(counts.values()), detail=detail)


def _moves(run: Run, expect: Expect, direct: int) -> Iterator[ExpectationResult]:
    if expect.gain:
        bad = [move for _, move in run.books.moves if not move.target_after < move.source_before]
        yield ExpectationResult(
            name="gain", held=not bad, detail=f"{len(bad)} of {len(run.books.moves)} moves gained nothing"
        )
    if expect.within_direct is not None:
        moves = run.measures.moves
        detail = f"{moves} moves, {direct} on true reports, at most {expect.within_direct} more"
        yield ExpectationResult(name="within_direct", held=moves <= direct + expect.within_direct, detail=detail)
    own = [move for move in run.cluster.moved if move.by == "balancer"]
    if expect.untouched:
        wrong = sum(move.target in expect.untouched for move in own)
        brokers = ", ".join(map(str, expect.untouched))
        yield ExpectationResult(name="untouched", held=wrong == 0, detail=f"{wrong} moves to brokers {brokers}")
    for tenant in expect.unmoved:
        place = [item.name for item in run.scenario.tenants].index(tenant)
        bundles = run.cluster.bundles
        wrong = sum(int(bundles.tenant[bundles.index[move.bundle]]) == place for move in own)
        yield ExpectationResult(name="unmoved", held=wrong == 0, detail=f"{wrong} moves of bundles of {tenant}")


def _others(run: Run, expect: Expect, still: float) -> Iterator[ExpectationResult]:
    if expect.no_worse_than_still:
        mean = run.measures.mean_max_over_mean
        detail = f"mean max/mean {mean:.3f}, without a balancer {still:.3f}"
        yield ExpectationResult(name="no_worse_than_still", held=mean <= still + 1e-3, detail=detail)
    # Always: every bundle is somewhere in the end, unless it was divided or has just left.
    owner = run.cluster.bundles.owner
    lost = int(((owner < 0) & (owner != GONE)).sum()) - run.cluster.under_way()
    yield ExpectationResult(name="nothing_lost", held=lost == 0, detail=f"{lost} bundles without an owner at the end")
