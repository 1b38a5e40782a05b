"""One bundle moved because a person asked for it: the same draft and guard as any plan, every broker's answer. Pure.

A person may move an idle bundle, and, saying so, one that moved lately, also straight back. Pins, exclusions, policies,
moves under way and frozen intents bind him as they bind the balancer; brokers that are cordoned, overloaded or full
take nothing. Nothing moves while too few brokers are seen or too many changed at once, nor beyond the budget of an
hour. The other budgets, the adaptive rate, quarantined pairs, the roll-out hold and windows do not bind him.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bundlekeel.core.bars import bars_of
from bundlekeel.core.budgets import hour_refusal
from bundlekeel.core.codes import Code
from bundlekeel.core.draft import Draft
from bundlekeel.core.filters.allowed import limits_of
from bundlekeel.core.guard import completeness, rest_ms
from bundlekeel.core.holds import hold_of
from bundlekeel.core.moments import clock_text
from bundlekeel.core.operations.stage import Request, by_person
from bundlekeel.core.plan import BrokerLoad, Move, Refusal
from bundlekeel.core.scope import closed_brokers

RULE = "by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One broker for the bundle: scores as ratios, with the bundle on it too, or the code that says why not there."""

    broker: str
    score_before: float
    score_after: float | None = None
    code: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandPlan:
    """What would be done: the move, or why there is none. `candidates`: what every other broker says to it."""

    bundle: str
    source: str
    move: Move | None = None
    refusal: Refusal | None = None
    candidates: tuple[Candidate, ...] = ()
    loads: tuple[BrokerLoad, ...] = ()


def by_hand(
    given: Request, bundle: str, source: str, target: str = "", *, override_cool_down: bool = False
) -> HandPlan:
    """The move of this bundle from its owner to `target`, or to the broker with most room when none is named.

    The snapshot must name the bundle at its owner (core/operations/owned.py). `override_cool_down`: although it moved
    lately, also back to the broker it came from.
    """
    snapshot = given.snapshot
    index = {broker: row for row, broker in enumerate(snapshot.brokers.ids)}
    draft = Draft(snapshot, given.ledger, given.params, given.memory.turn, given.memory.idle)
    limits = limits_of(snapshot, given.policies, given.ledger)
    if limits is not None:
        draft.restrict(limits.mask, limits.group)
    row = next(iter(snapshot.bundles.rows_named({bundle})), -1)
    if source not in index or row < 0:
        return _refused(bundle, source, Code.NO_LOAD_DATA, "its broker has no usable report")
    if target and target not in index:
        return _refused(bundle, source, Code.NO_LEGAL_TARGET, f"{target} has no usable report")
    left, left_until = (-1, 0) if override_cool_down else _came_from(given, row)
    candidates = _candidates(given, draft, row, index[source], left)
    code, detail = _stopped(given)
    if code is None:
        code, detail = _bound(given, row, override=override_cool_down)
    if code is None and target == source:
        code = Code.SAME_BROKER
    fitting = [item for item in candidates if item.code is None and target in ("", item.broker)]
    if code is None and not fitting:
        named = next((item.code for item in candidates if item.broker == target), None)
        code, detail = named or Code.NO_LEGAL_TARGET, target
        if code is Code.NO_RETURN:
            detail = f"{target}, until {clock_text(left_until)}"
    if code is not None:
        return _refused(bundle, source, code, detail, candidates)
    best, *others = sorted(fitting, key=lambda item: (item.score_after or 0.0, draft.bundle_count[index[item.broker]]))
    runner_up = index[others[0].broker] if others else -1
    move = draft.take(row, index[source], index[best.broker], rule=RULE, threshold=0.0, runner_up=runner_up)
    return HandPlan(
        bundle=bundle, source=source, move=move, candidates=tuple(candidates), loads=draft.loads(draft.moves)
    )


def _refused(bundle: str, source: str, code: Code, detail: str, candidates: list[Candidate] | None = None) -> HandPlan:
    refusal = Refusal(code, bundle, source, detail)
    return HandPlan(bundle=bundle, source=source, refusal=refusal, candidates=tuple(candidates or ()))


def _stopped(given: Request) -> tuple[Code | None, str]:
    """Why nothing may move at all now, whatever a person says: the picture may be wrong, or the hour is used up."""
    snapshot, params, guard = given.snapshot, given.params, given.guard
    hold = hold_of(snapshot, guard, params)
    if hold is not None and hold.everything:
        return hold.code, hold.sentence
    refusal = completeness(snapshot, params) or hour_refusal(params, guard, snapshot.wall_ms)
    return (refusal.code, refusal.detail) if refusal is not None else (None, "")


def _came_from(given: Request, row: int) -> tuple[int, int]:
    """The broker (row) that the bundle left so lately that it does not go back, and from when (ms) it may; -1: none."""
    bars = bars_of(given.snapshot, given.guard, given.params)
    return bars.back.get(row, (-1, 0)) if bars is not None else (-1, 0)


def _bound(given: Request, row: int, *, override: bool) -> tuple[Code | None, str]:
    """Why the bundle itself may not move."""
    movable, found = by_person(given)
    if not movable[row]:
        return found.codes[row], ""
    name = given.snapshot.bundles.names[row]
    moved = given.guard.recent.get(name)
    until = moved.at_ms + rest_ms(given.guard, given.params, name) if moved is not None else 0
    if not override and until > given.snapshot.wall_ms:
        return Code.COOL_DOWN, f"{(until - given.snapshot.wall_ms) / 1000:.0f} s left"
    if not override and name in given.ledger.bundles():
        return Code.UNSETTLED, "its last move does not show in both reports yet"
    return None, ""


def _candidates(given: Request, draft: Draft, row: int, source: int, left: int) -> list[Candidate]:
    """What every other broker says to the bundle, in id order. `left`: the broker it does not go back to, -1: none."""
    ids, bundles = given.snapshot.brokers.ids, given.snapshot.bundles
    others = np.array([target for target in range(len(ids)) if target != source], dtype=np.int64)
    after = draft.with_bundle(row, source, others)
    legal, limit = draft.legal_targets(), given.params.overloaded_threshold_percent / 100
    idle = not draft.pressure(source)[row - int(bundles.starts[source])].any()
    shut = closed_brokers(ids, given.guard, given.params, given.snapshot.wall_ms)
    found = []
    for target, score in zip(others.tolist(), after.tolist(), strict=True):
        code = shut.get(target)
        if code is None and not np.isfinite(score):
            alike = target in draft.alike.get(source, ())
            code = Code.ALIKE_BROKERS if alike else Code.POLICY_FORBIDS
        if code is None and target == left:
            code = Code.NO_RETURN
        if code is None and not idle and (not legal[target] or score > limit):
            code = Code.TARGET_OVERLOADED
        found.append(
            Candidate(
                broker=ids[target],
                score_before=float(draft.score[target]),
                score_after=score if np.isfinite(score) else None,
                code=code,
            )
        )
    return found
