"""What every shedder gets and gives, and the two selections they share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.core.codes import Code
from bundlekeel.core.draft import Draft, Offer
from bundlekeel.core.guard import Eligibility
from bundlekeel.core.load import Floats, Ints
from bundlekeel.core.memory import Memory
from bundlekeel.core.params import Parameters
from bundlekeel.core.placement import Placement
from bundlekeel.core.plan import Refusal, Verdict
from bundlekeel.core.snapshot import Snapshot

# Scores closer than this are equal: 32-bit percentages carry no more.
EPSILON = 1e-6


@dataclass(slots=True, kw_only=True)
class Context:
    """One shedder's input. `unsettled`: brokers whose report does not show all moves yet."""

    snapshot: Snapshot
    draft: Draft
    eligible: Eligibility
    memory: Memory
    params: Parameters
    placement: Placement
    unsettled: frozenset[str]
    seed: int

    @property
    def mean(self) -> float:
        """Mean predicted score over brokers (fsum: the same on any CPU)."""
        scores = self.draft.score.tolist()
        return math.fsum(scores) / len(scores)


@dataclass(slots=True, kw_only=True)
class Decision:
    """One shedder's output; the moves are in the draft."""

    verdict: Verdict
    memory: Memory
    brokers: list[Verdict] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def worthwhile(context: Context, source: int, rows: Ints) -> tuple[Ints, Ints]:
    """Split rows by whether the bundle carries at least `min_unload_share` of the mean score on its broker."""
    start = int(context.snapshot.bundles.starts[source])
    draft = context.draft
    limit = draft.limit[source]
    usable = limit > 0
    weighted = draft.pressure(source)[rows - start][:, usable] / limit[usable] * draft.weights[usable]
    weight: Floats = weighted.max(axis=1, initial=0.0)
    enough = weight >= context.params.min_unload_share * context.mean
    return rows[enough], rows[~enough]


def best_fit(offer: Offer, before: float, want: float, *, ceiling: float) -> int:
    """Index into the offer of the bundle to take, or -1.

    The largest relief of the source that is not above `want`; if none, the smallest relief above it, as long as
    the target ends below `ceiling` and below where the source was: a plan never makes the predicted maximum worse.
    """
    relief = before - offer.source_after
    legal = (offer.target_after < ceiling) & (offer.target_after < before - EPSILON) & (relief > EPSILON)
    fits = legal & (relief <= want + EPSILON)
    if fits.any():
        return int(np.argmax(np.where(fits, relief, -1.0)))
    if legal.any():
        # Too big for the difference, but if even the target stays clearly below the source, it still helps.
        gain = np.maximum(offer.source_after, offer.target_after)
        helps = legal & (gain < before - want / 2)
        if helps.any():
            return int(np.argmin(np.where(helps, gain, np.inf)))
    return -1


def refuse_all(context: Context, source: int, rows: Ints, code: Code, detail: str = "") -> list[Refusal]:
    """The same refusal for several bundles of one broker."""
    names, broker = context.snapshot.bundles.names, context.snapshot.brokers.ids[source]
    return [Refusal(code=code, bundle=names[row], broker=broker, detail=detail) for row in rows.tolist()]
