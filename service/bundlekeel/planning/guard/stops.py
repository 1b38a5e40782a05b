"""Apply holds and target bans to a plan.

A hold is a reason to move nothing, or only off overloaded brokers. A target ban forbids moves to a broker, for all
bundles or for some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Refusal, Verdict
from bundlekeel.model.snapshot import Bools, Snapshot
from bundlekeel.model.text_format import clock_text
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.guard.holds import Hold
from bundlekeel.planning.guard.scope import closed_brokers
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.target_bans import TargetBans

# Codes of a bundle without a target, which may be due to a target ban that the strategy does not know.
_NOWHERE = frozenset({Code.POLICY_FORBIDS, Code.NO_LEGAL_TARGET, Code.NO_GAIN, Code.NO_RETURN})


def stopped(hold: Hold | None) -> Verdict | None:
    """Return the verdict of a hold that stops all moves; None if something may move."""
    if hold is None or not hold.everything:
        return None
    return Verdict(code=hold.code, sentence=hold.sentence)


def calm_brokers(draft: Draft) -> Bools:
    """Return a mask of the brokers that are not overloaded.

    They keep their bundles during a hold (a state in which only overloaded brokers may give bundles away).
    """
    calm: Bools = draft.score <= draft.params.overloaded_threshold_percent / 100
    return calm


def relief_only(
    moves: Sequence[Move], hold: Hold | None, params: Parameters
) -> tuple[tuple[Move, ...], tuple[Refusal, ...]]:
    """Split moves into those that a hold allows (the source is overloaded) and refusals of the others.

    Without a hold (None), all moves are allowed.
    """
    if hold is None:
        return tuple(moves), ()
    limit = params.overloaded_threshold_percent / 100
    waiting = [move for move in moves if move.source_before <= limit]
    detail = f"{{}} is not above {limit:.0%} any more"
    refusals = (
        Refusal(hold.code, move.bundle, move.source, detail.format(move.source), frees_ms=hold.until_ms)
        for move in waiting
    )
    return tuple(move for move in moves if move.source_before > limit), tuple(refusals)


def returning(refusals: Sequence[Refusal], draft: Draft) -> list[Refusal]:
    """Return the refusals; those caused by a target ban get the code of the ban, and its end if known."""
    if draft.bans is None or not (draft.bans.back or draft.bans.pairs):
        return list(refusals)
    names, ids = draft.snapshot.bundles.names, draft.snapshot.brokers.ids
    ways = {names[row]: way for row, way in draft.bans.back.items()}
    useless = {ids[source] for source, _ in draft.bans.pairs} if draft.permitted is None else set[str]()
    refusals = [
        item._replace(code=Code.QUARANTINED)
        if item.code is Code.POLICY_FORBIDS and item.broker in useless and item.bundle not in ways
        else item
        for item in refusals
    ]
    return [
        item._replace(
            code=Code.NO_RETURN,
            detail=f"not back to {ids[ways[item.bundle][0]]} before {clock_text(ways[item.bundle][1])}",
            frees_ms=ways[item.bundle][1],
        )
        if item.bundle in ways and item.code in _NOWHERE
        else item
        for item in refusals
    ]


def verdict_of(verdict: Verdict, refusals: Sequence[Refusal], hold: Hold | None, acts: bool) -> Verdict:
    """Return the verdict; if the hold refused a move, with the hold's sentence added.

    A hold is a reason to move nothing, or only off overloaded brokers. `acts`: whether the plan has moves; if not, the
    verdict is that of the hold.
    """
    if hold is None or not any(item.code is hold.code for item in refusals):
        return verdict
    if acts:
        return replace(verdict, sentence=f"{verdict.sentence}; {hold.sentence}")
    return Verdict(code=hold.code, sentence=hold.sentence)


def bans_of(snapshot: Snapshot, guard: GuardState, params: Parameters) -> TargetBans | None:
    """Return the brokers to which the guard forbids moves at the snapshot's time; None: there are no bans."""
    index = snapshot.brokers.rows
    closed = closed_brokers(snapshot.brokers.ids, guard, params, snapshot.wall_ms)
    pairs = frozenset(
        (index[source], index[target])
        for (source, target), expiry in guard.quarantined.items()
        if source in index and target in index and expiry > snapshot.wall_ms
    )
    back = _ways_back(snapshot, guard, params, index)
    return TargetBans(closed=closed, back=back, pairs=pairs) if closed or back or pairs else None


def _ways_back(
    snapshot: Snapshot, guard: GuardState, params: Parameters, index: Mapping[str, int]
) -> dict[int, tuple[int, int]]:
    length = int(1000 * params.no_return_seconds)
    free_at = {
        name: (index[moved.source], moved.at_ms + length)
        for name, moved in guard.recent.items()
        if moved.source in index and moved.at_ms + length > snapshot.wall_ms
    }
    names, owner = snapshot.bundles.names, snapshot.bundles.owner
    rows = snapshot.bundles.rows_named(free_at)
    return {row: free_at[names[row]] for row in rows if int(owner[row]) != free_at[names[row]][0]}
