"""`transfer`: the most loaded brokers give to the least loaded ones until scores are alike (PIP-192, TransferShedder).

Extensible brokers report smoothed scores. Corrected against Pulsar's class (docs/reference/strategies.md lists each
difference, tests/unit/planning/test_transfer.py shows it):
* the decision rule (planning/calm.py) replaces the count of cycles and the smoothing of modular scores;
* a broker with stale load data does not count and does not act. A broker that has just given or taken a bundle waits.
  The other brokers continue. A broker without load data does not stop others while the snapshot is complete enough;
* the deviation is computed around the mean (never NaN), and brokers without load end the search without an error;
* if no bundle fits on the least loaded broker, the next ones are tried; each pair uses its brokers' predicted load,
  largest fitting bundle first; no move increases the maximum;
* the bundles that a swap returns are counted, and must be free to move like any others. No state during a swap is worse
  than before;
* the only bundle of a broker stays. Pulsar keeps the last bundle of a broker's list, even if the list contains only the
  largest bundles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import THROUGHPUT_IN, THROUGHPUT_OUT, Floats, Ints
from bundlekeel.model.plan import Refusal, Verdict
from bundlekeel.model.snapshot import Bools
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.ledger import timeout_ms
from bundlekeel.planning.strategies.common import (
    EPSILON,
    Candidates,
    Context,
    Decision,
    best_fit,
    candidates,
    refuse_rest,
)
from bundlekeel.planning.strategies.refusals import TriedTarget, refuse_unfit, stuck
from bundlekeel.planning.strategies.swap import Swap, swap
from bundlekeel.planning.strategies.timing import UNSETTLED, excess_where, timing

# If no bundle fits on the least loaded broker, this number of next ones is tried: they may be larger, or allowed.
TARGETS_TRIED = 4
# Brokers that may neither give nor take for these reasons do not count in mean and deviation either.
_NOT_COUNTED = (Code.OUT_DATED_DATA, Code.CORDONED, Code.EXCLUDED, Code.WRONG_LIMIT)


@dataclass(slots=True, kw_only=True)
class _View:
    """State of the brokers (rows) during a cycle.

    `score`: the draft's own array, which each move changes. `counts`: whether a broker counts in mean and deviation.
    `barred`: code of each broker that may neither give nor take. `free`: whether a broker may give or take. `used`:
    whether a broker gave or took in this cycle. `gave`, `took`: rows of these brokers.
    """

    score: Floats
    counts: Bools
    barred: dict[int, Code]
    free: Bools
    used: Bools
    gave: set[int] = field(default_factory=set)
    took: set[int] = field(default_factory=set)
    _figures: tuple[float, float] | None = None

    def mean_std(self) -> tuple[float, float]:
        """Return mean and population standard deviation of the scores of the brokers that count."""
        if self._figures is None:
            values = self.score[self.counts].tolist()
            mean = math.fsum(values) / len(values) if values else 0.0
            squares = math.fsum((value - mean) ** 2 for value in values)
            self._figures = mean, math.sqrt(squares / len(values)) if values else 0.0
        return self._figures

    def paired(self, giver: int, taker: int) -> None:
        """Record that bundles moved from `giver` to `taker`; the taker does not act again in this cycle."""
        self.used[taker] = True
        self.gave.add(giver)
        self.took.add(taker)
        self._figures = None

    def extremes(self) -> tuple[int, int] | None:
        """Return the rows of the least and the most loaded broker that may still act; None if fewer than two may."""
        rows = np.flatnonzero(self.free & ~self.used)
        if len(rows) < 2:
            return None
        values = self.score[rows]
        # Of equal brokers, take the first as least and the last as most loaded, so that they are different brokers.
        return int(rows[np.argmin(values)]), int(rows[len(rows) - 1 - np.argmax(values[::-1])])


def shed(context: Context) -> Decision:
    """Move bundles from the most to the least loaded brokers, if the imbalance has cost as much as the moves do."""
    view = _view(context, _find_barred(context))
    extremes, reason = view.extremes(), _reason(context, view)
    condition = np.zeros(len(view.score), dtype=bool)
    if extremes is not None and reason is not None:
        condition[list(extremes)] = True
    times = timing(context, excess_where(context, condition))
    if not view.counts.any() or extremes is None:
        return Decision(verdict=_waiting(view), memory=times.memory(context), brokers=_brokers(context, view))
    if reason is None:
        verdict = Verdict(code=Code.BALANCED, sentence=_figures(context, view, "no broker differs enough"))
        return Decision(verdict=verdict, memory=times.memory(context), brokers=_brokers(context, view))
    if not times.ripe:
        verdicts = [
            times.waiting.get(row) or item for row, item in zip(context.rows, _brokers(context, view), strict=True)
        ]
        waits = times.verdict(context, times.waiting)
        waits = replace(waits, sentence=_figures(context, view, waits.sentence))
        return Decision(verdict=waits, memory=times.memory(context), brokers=verdicts)
    described = _figures(context, view, "")
    refusals = _transfer(context, view)
    verdict = _acting_verdict(context, view, reason, described, refusals)
    memory = times.memory(context, times.ripe)
    return Decision(verdict=verdict, memory=memory, brokers=_brokers(context, view), refusals=refusals)


# --- brokers and condition ---------------------------------------------------------------------------------


def _find_barred(context: Context) -> dict[int, Code]:
    """Return the brokers (rows) that may neither give nor take bundles, with the code of the reason."""
    brokers, params, now = context.snapshot.brokers, context.params, context.snapshot.wall_ms
    moved_at = _last_moves(context)
    barred: dict[int, Code] = {}
    for row in context.rows:
        broker, reported = brokers.ids[row], int(brokers.last_update[row])
        at = moved_at.get(broker)
        # A broker that does not report for this long has an unchanged load.
        waits = at is not None and now - at < max(timeout_ms(params), 1000 * params.transfer_delay_seconds)
        if now - reported > 1000 * params.load_data_ttl_seconds:
            barred[row] = Code.OUT_DATED_DATA
        elif at is not None and waits and reported - at < 1000 * params.transfer_delay_seconds:
            barred[row] = Code.COOL_DOWN
        elif broker in context.unsettled:
            barred[row] = Code.UNSETTLED
    closed = context.draft.bans.closed if context.draft.bans is not None else {}
    barred |= {
        row: closed.get(row, Code.WRONG_LIMIT)
        for row in np.flatnonzero(context.draft.members & ~context.concerned()).tolist()
    }
    return barred


def _last_moves(context: Context) -> dict[str, int]:
    """Return the time (Unix ms) at which each broker last gave or took a bundle, from the bundles' last moves."""
    snapshot, guard = context.snapshot, context.guard
    moved_at = dict(guard.recent_brokers)
    owners = {snapshot.bundles.names[row]: int(snapshot.bundles.owner[row]) for row in _rows_moved(context)}
    for bundle, moved in guard.recent.items():
        if not moved.source:
            continue  # The brokers of this move are unknown.
        taker = snapshot.brokers.ids[owners[bundle]] if bundle in owners else ""
        for broker in (moved.source, taker):
            moved_at[broker] = max(moved_at.get(broker, 0), moved.at_ms)
    return moved_at


def _rows_moved(context: Context) -> list[int]:
    return context.snapshot.bundles.rows_named(set(context.guard.recent))


def _view(context: Context, barred: dict[int, Code]) -> _View:
    ids, score = context.snapshot.brokers.ids, context.draft.score
    counts, free = context.draft.members.copy(), context.draft.members.copy()
    counts[[row for row, code in barred.items() if code in _NOT_COUNTED]] = False
    free[list(barred)] = False
    return _View(score=score, counts=counts, barred=barred, free=free, used=np.zeros(len(ids), dtype=bool))


def _reason(context: Context, view: _View) -> Code | None:
    """Return the code of the reason to balance the least and the most loaded broker, or None.

    As in Pulsar, values at a limit do not exceed it.
    """
    extremes = view.extremes()
    if extremes is None:
        return None
    params, (low, high), (mean, std) = context.params, extremes, view.mean_std()
    if std > params.transfer_target_std + EPSILON:
        return Code.OVERLOADED
    share = min(0.5, params.transfer_target_std / 2)
    traffic = context.draft.traffic[[low, high]][:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1).tolist()
    if float(view.score[low]) < mean * share - EPSILON or traffic[0] < traffic[1] * share:
        return Code.UNDERLOADED
    most = float(view.score[high])
    over = most > params.overloaded_threshold_percent / 100 + EPSILON
    return Code.OVERLOADED if over and most > mean + params.transfer_target_std + EPSILON else None


# --- moves -------------------------------------------------------------------------------------------------


def _transfer(context: Context, view: _View) -> list[Refusal]:
    """Move bundles between most and least loaded brokers until the scores meet the target; return the refusals."""
    refusals: list[Refusal] = []
    worth = context.params.min_unload_share * context.mean
    while len(view.gave) < context.params.transfer_max_brokers and _reason(context, view) is not None:
        extremes = view.extremes()
        assert extremes is not None  # Without extremes there is no reason.
        low, high = extremes
        if context.full():
            refusals.append(Refusal(code=Code.BUDGET_PER_CYCLE, broker=context.snapshot.brokers.ids[high]))
            break
        if float(view.score[high] - view.score[low]) / 2 < max(worth, EPSILON):
            refusals.append(Refusal(code=Code.BELOW_MINIMUM, broker=context.snapshot.brokers.ids[high]))
            break
        refusals += _give(context, view, high)
        view.used[high] = True
    mean, _ = view.mean_std()
    waiting = [row for row, code in view.barred.items() if code is Code.OUT_DATED_DATA or view.score[row] > mean]
    refusals += [Refusal(code=view.barred[row], broker=context.snapshot.brokers.ids[row]) for row in waiting]
    return sorted(refusals, key=lambda item: (item.broker, item.bundle))


def _give(context: Context, view: _View, giver: int) -> list[Refusal]:
    """Move bundles of `giver` to the least loaded broker that can take any; return the refusals of both brokers."""
    draft, donor = context.draft, candidates(context, giver)
    if int(draft.bundle_count[giver]) <= 1:
        return refuse_rest(context, giver, donor, Code.SOLE_BUNDLE)
    attempts: list[TriedTarget] = []
    worth = max(EPSILON, context.params.min_unload_share * context.mean)
    for place, taker in enumerate(takers := _takers(context, view, giver)):
        want = float(draft.score[giver] - draft.score[taker]) / 2
        if want < EPSILON:
            break
        moves = len(draft.moves)
        left = _fill(context, giver, taker, donor, want, next(iter(takers[place + 1 :]), -1))
        refusals: list[Refusal] = []
        if left > max(worth, want / 2):
            # A swap needs twice the reconnects, so it is the last resort.
            exchange = Swap(giver=giver, taker=taker, rule="transfer", threshold=context.params.transfer_target_std)
            rest = swap(context, exchange, donor.left(draft), left)
            refusals = refuse_rest(context, taker, rest, Code.BALANCED) if rest else []
        attempts.append(_attempt(context, giver, taker, donor, left))
        if len(draft.moves) > moves:
            view.paired(giver, taker)
            if left > worth:
                return _unfit(context, giver, donor, attempts[-1:]) + refusals
            return refuse_rest(context, giver, donor, Code.BALANCED) + refusals
    if not attempts:
        code = Code.NO_GAIN if takers else Code.NO_LEGAL_TARGET
        return refuse_rest(context, giver, donor, code)
    return _unfit(context, giver, donor, attempts)


def _unfit(context: Context, giver: int, donor: Candidates, attempts: list[TriedTarget]) -> list[Refusal]:
    """Return the refusals of the giver's remaining bundles, which fit on no tried target."""
    dust = Candidates(donor.rows[:0], donor.dust)
    rows = donor.left(context.draft)
    return [*refuse_rest(context, giver, dust, Code.NO_GAIN), *refuse_unfit(context, giver, rows, attempts)]


def _attempt(context: Context, giver: int, taker: int, donor: Candidates, want: float) -> TriedTarget:
    offer = context.draft.offer(donor.left(context.draft), giver, taker)
    return TriedTarget(offer=offer, other=float(context.draft.score[taker]), want=max(want, 0.0))


def _takers(context: Context, view: _View, giver: int) -> list[int]:
    """Return the least loaded brokers (rows) that may take a bundle of `giver`, least loaded first."""
    able: Bools = view.free & ~view.used & context.draft.legal_targets()
    able[giver] = False
    rows: Ints = np.flatnonzero(able)
    return list(map(int, rows[np.argsort(view.score[rows], kind="stable")[:TARGETS_TRIED]]))


def _fill(context: Context, giver: int, taker: int, donor: Candidates, want: float, runner_up: int) -> float:
    """Move the largest fitting bundles until `want` (a score difference) is met; return the remaining difference."""
    draft, params = context.draft, context.params
    while want > EPSILON and int(draft.bundle_count[giver]) > 1 and not context.full():
        rows = donor.left(draft)
        if len(rows) == 0:
            break
        before = float(draft.score[giver])
        offer = draft.offer(rows, giver, taker)
        ceiling = params.overloaded_threshold_percent / 100
        best = best_fit(offer, before, float(draft.score[taker]), want, ceiling=ceiling, slack=0.0)
        if best < 0:
            break
        threshold = params.transfer_target_std
        draft.take(int(rows[best]), giver, taker, rule="transfer", threshold=threshold, runner_up=runner_up)
        want -= before - float(draft.score[giver])
    return want


# --- verdicts ----------------------------------------------------------------------------------------------


def _figures(context: Context, view: _View, text: str) -> str:
    mean, std = view.mean_std()
    figures = f"standard deviation {std:.1%} (target {context.params.transfer_target_std:.1%}) around {mean:.1%}"
    return f"{figures}; {text}" if text else figures


def _waiting(view: _View) -> Verdict:
    """Return the verdict of a cycle in which fewer than two brokers may act."""
    if not view.counts.any():
        return Verdict(code=Code.OUT_DATED_DATA, sentence="every broker's load data is too old")
    codes = set(view.barred.values())
    code = next((code for code in (Code.COOL_DOWN, Code.UNSETTLED) if code in codes), Code.OUT_DATED_DATA)
    return Verdict(
        code=code,
        sentence=f"{numbered(len(view.barred), 'broker', 'wait')} after a move, or their load data is too old",
    )


def _acting_verdict(context: Context, view: _View, reason: Code, described: str, refusals: list[Refusal]) -> Verdict:
    moves = len(context.moves)
    if moves:
        after = view.mean_std()[1]
        text = f"{numbered(moves, 'bundle')} between {numbered(len(view.gave), 'pair')} of brokers, then {after:.1%}"
        return Verdict(code=reason, sentence=f"{described}; {text}")
    return stuck(context, refusals, described)


def _brokers(context: Context, view: _View) -> list[Verdict]:
    """Return the verdict of each broker."""
    texts = {
        Code.OUT_DATED_DATA: "its load data is too old: it does not count",
        Code.COOL_DOWN: "it gave or received a bundle just now",
        Code.UNSETTLED: UNSETTLED,
    }
    verdicts, ids = [], context.snapshot.brokers.ids
    for row in context.rows:
        code = view.barred.get(row)
        if code is None:
            code = Code.OVERLOADED if row in view.gave else Code.UNDERLOADED if row in view.took else Code.BALANCED
        figures = f"{float(view.score[row]):.1%}"
        reason = texts.get(code, "")
        verdicts.append(Verdict(code=code, sentence=f"{figures}; {reason}" if reason else figures, broker=ids[row]))
    return verdicts
