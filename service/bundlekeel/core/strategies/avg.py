"""`avg`: pairs the most with the least loaded broker and moves bundles straight to the partner (PIP-364, AvgShedder).

Corrected against Pulsar's class (docs/reference/strategies.md lists each difference):
* hits advance only with fresh readings (reports or counters) of both brokers, or after an interval of silence
  ("unchanged"); they belong to a broker's side (hot or cold) and lapse when the difference does;
* a difference counts as high in points, and also when the hot broker has a multiple of the mean score, idle usage
  left out: everything on one of many half-idle brokers is no small difference;
* the low threshold scales with the mean score, so that a half-full cluster is balanced as tightly as a full one;
* a plan goes on until the predicted difference is closed, each bundle moving once, straight to where it stays;
* the middle broker is never paired with itself, idle bundles are never chosen, a destination is used once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import Ints
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Refusal, Verdict
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.model.text_format import numbered
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.planning.memory import Hits, StrategyMemory
from bundlekeel.core.strategies.common import (
    EPSILON,
    Candidates,
    Context,
    Decision,
    TriedTarget,
    best_fit,
    candidates,
    measured_since,
    refreshed_seconds,
    refuse_all,
    refuse_rest,
    refuse_unfit,
    stuck,
    traffic_of,
)
from bundlekeel.core.strategies.swap import Swap, make_room, swap

# When a bundle fits on the coldest broker in no way, these many next ones are tried: they may be larger.
TARGETS_TRIED = 4
# A broker that has looked at itself (`report_min_interval_seconds`) needs this long to tell.
TELLING_SECONDS = 1.0


def shed(context: Context) -> Decision:
    """Count hits per pair, and when a pair's count is full, move until the cluster is even."""
    low, high = thresholds(context)
    hits = _count_hits(context, low, high)
    active = _active(context, hits, low)
    brokers = _broker_verdicts(context, hits, low, active)
    acted = {broker for broker in context.memory.acted if broker in context.booked or broker in hits}
    if not active:
        waiting = [item for item in brokers if item.code is Code.HIT_COUNT]
        verdict = _idle_verdict(context, waiting, low)
        return Decision(verdict=verdict, memory=StrategyMemory(hits=hits, acted=tuple(sorted(acted))), brokers=brokers)
    refusals = _move(context, active, low)
    verdict = _acting_verdict(context, active, low, refusals)
    moves, ids = context.draft.moves, context.snapshot.brokers.ids
    # Who acted counts from zero again; who only wanted to keeps its count and tries again next cycle.
    now = {broker for move in moves for broker in (move.source, move.target)}
    memory = StrategyMemory(
        hits={broker: hit for broker, hit in hits.items() if broker not in now},
        active=tuple(ids[row] for row in sorted(active)) if moves else (),
        acted=tuple(sorted(acted | now)),
    )
    return Decision(verdict=verdict, memory=memory, brokers=brokers, refusals=refusals)


def thresholds(context: Context) -> tuple[float, float]:
    """Low and high difference as ratios."""
    return thresholds_of(context.params, context.mean)


def thresholds_of(params: Parameters, mean: float) -> tuple[float, float]:
    """The same by the mean score. Low scales with it, but not below its floor."""
    scaled = params.avg_low_threshold_percent / 100 * min(1.0, mean)
    low = max(scaled, params.avg_low_floor_percent / 100)
    return low, max(low, params.avg_high_threshold_percent / 100)


def _pairs(context: Context) -> list[tuple[int, int]]:
    """(cold, hot) rows: i-th lowest with i-th highest score; the middle one of an odd count has no partner."""
    rows = np.flatnonzero(context.concerned())
    order = rows[np.argsort(context.draft.score[rows], kind="stable")].tolist()
    return [(order[i], order[-1 - i]) for i in range(len(order) // 2)]


def _count_hits(context: Context, low: float, high: float) -> dict[str, Hits]:
    """New hit counters. Brokers that are unsettled keep theirs: their reports say nothing new yet."""
    ids, score = context.snapshot.brokers.ids, context.draft.score
    loaded = context.draft.loaded_score()
    multiple = context.params.avg_high_ratio * float(loaded.mean())
    old, acted = context.memory.hits, frozenset(context.memory.acted)
    counted: dict[str, Hits] = {}
    for cold, hot in _pairs(context):
        difference, pair = float(score[hot] - score[cold]), {ids[cold], ids[hot]}
        if pair & context.unsettled:
            counted.update({ids[row]: old[ids[row]] for row in (cold, hot) if ids[row] in old})
        elif difference >= low - EPSILON:
            far = difference >= high - EPSILON or loaded[hot] >= multiple - EPSILON or not acted.isdisjoint(pair)
            new = {row: _fresh(context, row) for row in (cold, hot)}
            for row, other, side in ((cold, hot, "cold"), (hot, cold, "hot")):
                fresh = new[row] and (new[other] or _partner_since(context, other, row))
                counted[ids[row]] = _hit(context, row, side, high=bool(far), fresh=fresh)
    return counted


def _fresh(context: Context, row: int) -> bool:
    """Whether this broker says something new since its last hit, by a report or by an interval's silence.

    Two reports within one interval may tell the same figures twice (traffic and CPU are refreshed apart). A broker
    looks every few seconds whether it has changed enough to report, so its silence says as much as a report would.
    """
    brokers, params = context.snapshot.brokers, context.params
    known = context.memory.hits.get(brokers.ids[row])
    if known is None or measured_since(context, row, known.reported):
        return True
    shortest, _ = refreshed_seconds(context, row)
    elapsed = (context.snapshot.wall_ms - known.at_ms) / 1000
    reported = int(brokers.last_update[row]) > known.reported
    silence = max(shortest, params.report_min_interval_seconds + TELLING_SECONDS)
    return elapsed >= (shortest if reported else silence)


def _partner_since(context: Context, other: int, row: int) -> bool:
    """Whether `other` has become the broker's partner since its last hit, and so says something new whatever it says:
    which of several nearly idle brokers is the coldest changes all the time, and must not stop the count."""
    ids, hits = context.snapshot.brokers.ids, context.memory.hits
    known, own = hits.get(ids[other]), hits.get(ids[row])
    return known is None or own is None or known.at_ms > own.at_ms


def _hit(context: Context, row: int, side: str, *, high: bool, fresh: bool) -> Hits:
    brokers = context.snapshot.brokers
    known = context.memory.hits.get(brokers.ids[row])
    now = context.snapshot.wall_ms
    if known is None or known.side != side:
        return Hits(side=side, low=1, high=1 if high else 0, reported=int(brokers.last_update[row]), at_ms=now)
    if not fresh:
        return known
    return Hits(
        side=side,
        low=known.low + 1,
        high=known.high + 1 if high else 0,
        reported=int(brokers.last_update[row]),
        at_ms=now,
    )


def _active(context: Context, hits: dict[str, Hits], low: float) -> set[int]:
    """Brokers to be balanced now: those with a full hit count, and those begun earlier and not finished yet."""
    ids, score, params, mean = context.snapshot.brokers.ids, context.draft.score, context.params, context.mean
    before, concerned = frozenset(context.memory.active), context.concerned()
    active: set[int] = set()
    for row, broker in enumerate(ids):
        hit = hits.get(broker)
        full = hit is not None and (hit.low >= params.avg_hit_count_low or hit.high >= params.avg_hit_count_high)
        begun = broker in before and bool(concerned[row]) and abs(float(score[row]) - mean) >= low / 4
        if begun or (full and broker not in context.unsettled):
            active.add(row)
    return active


def _broker_verdicts(context: Context, hits: dict[str, Hits], low: float, active: set[int]) -> list[Verdict]:
    found, mean, params = [], context.mean, context.params
    against, within = f"against a mean of {mean:.1%}", f"within {low:.1%} of its partner"
    for row, (broker, score) in enumerate(zip(context.snapshot.brokers.ids, context.draft.score.tolist(), strict=True)):
        hit = hits.get(broker)
        code, text = Code.BALANCED, f"{score:.1%}, {within}"
        if row in active:
            code = Code.OVERLOADED if score >= mean else Code.UNDERLOADED
            text = f"{score:.1%} {against}"
        elif broker in context.unsettled:
            code, text = Code.UNSETTLED, "its reports do not show the last moves yet"
        elif hit is not None:
            code = Code.HIT_COUNT
            text = (
                f"{score:.1%}, {hit.side}: low {hit.low}/{params.avg_hit_count_low}, "
                f"high {hit.high}/{params.avg_hit_count_high} fresh reports"
            )
        elif abs(score - mean) >= low:
            # The other one of its pair is the same, or there is none: that makes it no less out of line.
            code = Code.OVERLOADED if score >= mean else Code.UNDERLOADED
            text = f"{score:.1%} {against}; no partner differs enough"
        found.append(Verdict(code, text, broker, hit.low if hit else 0, hit.high if hit else 0))
    return found


def _spread(context: Context) -> float:
    score = context.draft.score[context.concerned()]
    return float(score.max() - score.min())


def _idle_verdict(context: Context, waiting: list[Verdict], low: float) -> Verdict:
    spread = _spread(context)
    if waiting:
        params = context.params
        seen = max((item.hits_low for item in waiting), default=0)
        high = max((item.hits_high for item in waiting), default=0)
        text = (
            f"{numbered(len(waiting), 'broker', 'differ')} by up to {spread:.1%} (>= {low:.1%}); seen in {seen} of "
            f"{params.avg_hit_count_low} fresh reports (large difference: {high} of {params.avg_hit_count_high})"
        )
        return Verdict(code=Code.HIT_COUNT, sentence=text)
    if context.unsettled and spread >= low:
        text = f"waiting until the reports of {numbered(len(context.unsettled), 'broker')} show the last moves"
        return Verdict(code=Code.UNSETTLED, sentence=text)
    return Verdict(code=Code.BALANCED, sentence=f"brokers differ by at most {spread:.1%}, below {low:.1%}")


def _acting_verdict(context: Context, active: set[int], low: float, refusals: list[Refusal]) -> Verdict:
    moves, spread = context.draft.moves, _spread(context)
    if moves:
        text = f"{numbered(len(moves), 'bundle')} to move; the predicted difference falls to {spread:.1%}"
        return Verdict(code=Code.OVERLOADED, sentence=text)
    if all(context.snapshot.brokers.ids[row] in context.unsettled for row in active):
        text = f"waiting until the reports of {numbered(len(context.unsettled), 'broker')} show the last moves"
        return Verdict(code=Code.UNSETTLED, sentence=text)
    if spread < low:
        text = f"brokers differ by at most {spread:.1%}, below {low:.1%}"
        return Verdict(code=Code.BELOW_MINIMUM, sentence=text)
    return stuck(context, refusals, numbered(len(active), "broker", "differ") + " from the mean")


def _move(context: Context, active: set[int], low: float) -> list[Refusal]:
    """Add moves to the draft until the predicted difference is closed or no donor can give any more."""
    draft, mean = context.draft, context.mean
    involved, can_give = np.zeros(len(draft.score), dtype=bool), np.ones(len(draft.score), dtype=bool)
    involved[list(active)] = True
    donors: dict[int, Candidates] = {}
    looked: set[int] = set()
    stopped: dict[int, list[Refusal]] = {}
    end = Code.BUDGET_PER_CYCLE
    while not context.full():
        pair = _next_pair(draft, involved, can_give)
        if pair is None:
            end = Code.NO_LEGAL_TARGET
            break
        cold, hot = pair
        if float(draft.score[hot] - draft.score[cold]) < low / 2:
            end = Code.BALANCED
            break
        unfit = None
        if hot not in looked:
            looked.add(hot)
            donors.setdefault(hot, candidates(context, hot))
            unfit = _below_minimum(context, cold, hot, donors[hot].rows)
        if unfit is None:
            unfit = _move_one(context, cold, hot, donors[hot].left(draft), mean, low)
            if unfit and _swap(context, cold, hot, donors, low):
                unfit = None
        if unfit is not None:
            stopped[hot] = unfit
            can_give[hot] = False
    refusals: list[Refusal] = []
    for row in sorted({row for row in active if draft.score[row] >= mean} | set(donors)):
        if row in stopped:
            rest = Candidates(donors[row].rows[:0], donors[row].dust)
            refusals += [*refuse_rest(context, row, rest, end), *stopped[row]]
        elif row in donors:
            refusals += refuse_rest(context, row, donors[row], end)
        else:
            refusals.append(Refusal(code=end, broker=context.snapshot.brokers.ids[row]))
    return refusals


def _next_pair(draft: Draft, involved: Bools, can_give: Bools) -> tuple[int, int] | None:
    """The widest (cold, hot) pair in which at least one broker stands out and the hot one can still give."""
    score, legal = draft.score, draft.legal_targets()
    best: tuple[int, int] | None = None
    widest, giving = -np.inf, np.where(can_give, score, -np.inf)
    tries = [(giving, legal)]
    if not involved[giving.argmax()]:
        tries = [(np.where(involved, giving, -np.inf), legal), (giving, legal & involved)]
    for givers, takers in tries:
        hot = int(givers.argmax())
        if givers[hot] == -np.inf:
            continue
        others = np.where(takers, score, np.inf)
        others[hot] = np.inf
        cold = int(others.argmin())
        if score[hot] - others[cold] > widest:
            best, widest = (cold, hot), score[hot] - others[cold]
    return best


def _below_minimum(context: Context, cold: int, hot: int, rows: Ints) -> list[Refusal] | None:
    """Refusals when what a broker should give reaches none of the minima that an operator set (AvgShedder)."""
    draft, params = context.draft, context.params
    want = _want(float(draft.score[hot]), float(draft.score[cold]), context.mean, params.max_unload_ratio)
    messages, size = traffic_of(draft, hot, want)
    minima = ((messages, params.min_unload_message_rate), (size, params.min_unload_throughput))
    reached = [value >= minimum for value, minimum in minima if minimum > 0]
    if any(reached) or not reached:
        return None
    return refuse_all(context, hot, rows, Code.BELOW_MINIMUM, f"{messages:.0f} msg/s and {size:.0f} B/s would leave")


def _move_one(context: Context, cold: int, hot: int, rows: Ints, mean: float, low: float) -> list[Refusal] | None:
    """Move the best fitting bundle from `hot` to `cold` or one of the next colder brokers; None, or why not."""
    draft, params = context.draft, context.params
    if len(rows) == 0:
        return []
    before, attempts = float(draft.score[hot]), []
    ceiling = params.overloaded_threshold_percent / 100
    for target in _targets(draft, cold, hot, rows):
        other = float(draft.score[target])
        if before - other < low / 2:
            break
        want = _want(before, other, mean, params.max_unload_ratio)
        offer = draft.offer(rows, hot, target)
        # A target may end above the mean by what is tolerated between brokers anyway: with less, dozens of small
        # bundles move instead of one (the simulator's `world`), with more, targets become sources.
        chosen = best_fit(offer, before, other, want, ceiling=ceiling, slack=low)
        if chosen >= 0:
            others = _targets(draft, target, hot, rows[chosen : chosen + 1])
            runner_up = next((row for row in others if row != target), -1)
            draft.take(int(rows[chosen]), hot, target, rule="avg", threshold=low, runner_up=runner_up)
            return None
        attempts.append(TriedTarget(offer=offer, other=other, want=want))
    return refuse_unfit(context, hot, rows, attempts)


def _swap(context: Context, cold: int, hot: int, donors: dict[int, Candidates], low: float) -> bool:
    """Where every bundle of `hot` is too big to go alone, try to exchange one; the taker becomes a donor then."""
    draft, rows = context.draft, donors[hot].left(context.draft)
    takers = [row for row in _targets(draft, cold, hot, rows) if draft.score[hot] - draft.score[row] >= low - EPSILON]
    asked = [Swap(giver=hot, taker=taker, rule="avg swap", threshold=low) for taker in takers]
    tries = [partial(swap, context, item, rows, 0.0) for item in asked]
    tries += [partial(make_room, context, item, rows) for item in asked]
    for taker, attempt in zip((*takers, *takers), tries, strict=True):
        given = attempt()
        if given is not None:
            donors.setdefault(taker, given)
            return True
    return False


def _targets(draft: Draft, first: int, hot: int, rows: Ints) -> Iterator[int]:
    """`first`, then the coldest other brokers that may take any of these bundles, looked up only when asked for."""
    yield first
    legal = draft.legal_targets()
    if draft.allowed is not None:
        legal &= draft.reachable(rows)
    others = np.where(legal, draft.score, np.inf)
    others[[first, hot]] = np.inf
    for _ in range(TARGETS_TRIED):
        coldest = int(others.argmin())
        if others[coldest] == np.inf:
            return
        yield coldest
        others[coldest] = np.inf


def _want(before: float, other: float, mean: float, ratio: float) -> float:
    """How much score should move: neither below the mean on the source, nor above it on the target."""
    want = ratio * (before - other)
    if before > mean:
        want = min(want, before - mean)
    return min(want, mean - other) if other < mean else want
