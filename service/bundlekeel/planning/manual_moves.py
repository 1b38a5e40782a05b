"""Plan the moves that an operator requests for single bundles. Pure.

An operator may move an idle bundle and, with `override_cool_down`, a bundle that moved recently, also back to its old
broker. Pins (operators' rules that a bundle stays), exclusions, policies, and moves in progress or left unfinished by
an earlier leader apply as in every plan. Brokers that are cordoned, overloaded or full receive nothing. Nothing moves
while too few brokers report or too many changed at the same time, nor beyond the hourly budget. The other budgets, the
adaptive rate, quarantined pairs, the roll-out hold and windows do not apply. If an operator unloads many bundles, the
budgets of a cycle and the adaptive rate apply, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.plan import BrokerLoad, Move, Refusal
from bundlekeel.model.text_format import clock_text
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.filters.allowed import limits_of
from bundlekeel.planning.guard.budgets import CYCLE_BUDGETS, GENTLE, admit, hour_refusal
from bundlekeel.planning.guard.eligibility import completeness, rest_ms
from bundlekeel.planning.guard.holds import hold_of
from bundlekeel.planning.guard.scope import closed_brokers
from bundlekeel.planning.guard.stops import bans_of
from bundlekeel.planning.relocation import by_person
from bundlekeel.planning.situation import Situation

RULE = "by hand"
# Obstacles that can disappear in a later cycle. A request for many bundles waits until they do.
PASSING: Final = (
    CYCLE_BUDGETS
    | GENTLE
    | {
        Code.ANTI_AFFINITY,
        Code.IN_TRANSIT,
        Code.FROZEN_INTENT,
        Code.SEGMENTS_CHANGED,
        Code.SEGMENT_ABOVE_LIMIT,
        Code.INCOMPLETE_PICTURE,
        Code.BLAST_RADIUS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCandidate:
    """A possible target broker of a manual move: its scores (ratios) without and with the bundle, or the obstacle."""

    broker: str
    score_before: float
    score_after: float | None = None
    code: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualPlan:
    """Result of an operator's request to move one bundle: the move or the refusal.

    `candidates`: score or obstacle of every other broker. `loads`: all brokers before and after the move.
    """

    move: Move | None = None
    refusal: Refusal | None = None
    candidates: tuple[TargetCandidate, ...] = ()
    loads: tuple[BrokerLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unloads:
    """Result of a request to unload many bundles.

    `moves`: moves for this and later cycles, largest first. `admitted`: those of them that the budgets of this cycle
    allow. `waiting`: why the other bundles wait for a later cycle. `refused`: why bundles do not move at all.
    """

    moves: tuple[Move, ...]
    admitted: tuple[Move, ...]
    waiting: tuple[Refusal, ...]
    refused: tuple[Refusal, ...]


def manual_move(
    situation: Situation, bundle: str, source: str, target: str = "", *, override_cool_down: bool = False
) -> ManualPlan:
    """Plan the move of this bundle from its owner to `target`; "": to the broker with most headroom.

    The snapshot must contain the bundle at its owner (planning/owned.py). `override_cool_down`: allow the move although
    the bundle moved recently, also back to the broker it came from.
    """
    manual = _ManualDraft(situation, override=override_cool_down)
    result = manual.plan(bundle, source, target)
    return replace(result, loads=manual.draft.loads(manual.draft.moves)) if result.move is not None else result


def unload_all(situation: Situation, sources: Mapping[str, str], *, override_cool_down: bool = False) -> Unloads:
    """Plan to move each of these bundles (bundle -> owner), one after another, to the broker with most headroom.

    The rules of `manual_move` apply, and in addition the budgets of a cycle and the adaptive rate.
    """
    manual, bundles = _ManualDraft(situation, override=override_cool_down), situation.snapshot.bundles
    traffic = {bundles.names[row]: float(bundles.short[row].sum()) for row in bundles.rows_named(sources)}
    ordered = sorted(sources, key=lambda bundle: (-traffic.get(bundle, 0.0), bundle))
    refusals = [
        result.refusal
        for result in (manual.plan(name, sources[name]) for name in ordered)
        if result.refusal is not None
    ]
    admitted, held_back = admit(
        manual.draft.moves,
        situation.params,
        situation.guard,
        situation.snapshot.wall_ms,
        manual.draft.carried(),
        swaps=False,
    )
    refusals += held_back
    refused = {item.bundle: item for item in refusals if not _passes(item)}
    return Unloads(
        moves=tuple(move for move in manual.draft.moves if move.bundle not in refused),
        admitted=admitted,
        waiting=tuple(item for item in refusals if item.bundle not in refused),
        refused=tuple(refused.values()),
    )


def _passes(refusal: Refusal) -> bool:
    """Return whether the obstacle can disappear in a later cycle. A budget of 0 never allows a move."""
    return refusal.code in PASSING and (refusal.limit != 0 or refusal.code is Code.ADAPTIVE_RATE)


class _ManualDraft:
    """Plans requested moves one at a time, by the rules for operators; each uses the load after earlier moves."""

    def __init__(self, situation: Situation, *, override: bool) -> None:
        snapshot = situation.snapshot
        self._situation = situation
        self._override = override
        self.draft = Draft(snapshot, situation.ledger, situation.params, situation.memory.turn, situation.memory.costs)
        limits = limits_of(snapshot, situation.policies, situation.ledger)
        if limits is not None:
            self.draft.restrict(limits.mask, limits.group)
        self._movable, self._eligibility = by_person(situation)
        self._shut = closed_brokers(snapshot.brokers.ids, situation.guard, situation.params, snapshot.wall_ms)
        self.draft.close(self._shut)
        self._bans = None if override else bans_of(snapshot, situation.guard, situation.params)
        self._unsettled = situation.ledger.bundles()
        self._stopped = _stopped(situation)

    def plan(self, bundle: str, source: str, target: str = "") -> ManualPlan:
        """Plan the move of this bundle to `target` ("": the best broker); return the move or the refusal."""
        index, draft = self.draft.snapshot.brokers.rows, self.draft
        row = next(iter(self._situation.snapshot.bundles.rows_named({bundle})), -1)
        if source not in index or row < 0:
            return _refused(bundle, source, Code.NO_LOAD_DATA, "its broker has no usable report")
        if target and target not in index:
            return _refused(bundle, source, Code.NO_LEGAL_TARGET, f"{target} has no usable report")
        # The broker (row) to which the bundle may not return yet, and from when (ms) it may; -1: none.
        left, left_until = self._bans.back.get(row, (-1, 0)) if self._bans is not None else (-1, 0)
        candidates = self._candidates(row, index[source], left)
        if self._stopped is not None:
            refusal = self._stopped._replace(bundle=bundle, broker=source)
            return ManualPlan(refusal=refusal, candidates=tuple(candidates))
        code, detail = (Code.SAME_BROKER, "") if target == source else self._bound(row)
        fitting = [item for item in candidates if item.code is None and target in ("", item.broker)]
        if code is None and not fitting:
            named = next((item.code for item in candidates if item.broker == target), None)
            code, detail = named or Code.NO_LEGAL_TARGET, target
            if code is Code.NO_RETURN:
                detail = f"{target}, until {clock_text(left_until)}"
        if code is not None:
            return _refused(bundle, source, code, detail, candidates)
        best, *others = sorted(
            fitting, key=lambda item: (item.score_after or 0.0, draft.bundle_count[index[item.broker]])
        )
        runner_up = index[others[0].broker] if others else -1
        move = draft.take(row, index[source], index[best.broker], rule=RULE, threshold=0.0, runner_up=runner_up)
        return ManualPlan(move=move, candidates=tuple(candidates))

    def _bound(self, row: int) -> tuple[Code | None, str]:
        """Return the code and detail of the reason why this bundle (row) may not move to any broker; None: it may."""
        snapshot, guard = self._situation.snapshot, self._situation.guard
        if not self._movable[row]:
            return self._eligibility.codes[row], ""
        if self.draft.held[snapshot.bundles.namespace[row]]:
            return Code.ANTI_AFFINITY, ""
        name = snapshot.bundles.names[row]
        moved = guard.recent.get(name)
        until = moved.at_ms + rest_ms(guard, self._situation.params, name) if moved is not None else 0
        if not self._override and until > snapshot.wall_ms:
            return Code.COOL_DOWN, f"until {clock_text(until)}"
        if not self._override and name in self._unsettled:
            return Code.UNSETTLED, "the reports of both brokers do not show its last move yet"
        return None, ""

    def _candidates(self, row: int, source: int, left: int) -> list[TargetCandidate]:
        """Return the score or obstacle of all brokers but `source`, in id order.

        `left`: the broker (row) that the bundle left recently, or -1.
        """
        draft = self.draft
        ids, bundles = self._situation.snapshot.brokers.ids, self._situation.snapshot.bundles
        others = np.array([target for target in range(len(ids)) if target != source], dtype=np.int64)
        after = draft.with_bundle(row, source, others)
        legal, limit = draft.legal_targets(), self._situation.params.overloaded_threshold_percent / 100
        idle = not draft.pressure(source)[row - int(bundles.starts[source])].any()
        targets = []
        for target, score in zip(others.tolist(), after.tolist(), strict=True):
            code = self._shut.get(target)
            if code is None and not np.isfinite(score):
                alike = target in draft.alike.get(source, ())
                code = Code.ALIKE_BROKERS if alike else Code.POLICY_FORBIDS
            if code is None and target == left:
                code = Code.NO_RETURN
            if code is None and not idle and (not legal[target] or score > limit):
                code = Code.TARGET_OVERLOADED
            targets.append(
                TargetCandidate(
                    broker=ids[target],
                    score_before=float(draft.score[target]),
                    score_after=score if np.isfinite(score) else None,
                    code=code,
                )
            )
        return targets


def _refused(
    bundle: str, source: str, code: Code, detail: str, candidates: list[TargetCandidate] | None = None
) -> ManualPlan:
    return ManualPlan(refusal=Refusal(code, bundle, source, detail), candidates=tuple(candidates or ()))


def _stopped(situation: Situation) -> Refusal | None:
    """Return why nothing at all may move now: the snapshot may be wrong, or the hourly budget is used up."""
    snapshot, params, guard = situation.snapshot, situation.params, situation.guard
    hold = hold_of(snapshot, guard, params)
    if hold is not None and hold.everything:
        return Refusal(hold.code, detail=hold.sentence)
    return completeness(snapshot, params) or hour_refusal(params, guard, snapshot.wall_ms)
