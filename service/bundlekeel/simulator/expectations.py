"""Compare a finished run with the expectations of its scenario."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bundlekeel.simulator.bundles import GONE
from bundlekeel.simulator.scenario import Expect, Filled

if TYPE_CHECKING:
    from bundlekeel.simulator.run import Run


EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationResult:
    """One expectation: its name, whether the run met it, and the measured and expected values in words."""

    name: str
    held: bool
    detail: str


def judge(run: Run, *, still: float, direct: int) -> tuple[ExpectationResult, ...]:
    """Return the result of each expectation of the run's scenario.

    `still`: time mean of max/mean (highest load of a broker / mean load) of the same scenario without a balancer.
    `direct`: number of moves in one plan with exact reports and without limits on moves.
    """
    expect = run.scenario.expect
    return (
        *_limits(run, expect),
        *_in_time(run, expect),
        *_codes(run, expect),
        *_moves(run, expect, direct),
        *_others(run, expect, still),
    )


def _limits(run: Run, expect: Expect) -> Iterator[ExpectationResult]:
    measures = run.measures
    most: tuple[tuple[str, float, float | None], ...] = (
        ("balanced", measures.max_over_mean, expect.balanced),
        ("spread", measures.spread, expect.spread),
        ("most_moves", measures.moves, expect.most_moves),
        ("most_splits", measures.splits, expect.most_splits),
        ("moved_twice", measures.moved_twice, expect.moved_twice),
        ("most_over_minutes", measures.over_minutes, expect.most_over_minutes),
        ("most_empty_minutes", measures.empty_minutes, expect.most_empty_minutes),
        ("most_client_seconds", measures.client_seconds, expect.most_client_seconds),
        ("most_thrash_percent", measures.thrash_percent, expect.most_thrash_percent),
    )
    for name, value, limit in most:
        if limit is not None:
            yield ExpectationResult(
                name=name, held=value <= limit + EPSILON, detail=f"{value:.4g}, expected at most {limit:g}"
            )
    for name, value, limit in (
        ("fewest_moves", measures.moves, expect.fewest_moves),
        ("fewest_splits", measures.splits, expect.fewest_splits),
    ):
        if limit is not None:
            yield ExpectationResult(name=name, held=value >= limit, detail=f"{value}, expected at least {limit:g}")
    if expect.plan_seconds is not None and run.books.timer is not None:
        slowest = run.books.slowest
        detail = f"slowest plan {slowest:.3f} s, at most {expect.plan_seconds:g}"
        yield ExpectationResult(name="plan_seconds", held=slowest <= expect.plan_seconds, detail=detail)


def _in_time(run: Run, expect: Expect) -> Iterator[ExpectationResult]:
    measures = run.measures
    if expect.balanced_by is not None:
        since = measures.balanced_minute
        detail = f"since minute {since:.1f}" if since is not None else "never"
        met = since is not None and since <= expect.balanced_by + EPSILON
        yield ExpectationResult(
            name="balanced_by", held=met, detail=f"{detail}, expected by minute {expect.balanced_by:g}"
        )
    if expect.steady_after is not None:
        last = measures.last_move_minute
        detail = "no move" if last is None else f"last move at minute {last:.1f}"
        met = last is None or last <= expect.steady_after + EPSILON
        yield ExpectationResult(
            name="steady_after", held=met, detail=f"{detail}, none expected after {expect.steady_after:g}"
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
    detail = (
        f"broker {item.broker} has at least {share:.2f} of the mean from minute {item.by:g}, expected {item.share:g}"
    )
    return ExpectationResult(name="filled", held=share >= item.share - EPSILON, detail=detail)


def _codes(run: Run, expect: Expect) -> Iterator[ExpectationResult]:
    for name, expected, occurrences in (
        ("verdicts", expect.verdicts, run.books.verdicts),
        ("refusals", expect.refusals, run.books.refusals),
    ):
        for code in expected:
            yield ExpectationResult(
                name=name, held=occurrences[code] > 0, detail=f"{code} occurred {occurrences[code]} times"
            )
    if expect.verdicts_any:
        counts = {code: run.books.verdicts[code] for code in expect.verdicts_any}
        detail = ", ".join(f"{code} {count}" for code, count in counts.items())
        yield ExpectationResult(name="verdicts_any", held=any(counts.values()), detail=detail)


def _moves(run: Run, expect: Expect, direct: int) -> Iterator[ExpectationResult]:
    if expect.gain:
        bad = [move for _, move in run.books.moves if not move.target_after < move.source_before]
        yield ExpectationResult(
            name="gain", held=not bad, detail=f"{len(bad)} of {len(run.books.moves)} moves had no benefit"
        )
    if expect.within_direct is not None:
        moves = run.measures.moves
        detail = f"{moves} moves, {direct} on exact reports, at most {expect.within_direct} more"
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
    # This is checked for every scenario: at the end, a bundle has an owner unless it was split or is in transit.
    owner = run.cluster.bundles.owner
    lost = int(((owner < 0) & (owner != GONE)).sum()) - run.cluster.under_way()
    yield ExpectationResult(name="nothing_lost", held=lost == 0, detail=f"{lost} bundles without an owner at the end")
