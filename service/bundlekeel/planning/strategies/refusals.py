"""Explain why each bundle of a source broker stays, and why a cycle moves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Ints
from bundlekeel.model.plan import Refusal, Verdict
from bundlekeel.planning.draft import Offer
from bundlekeel.planning.strategies.common import EPSILON, IMMOVABLE, Context, refuse_all

# Codes for missing capacity, not for an unsuitable bundle.
FULL = frozenset({Code.TARGET_OVERLOADED, Code.NO_LEGAL_TARGET})


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedTarget:
    """A target broker to which no bundle could move.

    `offer`: scores of both brokers after the move of each bundle. `other`: present score of the target. `want`: score
    that should have moved.
    """

    offer: Offer
    other: float
    want: float


def refuse_unfit(context: Context, source: int, rows: Ints, attempts: Sequence[TriedTarget]) -> list[Refusal]:
    """Return a refusal for each of these bundles of `source`, after all `attempts` to find a target failed.

    The first target that policies allow determines the code; if policies allow no tried target, all other brokers are
    checked. TargetOverloaded means that only the overload threshold prevents the move: the bundle is small enough for
    the difference, or a split would not help, because the target's headroom is smaller than the difference.
    """
    draft = context.draft
    before, ceiling = float(draft.score[source]), context.params.overloaded_threshold_percent / 100
    order = (Code.NO_GAIN, Code.TARGET_OVERLOADED, Code.TOO_BIG)
    levels: Ints = np.zeros(len(rows), dtype=np.int64)
    for attempt in attempts:
        after, relief = attempt.offer.target_after, before - attempt.offer.source_after
        small = relief <= attempt.want + EPSILON
        over = (after >= ceiling) & (small | (ceiling - attempt.other < attempt.want))
        level = np.where(over, 2, np.where(small | (relief <= EPSILON), 1, 3))
        levels = np.where((levels == 0) & np.isfinite(after), level, levels)
    refusals = _unreached(context, source, rows[levels == 0])
    widest = max((attempt.want for attempt in attempts), default=0.0)
    details = {Code.TOO_BIG: f"only {widest:.1%} may move", Code.TARGET_OVERLOADED: f"limit {ceiling:.0%}"}
    for index, code in enumerate(order, start=1):
        refusals += refuse_all(context, source, rows[levels == index], code, details.get(code, ""))
    return refusals


def _unreached(context: Context, source: int, rows: Ints) -> list[Refusal]:
    """Return refusals of bundles to which policies allow no tried target; the other brokers determine the codes.

    If there are no policies, the guard forbids the targets (see `returning`), or their broker ids are too similar to
    the source's (`find_alike`).
    """
    draft = context.draft
    if draft.allowed is None or not len(rows):
        return refuse_all(context, source, rows, Code.POLICY_FORBIDS)
    allowed = draft.allowed[context.snapshot.bundles.namespace[rows]]
    allowed[:, [source, *draft.alike.get(source, ())]] = False
    legal = allowed & draft.legal_targets()
    codes = np.full(len(rows), Code.NO_LEGAL_TARGET, dtype=object)
    codes[legal.any(axis=1)] = Code.NO_GAIN
    codes[~allowed.any(axis=1)] = Code.POLICY_FORBIDS
    if draft.bans is not None:
        for place in np.flatnonzero(codes == Code.NO_GAIN).tolist():
            row, targets = int(rows[place]), np.flatnonzero(legal[place])
            if draft.bans.forbidden_targets(row, source, targets).all():
                codes[place] = draft.bans.code(row, source, int(targets[0]))
    refusals = []
    for code in (Code.POLICY_FORBIDS, Code.NO_LEGAL_TARGET, Code.QUARANTINED, Code.NO_RETURN, Code.NO_GAIN):
        detail = "no broker that policies allow is less loaded by enough" if code is Code.NO_GAIN else ""
        refusals += refuse_all(context, source, rows[codes == code], code, detail)
    return refusals


def stuck(context: Context, refusals: Sequence[Refusal], who: str) -> Verdict:
    """Return the verdict of a cycle in which brokers should give bundles away, but nothing moves.

    `who`: names these brokers at the start of the sentence.
    """
    limit = context.params.overloaded_threshold_percent
    every = {item.code: item for item in refusals}
    codes = set(every) - IMMOVABLE
    if not context.draft.legal_targets().any() or codes == {Code.NO_LEGAL_TARGET}:
        text = f"{who}, but no other broker may take a bundle: {_no_target(context, refusals)}"
        return Verdict(code=Code.NO_LEGAL_TARGET, sentence=text)
    if codes and codes <= FULL:
        text = f"{who}, but a broker that took a bundle would be above {limit:.0f}% itself; add brokers"
        return Verdict(code=Code.TARGET_OVERLOADED, sentence=text)
    if codes == {Code.TOO_BIG}:
        text = f"{who}, but every bundle is too big for the difference; split it"
        return Verdict(code=Code.UNSPLITTABLE, sentence=text)
    if set(every) == {Code.BELOW_MINIMUM}:
        detail = every[Code.BELOW_MINIMUM].detail or "every bundle is too small"
        return Verdict(code=Code.BELOW_MINIMUM, sentence=f"{who}, but it is below the minimum: {detail}")
    return Verdict(code=Code.NO_BUNDLES, sentence=f"{who}, but moving no bundle would improve the balance")


def _no_target(context: Context, refusals: Sequence[Refusal]) -> str:
    """Return as text why the brokers other than the sources of `refusals` accept no bundle, and what to do."""
    draft, params = context.draft, context.params
    sources = {item.broker for item in refusals}
    others = draft.members & ~draft.legal_targets()
    listed = others & np.array([broker not in sources for broker in context.snapshot.brokers.ids])
    others = listed if listed.any() else others
    limit, most = params.overloaded_threshold_percent, params.max_topics_per_broker
    above = np.maximum(draft.score, draft.reported) > limit / 100
    topics = f"has max_topics_per_broker ({most}) topics or more"
    if context.snapshot.mode != "extensible":
        topics = f"has more topics than max_topics_per_broker ({most})"
    reasons = (
        (draft.closed, "is closed (cordon, drain or exclusion)", "end a cordon or drain"),
        (above & ~draft.closed, f"is above {limit:.0f}%", ""),
        (~(above | draft.closed), topics, "raise max_topics_per_broker"),
    )
    named = [(reason, fix) for brokers, reason, fix in reasons if (others & brokers).any()]
    if not named:
        return "policies allow none; add brokers"
    fixes = [fix for _, fix in named if fix]
    ways = f"{', '.join(fixes)}, or add brokers" if fixes else "add brokers"
    return f"each {' or '.join(reason for reason, _ in named)}; {ways}"
