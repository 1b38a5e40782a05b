"""`avg`: pairs the most with the least loaded broker and moves bundles straight to the partner (PIP-364, AvgShedder).

Corrected against Pulsar's class (docs/reference/strategies.md lists each difference):
* hits advance only with fresh reports of both brokers (or after one sampling interval of silence, which means
  "unchanged"), belong to a broker's side (hot or cold) and lapse when the difference does;
* the low threshold scales with the mean score, so that a half-full cluster is balanced as tightly as a full one;
* a plan goes on until the predicted difference is closed, each bundle moving once, straight to where it stays;
* the middle broker is never paired with itself, idle bundles are never chosen, a destination is used once.
"""

from __future__ import annotations

import numpy as np

from bundlekeel.core.codes import Code
from bundlekeel.core.load import Ints
from bundlekeel.core.memory import Hits, Memory
from bundlekeel.core.placement import legal_targets
from bundlekeel.core.plan import Refusal, Verdict
from bundlekeel.core.shedding.common import EPSILON, Context, Decision, best_fit, refuse_all, worthwhile


def shed(context: Context) -> Decision:
    """Count hits per pair, and when a pair's count is full, move until the cluster is even."""
    low, high = thresholds(context)
    hits = _count_hits(context, low, high)
    active = _active(context, hits, low)
    brokers = _broker_verdicts(context, hits, low, active)
    if not active:
        waiting = [item for item in brokers if item.code is Code.HIT_COUNT]
        verdict = _idle_verdict(context, waiting, low)
        return Decision(verdict=verdict, memory=Memory(hits=hits), brokers=brokers)
    refusals = _move(context, active, low)
    verdict = _acting_verdict(context, active, low)
    ids = context.snapshot.brokers.ids
    memory = Memory(hits=hits, active=tuple(ids[row] for row in sorted(active)))
    return Decision(verdict=verdict, memory=memory, brokers=brokers, refusals=refusals)


def thresholds(context: Context) -> tuple[float, float]:
    """Low and high difference as ratios. Low scales with the mean score, but not below its floor."""
    params = context.params
    scaled = params.avg_low_threshold_percent / 100 * min(1.0, context.mean)
    low = max(min(scaled, params.avg_low_threshold_percent / 100), params.avg_low_floor_percent / 100)
    return low, max(low, params.avg_high_threshold_percent / 100)


def _pairs(context: Context) -> list[tuple[int, int]]:
    """(cold, hot) rows: i-th lowest with i-th highest score; the middle one of an odd count has no partner."""
    order = np.argsort(context.draft.score, kind="stable").tolist()
    return [(order[i], order[-1 - i]) for i in range(len(order) // 2)]


def _count_hits(context: Context, low: float, high: float) -> dict[str, Hits]:
    """New hit counters. Brokers that are unsettled keep theirs: their reports say nothing new yet."""
    ids, score = context.snapshot.brokers.ids, context.draft.score
    old = context.memory.hits
    counted: dict[str, Hits] = {}
    for cold, hot in _pairs(context):
        difference = float(score[hot] - score[cold])
        if {ids[cold], ids[hot]} & context.unsettled:
            counted.update({ids[row]: old[ids[row]] for row in (cold, hot) if ids[row] in old})
        elif difference >= low - EPSILON:
            fresh = _fresh(context, cold) and _fresh(context, hot)
            for row, side in ((cold, "cold"), (hot, "hot")):
                counted[ids[row]] = _hit(context, row, side, high=difference >= high - EPSILON, fresh=fresh)
    return counted


def _fresh(context: Context, row: int) -> bool:
    """Whether this broker says something new since its last hit, by a report or by one interval's silence."""
    brokers, params = context.snapshot.brokers, context.params
    known = context.memory.hits.get(brokers.ids[row])
    if known is None or int(brokers.last_update[row]) > known.reported:
        return True
    interval = max(params.statistics_interval_seconds, params.host_usage_interval_seconds)
    return context.snapshot.wall_ms - known.at_ms >= 1000 * interval


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
    active: set[int] = set()
    for row, broker in enumerate(ids):
        hit = hits.get(broker)
        full = hit is not None and (hit.low >= params.avg_hit_count_low or hit.high >= params.avg_hit_count_high)
        begun = broker in context.memory.active and abs(float(score[row]) - mean) >= low / 2
        if begun or (full and broker not in context.unsettled):
            active.add(row)
    return active


def _broker_verdicts(context: Context, hits: dict[str, Hits], low: float, active: set[int]) -> list[Verdict]:
    found = []
    for row, broker in enumerate(context.snapshot.brokers.ids):
        hit = hits.get(broker)
        score = float(context.draft.score[row])
        code, text = Code.BALANCED, f"{score:.1%}, within {low:.1%} of its partner"
        if row in active:
            code = Code.OVERLOADED if score >= context.mean else Code.UNDERLOADED
            text = f"{score:.1%} against a mean of {context.mean:.1%}"
        elif broker in context.unsettled:
            code, text = Code.UNSETTLED, "its reports do not show the last moves yet"
        elif hit is not None:
            code = Code.HIT_COUNT
            text = (
                f"{score:.1%}, {hit.side}: low {hit.low}/{context.params.avg_hit_count_low}, "
                f"high {hit.high}/{context.params.avg_hit_count_high} fresh reports"
            )
        found.append(
            Verdict(
                code=code,
                sentence=text,
                broker=broker,
                hits_low=hit.low if hit else 0,
                hits_high=hit.high if hit else 0,
            )
        )
    return found


def _idle_verdict(context: Context, waiting: list[Verdict], low: float) -> Verdict:
    spread = float(context.draft.score.max() - context.draft.score.min())
    if waiting:
        text = f"{len(waiting)} brokers differ by up to {spread:.1%} (>= {low:.1%}); waiting for more fresh reports"
        return Verdict(code=Code.HIT_COUNT, sentence=text)
    if context.unsettled and spread >= low:
        text = f"waiting until the reports of {len(context.unsettled)} brokers show the last moves"
        return Verdict(code=Code.UNSETTLED, sentence=text)
    return Verdict(code=Code.BALANCED, sentence=f"brokers differ by at most {spread:.1%}, below {low:.1%}")


def _acting_verdict(context: Context, active: set[int], low: float) -> Verdict:
    score, moves = context.draft.score, context.draft.moves
    spread = float(score.max() - score.min())
    if moves:
        text = f"{len(moves)} bundles to move; the predicted difference falls to {spread:.1%}"
        return Verdict(code=Code.OVERLOADED, sentence=text)
    code = Code.BELOW_MINIMUM if spread < low else Code.NO_BUNDLES
    return Verdict(code=code, sentence=f"{len(active)} brokers stand out, but no bundle would make it better")


def _move(context: Context, active: set[int], low: float) -> list[Refusal]:
    """Add moves to the draft until the predicted difference is closed or no donor can give any more."""
    draft, refusals = context.draft, []
    exhausted: set[int] = set()
    rejected: dict[int, list[Refusal]] = {}
    while True:
        pair = _next_pair(context, active, exhausted)
        if pair is None:
            break
        cold, hot = pair
        if float(draft.score[hot] - draft.score[cold]) < low / 2:
            break
        rejected[hot] = _move_one(context, cold, hot, low)
        if rejected[hot]:
            exhausted.add(hot)
    for broker in sorted({row for row in active if draft.score[row] >= context.mean} | set(rejected)):
        refusals += context.eligible.refusals(context.snapshot, broker)
        refusals += rejected.get(broker, [])
    return refusals


def _next_pair(context: Context, active: set[int], exhausted: set[int]) -> tuple[int, int] | None:
    """The widest (cold, hot) pair in which at least one broker is active and the hot one can still give."""
    score = context.draft.score
    hot_order = [row for row in np.argsort(-score, kind="stable").tolist() if row not in exhausted]
    if not hot_order:
        return None
    best: tuple[int, int] | None = None
    tops = [hot_order[0], *([row for row in hot_order if row in active][:1])]
    for hot in dict.fromkeys(tops):
        targets = legal_targets(context.draft, hot)
        if hot not in active:
            targets = targets[[int(row) in active for row in targets]]
        if len(targets) == 0:
            continue
        cold = int(targets[np.argmin(score[targets])])
        if best is None or score[hot] - score[cold] > score[best[1]] - score[best[0]]:
            best = (cold, hot)
    return best


def _move_one(context: Context, cold: int, hot: int, low: float) -> list[Refusal]:
    """Move the best fitting bundle from `hot` to `cold`; an empty list when one moved, else why none did."""
    draft, params, mean = context.draft, context.params, context.mean
    rows = draft.movable(hot, context.eligible.mask)
    rows, small = worthwhile(context, hot, rows)
    refused = refuse_all(context, hot, small, Code.BELOW_MINIMUM)
    if len(rows) == 0:
        return refused or [Refusal(code=Code.NO_BUNDLES, broker=context.snapshot.brokers.ids[hot])]
    before, other = float(draft.score[hot]), float(draft.score[cold])
    want = min(before - mean, mean - other, params.max_unload_ratio * (before - other))
    offer = draft.offer(rows, hot, cold)
    chosen = best_fit(offer, before, max(want, 0.0), ceiling=params.overloaded_threshold_percent / 100)
    if chosen < 0:
        return refused + refuse_all(context, hot, rows, Code.TOO_BIG, f"only {want:.1%} may move")
    draft.take(int(rows[chosen]), hot, cold, rule="avg", threshold=low, runner_up=_runner_up(context, cold, hot))
    return []


def _runner_up(context: Context, cold: int, hot: int) -> int:
    others: Ints = legal_targets(context.draft, hot)
    others = others[others != cold]
    return int(others[np.argmin(context.draft.score[others])]) if len(others) else -1
