"""Invariants: the final check of the moves of any shedder, ours, Pulsar's (`compat`) or a third party's.

A move is dropped, with a typed refusal, when it goes to its own source, to an unknown or dead broker, to one that
policies or the guard forbid or that is or would be overloaded; when its bundle may not move (idle, system, cooling
down, under way, excluded, ...) or is not where the move says; and when it would lift its target above the highest
score there was.
So no plan, nor any part of it, makes the predicted maximum worse. The corrected strategies keep these invariants by
themselves; nothing of theirs is ever dropped (tests/property/test_strategy_laws.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bundlekeel.core.guard.eligibility import Eligibility
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import RESOURCES
from bundlekeel.core.model.plan import Move, Refusal, Traffic4
from bundlekeel.core.planning.draft import Draft, four

# Scores are compared after sums in another order and in 32-bit percentages.
SLACK = 1e-5
NOTHING: Sequence[float] = (0.0,) * len(RESOURCES)
NO_TRAFFIC: Traffic4 = (0.0, 0.0, 0.0, 0.0)


class _Books:
    """Usage of brokers while moves are checked one by one, and what they are checked against."""

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
        """The broker's score with this on it."""
        rows = zip(self._usage(broker), pressure, self._limits[broker].tolist(), self._weights, strict=True)
        return max((weight * (used + more) / limit for used, more, limit, weight in rows if limit > 0), default=0.0)

    def add(self, broker: int, pressure: Sequence[float], sign: int) -> None:
        """A bundle comes to a broker (1), or leaves it (-1)."""
        self._changed[broker] = [max(a + sign * b, 0.0) for a, b in zip(self._usage(broker), pressure, strict=True)]


def lawful(draft: Draft, eligible: Eligibility, moves: Iterable[Move]) -> tuple[tuple[Move, ...], list[Refusal]]:
    """Those of the moves, in their order, that keep the invariants, and a refusal for each other one.

    What a bundle carries and uses is the draft's own figure, whatever the move says, and where moves of the draft are
    missing, the scores of the others are told without them. A second move of a bundle is left
    out without a refusal: the first one accounts for it.
    """
    books, held = _Books(draft), set[int]()
    kept: dict[str, Move] = {}
    refused: dict[str, Refusal] = {}
    for move in moves:
        if move.bundle in kept or move.bundle in refused:
            continue
        row = _row(draft, books, move)
        group = draft.group_of(int(draft.snapshot.bundles.namespace[row])) if row >= 0 else -1
        pressure, traffic = _figures(draft, books.rows[move.source], row) if row >= 0 else ((), NO_TRAFFIC)
        code = Code.OWNER_CHANGED if row < 0 else _obstacle(draft, eligible, books, move, row, pressure)
        if code is None and group in held:
            # Where the others of its anti-affinity group may go then, only the next snapshot shows.
            code = Code.ANTI_AFFINITY
        if code is not None:
            bound = row >= 0 and not eligible.mask[row]
            detail = eligible.refusal(draft.snapshot, row).detail if bound else ""
            refused[move.bundle] = Refusal(code, move.bundle, move.source, detail or "final check")
            continue
        if group >= 0:
            held.add(group)
        books.add(books.rows[move.source], pressure, -1)
        books.add(books.rows[move.target], pressure, 1)
        same = move.pressure == pressure and move.traffic == traffic
        kept[move.bundle] = move if same else replace(move, pressure=pressure, traffic=traffic)
    whole = len(kept) == len(draft.moves) == np.count_nonzero(draft.moved)
    return tuple(kept.values() if whole else _restated(draft, kept.values())), list(refused.values())


def _restated(draft: Draft, moves: Iterable[Move]) -> Iterator[Move]:
    """The moves with the scores that hold when only these are made."""
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
    """The bundle's row, or -1 when the move's source does not have it."""
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
    """The invariant that the move breaks, or None."""
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
    """Refusals that, with the moves, name every bundle of every donor exactly once.

    Our strategies' own do; of others, what is dropped here wins over what the strategy says, and a donor's bundle that
    the strategy does not mention has its own obstacle, or was simply not chosen (`Balanced`).
    """
    bundles, ids = draft.snapshot.bundles, draft.snapshot.brokers.ids
    told = [item for item in refusals if item.bundle]
    donors = {move.source for move in moves} | {item.broker for item in (*told, *dropped)}
    rows = {broker: bundles.rows_of(row) for row, broker in enumerate(ids) if broker in donors}
    if not dropped and len(told) + len(moves) == sum(item.stop - item.start for item in rows.values()):
        return list(refusals)
    moved = {move.bundle for move in moves}
    named = {item.bundle: item for item in (*told, *dropped) if item.bundle not in moved}
    for broker, span in rows.items():
        for row in range(span.start, span.stop):
            name = bundles.names[row]
            if name not in moved and name not in named:
                free = Refusal(code=Code.BALANCED, bundle=name, broker=broker)
                named[name] = free if eligible.mask[row] else eligible.refusal(draft.snapshot, row)
    whole = [item for item in refusals if not item.bundle and item.broker not in donors]
    return [*named.values(), *whole]
