"""Why bundles of a donor found no place, bundle by bundle, and the verdict when nothing moves at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.model.plan import Refusal, Verdict
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.planning.draft import Offer
from bundlekeel.core.strategies.common import EPSILON, Context, refuse_all

# Bundles with these codes could not move whatever their size and whatever the target.
IMMOVABLE = frozenset({Code.IDLE, Code.SYSTEM_BUNDLE, Code.EXCLUDED, Code.BELOW_MINIMUM})
# Codes that say that there is no room, not that a bundle is unsuitable.
FULL = frozenset({Code.TARGET_OVERLOADED, Code.NO_LEGAL_TARGET})


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedTarget:
    """One target that was tried: what each bundle would do, the target's score now, how much score should move."""

    offer: Offer
    other: float
    want: float


def refuse_unfit(context: Context, source: int, rows: Ints, attempts: Sequence[TriedTarget]) -> list[Refusal]:
    """One refusal for each of these bundles after all attempts failed; the first target that policies allow tells.

    TargetOverloaded: it is the overload threshold that stands in the way, either because the bundle is small enough
    for the difference, or because the target's room is smaller still than the difference (a split would not help).
    """
    draft = context.draft
    before, ceiling = float(draft.score[source]), context.params.overloaded_threshold_percent / 100
    order = (Code.POLICY_FORBIDS, Code.NO_GAIN, Code.TARGET_OVERLOADED, Code.TOO_BIG)
    chosen: Ints = np.zeros(len(rows), dtype=np.int64)
    for attempt in attempts:
        after, relief = attempt.offer.target_after, before - attempt.offer.source_after
        small = relief <= attempt.want + EPSILON
        over = (after >= ceiling) & (small | (ceiling - attempt.other < attempt.want))
        told = np.where(over, 2, np.where(small | (relief <= EPSILON), 1, 3))
        chosen = np.where((chosen == 0) & np.isfinite(after), told, chosen)
    widest = max((attempt.want for attempt in attempts), default=0.0)
    details = {Code.TOO_BIG: f"only {widest:.1%} may move", Code.TARGET_OVERLOADED: f"limit {ceiling:.0%}"}
    refusals: list[Refusal] = []
    for index, code in enumerate(order):
        refusals += refuse_all(context, source, rows[chosen == index], code, details.get(code, ""))
    return refusals


def stuck(context: Context, refusals: Sequence[Refusal], who: str) -> Verdict:
    """The cycle's verdict when `who` should shed and nothing moves: full, unsplittable, or no suitable bundle."""
    limit = context.params.overloaded_threshold_percent
    every = {item.code: item for item in refusals}
    codes = set(every) - IMMOVABLE
    if not context.draft.legal_targets().any() or codes == {Code.NO_LEGAL_TARGET}:
        closed = "; end a cordon or drain, or add brokers" if context.draft.closed.any() else "; add brokers"
        text = f"{who}, but no other broker may take a bundle: each is above {limit:.0f}%, full of topics or closed"
        return Verdict(code=Code.NO_LEGAL_TARGET, sentence=text + closed)
    if codes and codes <= FULL:
        text = f"{who}, but whoever took a bundle would be above {limit:.0f}% itself; add brokers"
        return Verdict(code=Code.TARGET_OVERLOADED, sentence=text)
    if codes == {Code.TOO_BIG}:
        text = f"{who}, but every bundle is too big for the difference; split it"
        return Verdict(code=Code.UNSPLITTABLE, sentence=text)
    if set(every) == {Code.BELOW_MINIMUM}:
        detail = every[Code.BELOW_MINIMUM].detail or "every bundle is too small"
        return Verdict(code=Code.BELOW_MINIMUM, sentence=f"{who}, but it is below the minimum: {detail}")
    return Verdict(code=Code.NO_BUNDLES, sentence=f"{who}, but no bundle would make it better")


def legal_after(offer_after: Floats, before: float, ceiling: float) -> Bools:
    """Targets (or bundles) whose score stays below the ceiling and below where the source was."""
    legal: Bools = (offer_after < ceiling) & (offer_after < before - EPSILON)
    return legal
