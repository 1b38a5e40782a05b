"""Invariants: the final check of the moves of any shedder, including copies of Pulsar's (`compat`) and plugins.

A move is dropped, with a refusal, in these cases:
* its target is its source, an unknown broker, or one that policies or the guard forbid;
* its target is overloaded, would be, or would exceed the highest score before the plan;
* its bundle may not move (idle, system, cooling down, in transit, excluded, ...), or is not at the move's source.

So no plan, nor any part of it, increases the highest predicted score. The moves of Bundlekeel's own strategies always
comply (tests/property/test_strategy_laws.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import RESOURCES
from bundlekeel.model.plan import Move, Refusal, Traffic4
from bundlekeel.planning.draft import Draft, four
from bundlekeel.planning.guard.eligibility import Eligibility

# Two computations of a score can differ by this much: sums in another order, and percentages of 32 bits.
SLACK = 1e-5
NOTHING: Sequence[float] = (0.0,) * len(RESOURCES)
NO_TRAFFIC: Traffic4 = (0.0, 0.0, 0.0, 0.0)


class _Books:
    """Predicted usage of the brokers after the moves that were checked so far, and the highest allowed scores."""

    def __init__(self, draft: Draft) -> None:
        self.rows = draft.snapshot.brokers.rows
        self.ceiling = draft.params.overloaded_threshold_percent / 100
        self.highest = draft.highest_before
        self._before, self._limits, self._weights = draft.usage_before, draft.limit, draft.weights.tolist()
        self._changed: dict[int, list[float]] = {}

    def _usage(self, broker: int) -> list[float]:
        usage: list[float] = self._changed.get(broker) or self._before[broker].tolist()
        return usage

    def score(self, broker: int, pressure: Sequence[float] = NOTHING) -> float:
        """Return the broker's score with this additional usage (in the order of `RESOURCES`)."""
        rows = zip(self._usage(broker), pressure, self._limits[broker].tolist(), self._weights, strict=True)
        return max((weight * (used + more) / limit for used, more, limit, weight in rows if limit > 0), default=0.0)

    def add(self, broker: int, pressure: Sequence[float], sign: int) -> None:
        """Add the usage that a bundle causes to a broker (`sign` 1), or remove it (-1)."""
        self._changed[broker] = [max(a + sign * b, 0.0) for a, b in zip(self._usage(broker), pressure, strict=True)]


def lawful(draft: Draft, eligible: Eligibility, moves: Iterable[Move]) -> tuple[tuple[Move, ...], list[Refusal]]:
    """Return the moves that comply with the invariants, in their order, and a refusal for each other move.

    Traffic and pressure of each move are set from the draft. If `moves` lacks moves of the draft, the scores of all
    moves are computed again. A second move of a bundle is dropped without a refusal.
    """
    books, moved_groups = _Books(draft), set[int]()
    lawful_moves: dict[str, Move] = {}
    refused: dict[str, Refusal] = {}
    for move in moves:
        if move.bundle in lawful_moves or move.bundle in refused:
            continue
        row = _row(draft, books, move)
        group = draft.group_of(int(draft.snapshot.bundles.namespace[row])) if row >= 0 else -1
        pressure, traffic = _figures(draft, books.rows[move.source], row) if row >= 0 else ((), NO_TRAFFIC)
        code = Code.OWNER_CHANGED if row < 0 else _obstacle(draft, eligible, books, move, row, pressure)
        if code is None and group in moved_groups:
            # After one move of an anti-affinity group, only the next snapshot shows the targets allowed for the others.
            code = Code.ANTI_AFFINITY
        if code is not None:
            bound = row >= 0 and not eligible.mask[row]
            detail = eligible.refusal(draft.snapshot, row).detail if bound else ""
            refused[move.bundle] = Refusal(code, move.bundle, move.source, detail or "final check")
            continue
        if group >= 0:
            moved_groups.add(group)
        books.add(books.rows[move.source], pressure, -1)
        books.add(books.rows[move.target], pressure, 1)
        same = move.pressure == pressure and move.traffic == traffic
        lawful_moves[move.bundle] = move if same else replace(move, pressure=pressure, traffic=traffic)
    whole = len(lawful_moves) == len(draft.moves) == np.count_nonzero(draft.moved)
    return tuple(lawful_moves.values() if whole else _restated(draft, lawful_moves.values())), list(refused.values())


def _restated(draft: Draft, moves: Iterable[Move]) -> Iterator[Move]:
    """Yield the moves with the scores that result if only these moves are executed."""
    books = _Books(draft)
    for move in moves:
        source, target = books.rows[move.source], books.rows[move.target]
        before = books.score(source), books.score(target)
        books.add(source, move.pressure, -1)
        books.add(target, move.pressure, 1)
        yield replace(
            move,
            source_before=before[0],
            source_after=books.score(source),
            target_before=before[1],
            target_after=books.score(target),
        )


def _row(draft: Draft, books: _Books, move: Move) -> int:
    """Return the row of the move's bundle; -1 if the bundle is not at the move's source."""
    source = books.rows.get(move.source, -1)
    if source < 0:
        return -1
    rows = draft.snapshot.bundles.rows_of(source)
    try:
        return draft.snapshot.bundles.names.index(move.bundle, rows.start, rows.stop)
    except ValueError:
        return -1


def _figures(draft: Draft, source: int, row: int) -> tuple[tuple[float, ...], Traffic4]:
    place = row - int(draft.snapshot.bundles.starts[source])
    return tuple(draft.pressure(source)[place].tolist()), four(draft.expected(source)[place])


def _obstacle(
    draft: Draft, eligible: Eligibility, books: _Books, move: Move, row: int, pressure: Sequence[float]
) -> Code | None:
    """Return the code of the invariant that the move breaks, or None."""
    if not eligible.mask[row]:
        return eligible.codes[row]
    if move.target == move.source:
        return Code.SAME_BROKER
    target = books.rows.get(move.target, -1)
    if target < 0:
        return Code.NO_LEGAL_TARGET
    banned = draft.bans.code(row, books.rows[move.source], target) if draft.bans is not None else None
    if banned is not None:
        return banned
    if draft.permitted is not None and not draft.permitted[draft.snapshot.bundles.namespace[row], target]:
        return Code.POLICY_FORBIDS
    after = books.score(target, pressure)
    if max(after, float(draft.reported[target])) > books.ceiling + SLACK:
        return Code.TARGET_OVERLOADED
    return Code.NO_GAIN if after > books.highest + SLACK else None


def accounted(
    draft: Draft, eligible: Eligibility, moves: Sequence[Move], refusals: Sequence[Refusal], dropped: Sequence[Refusal]
) -> list[Refusal]:
    """Return refusals such that every bundle of every donor has exactly one move or refusal.

    A donor is a broker with a move or a refusal. Bundlekeel's own strategies return such refusals already. For other
    strategies, a refusal from `dropped` replaces the strategy's own. A donor's bundle without a move or refusal gets a
    refusal, with the code of its obstacle, or `Balanced` if it could move and was not chosen.
    """
    bundles, ids = draft.snapshot.bundles, draft.snapshot.brokers.ids
    bundle_refusals = [item for item in refusals if item.bundle]
    donors = {move.source for move in moves} | {item.broker for item in (*bundle_refusals, *dropped)}
    rows = {broker: bundles.rows_of(row) for row, broker in enumerate(ids) if broker in donors}
    if not dropped and len(bundle_refusals) + len(moves) == sum(item.stop - item.start for item in rows.values()):
        return list(refusals)
    moved = {move.bundle for move in moves}
    named = {item.bundle: item for item in (*bundle_refusals, *dropped) if item.bundle not in moved}
    for broker, span in rows.items():
        for row in range(span.start, span.stop):
            name = bundles.names[row]
            if name not in moved and name not in named:
                free = Refusal(code=Code.BALANCED, bundle=name, broker=broker)
                named[name] = free if eligible.mask[row] else eligible.refusal(draft.snapshot, row)
    whole = [item for item in refusals if not item.bundle and item.broker not in donors]
    return [*named.values(), *whole]
