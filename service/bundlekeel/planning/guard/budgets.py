"""Budgets: limits on the number of moves of a plan, per cycle and per hour. Pure.

The first exhausted budget refuses a move. The refusal contains the budget, its limit, the used part and the time at
which it is free again. A swap is a bundle that leaves, followed by the bundles that replace it. It is admitted as a
whole or not at all, because half a swap does not improve the balance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bundlekeel.model.codes import Code
from bundlekeel.model.names import namespace_of, tenant_of
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Refusal, Traffic4
from bundlekeel.model.text_format import HOUR_MS, clock_text
from bundlekeel.planning.guard.state import GuardState

# Budgets that each cycle starts with in full.
CYCLE_BUDGETS: Final = frozenset(
    {
        Code.BUDGET_PER_CYCLE,
        Code.BUDGET_PER_SOURCE,
        Code.BUDGET_PER_TARGET,
        Code.BUDGET_PER_NAMESPACE,
        Code.BUDGET_PER_TENANT,
    }
)
# These budgets spread moves over time, so their moves do not all follow in the next cycle.
GENTLE: Final = frozenset({Code.BUDGET_OF_TRAFFIC, Code.ADAPTIVE_RATE, Code.BUDGET_PER_HOUR})
# Shares can differ in their last bits, because the sums are added in another order.
_SLACK: Final = 1e-9
_NOTHING: Final[Traffic4] = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Budget:
    """A limit on moves: at most `limit` for each value of `key`, such as each source broker.

    `of`: preposition before the key in messages. `frees_ms`: when it allows the next move, Unix ms; 0: in the next
    cycle.
    """

    code: Code
    limit: int
    key: Callable[[Move], str] = lambda _: ""
    of: str = ""
    frees_ms: int = 0


def admit(
    moves: Sequence[Move],
    params: Parameters,
    guard: GuardState | None = None,
    now_ms: int = 0,
    traffic: Mapping[str, Traffic4] | None = None,
    *,
    swaps: bool = True,
    before: Sequence[Move] = (),
    admitted_before: Sequence[Move] = (),
) -> tuple[tuple[Move, ...], tuple[Refusal, ...]]:
    """Split a plan's moves, in their order, into admitted moves and refusals.

    `guard`: contains the moves of the hour before `now_ms` and the limit of the adaptive rate. `traffic`: traffic of
    each broker before the first of these moves. `swaps`: a move and the moves in the opposite direction right after it
    are admitted together or not at all. `before`: other moves of this cycle. They have their own budget per cycle, but
    use all other budgets. `admitted_before`: moves of this cycle that use all budgets. A refused move is not stored:
    the next cycle plans again.
    """
    books = _Books(params, guard or GuardState(), now_ms, traffic or {}, before, admitted_before)
    admitted: list[Move] = []
    refused: list[Refusal] = []
    for step in _steps(moves) if swaps else ([move] for move in moves):
        refusal = books.refusal(step)
        if refusal is None:
            admitted += step
        else:
            refused += [refusal._replace(bundle=move.bundle, broker=move.source) for move in step]
    return tuple(admitted), tuple(refused)


def hour_refusal(params: Parameters, guard: GuardState, now_ms: int) -> Refusal | None:
    """Return the refusal of a manual move if the hour's budget is used up, or None. No other budget applies to it."""
    hour = _begun_within_hour(guard, now_ms)
    limit = params.max_moves_per_hour
    if limit < 0 or len(hour) < limit:
        return None
    return _over(_hour_budget(limit, hour, now_ms), "", len(hour))


def share_of(move: Move, carried: Traffic4) -> float:
    """Return the share of its source's messages or bytes that a move takes away, whichever is larger; 0 to 1.

    `carried`: traffic of the source, columns of `TRAFFIC`.
    """
    shares = (_ratio(move.traffic[a] + move.traffic[b], carried[a] + carried[b]) for a, b in ((0, 1), (2, 3)))
    return min(max(shares), 1.0)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _steps(moves: Sequence[Move]) -> Iterator[list[Move]]:
    """Yield the moves one at a time, but a swap (a move and the opposite moves right after it) as one step."""
    step: list[Move] = []
    for move in moves:
        if step and (move.source, move.target) == (step[0].target, step[0].source):
            step.append(move)
        else:
            if step:
                yield step
            step = [move]
    if step:
        yield step


class _Books:
    """The used part of each budget, updated while moves and swaps are admitted one at a time."""

    def __init__(
        self,
        params: Parameters,
        guard: GuardState,
        now_ms: int,
        traffic: Mapping[str, Traffic4],
        before: Sequence[Move],
        admitted_before: Sequence[Move],
    ) -> None:
        self._traffic = traffic
        self._share_limit = params.max_traffic_share_per_cycle
        hour = _begun_within_hour(guard, now_ms)
        self._budgets = _budgets(params, guard.rate, hour, now_ms)
        self._used: Counter[tuple[Code, str]] = Counter({(Code.BUDGET_PER_HOUR, ""): len(hour)})
        for budget in self._budgets:
            if budget.code is not Code.BUDGET_PER_CYCLE:
                self._used.update((budget.code, budget.key(move)) for move in before)
            self._used.update((budget.code, budget.key(move)) for move in admitted_before)
        # Share of each broker's traffic that leaves it in this plan.
        self._left: dict[str, float] = {}
        for move in admitted_before:
            share = share_of(move, traffic.get(move.source, _NOTHING))
            self._left[move.source] = self._left.get(move.source, 0.0) + share

    def refusal(self, step: Sequence[Move]) -> Refusal | None:
        """Count these moves (one move or a swap) against the budgets; return the refusal of the first exhausted one.

        Returns None if all budgets admit them. If not, none of the moves is counted.
        """
        booked: list[tuple[Code, str]] = []
        left = {move.source: self._left.get(move.source) for move in step}
        for move in step:
            refusal = self._count(move, booked) or self._share(move)
            if refusal is not None:
                # The whole step is refused, so the parts of the budgets that it used so far are free again.
                self._used.subtract(booked)
                self._left.update({source: share for source, share in left.items() if share is not None})
                for source in [source for source, share in left.items() if share is None]:
                    self._left.pop(source, None)
                return refusal
        return None

    def _count(self, move: Move, booked: list[tuple[Code, str]]) -> Refusal | None:
        for budget in self._budgets:
            place = (budget.code, budget.key(move))
            if self._used[place] >= budget.limit:
                return _over(budget, place[1], self._used[place])
            self._used[place] += 1
            booked.append(place)
        return None

    def _share(self, move: Move) -> Refusal | None:
        if self._share_limit >= 1:
            return None
        share = share_of(move, self._traffic.get(move.source, _NOTHING))
        before = self._left.get(move.source)
        if before is not None and before + share > self._share_limit + _SLACK:
            return _over_share(move, before, self._share_limit)
        self._left[move.source] = (before or 0.0) + share
        return None


def _budgets(params: Parameters, rate: int | None, hour: Sequence[int], now_ms: int) -> list[_Budget]:
    """Return the budgets that apply, in the order in which they are checked."""
    budgets = [
        _Budget(Code.BUDGET_PER_CYCLE, params.max_moves_per_cycle),
        _Budget(Code.BUDGET_PER_SOURCE, params.max_moves_per_source, lambda move: move.source, "from"),
        _Budget(Code.BUDGET_PER_TARGET, params.max_moves_per_target, lambda move: move.target, "to"),
        _Budget(
            Code.BUDGET_PER_NAMESPACE, params.max_moves_per_namespace, lambda move: namespace_of(move.bundle), "of"
        ),
    ]
    if params.max_moves_per_tenant >= 0:
        limit = params.max_moves_per_tenant
        budgets.append(_Budget(Code.BUDGET_PER_TENANT, limit, lambda move: tenant_of(move.bundle), "of"))
    if params.max_moves_per_hour >= 0:
        budgets.append(_hour_budget(params.max_moves_per_hour, hour, now_ms))
    if rate is not None:
        budgets.append(_Budget(Code.ADAPTIVE_RATE, rate))
    return budgets


def _begun_within_hour(guard: GuardState, now_ms: int) -> list[int]:
    return sorted(move.at_ms for move in guard.last_hour if move.at_ms > now_ms - HOUR_MS)


def _hour_budget(limit: int, hour: Sequence[int], now_ms: int) -> _Budget:
    return _Budget(Code.BUDGET_PER_HOUR, limit, frees_ms=_next_in_hour(limit, hour, now_ms))


def _next_in_hour(limit: int, hour: Sequence[int], now_ms: int) -> int:
    """Return the time (Unix ms) from which fewer than `limit` moves started within the last hour.

    `hour`: start times of the last hour's moves, ascending. 0 if `limit` is 0.
    """
    if limit == 0:
        return 0
    surplus = max(0, len(hour) - limit)
    return (hour[surplus] if hour else now_ms) + HOUR_MS


def _over(budget: _Budget, name: str, used: int) -> Refusal:
    place = f" {budget.of} {name}" if budget.of else ""
    period = "an hour" if budget.code is Code.BUDGET_PER_HOUR else "a cycle"
    detail = f"limit {budget.limit} {period}{place}, {used} used, {_frees(budget)}"
    return Refusal(budget.code, detail=detail, limit=float(budget.limit), used=float(used), frees_ms=budget.frees_ms)


def _frees(budget: _Budget) -> str:
    if budget.limit == 0 and budget.code is not Code.ADAPTIVE_RATE:
        return "it allows no moves"
    return f"free again at {clock_text(budget.frees_ms)}" if budget.frees_ms else "free again in the next cycle"


def _over_share(move: Move, used: float, limit: float) -> Refusal:
    detail = f"limit {limit:.0%} of what {move.source} carries a cycle, {used:.0%} used, free again in the next cycle"
    return Refusal(Code.BUDGET_OF_TRAFFIC, detail=detail, limit=limit, used=used)
