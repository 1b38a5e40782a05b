"""What every shedder gets and gives, and the two selections they share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.core.guard.eligibility import Eligibility, GuardState
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Ints
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Refusal, Verdict
from bundlekeel.core.model.snapshot import Bools, Snapshot
from bundlekeel.core.planning.draft import Draft, Offer
from bundlekeel.core.planning.memory import Memory
from bundlekeel.core.strategies.placement import Placement

# Scores closer than this are equal: 32-bit percentages carry no more.
EPSILON = 1e-6
# Nobody carries out more moves from one picture of the cluster; what is left is planned on the next one.
HORIZON = 500


@dataclass(slots=True, kw_only=True)
class Context:
    """One shedder's input. `unsettled`: brokers whose report does not show all moves yet; `booked`: those with moves
    in the books, the ones among them too that have had the time to report."""

    snapshot: Snapshot
    draft: Draft
    eligible: Eligibility
    memory: Memory
    params: Parameters
    placement: Placement
    unsettled: frozenset[str]
    seed: int
    guard: GuardState = field(default_factory=GuardState)
    booked: frozenset[str] = frozenset()
    _mean: float | None = None

    def full(self) -> bool:
        """Whether the plan looks far enough ahead: ten cycles' budget. The rest is planned when it may be done."""
        return len(self.draft.moves) >= min(10 * max(self.params.max_moves_per_cycle, 10), HORIZON)

    @property
    def mean(self) -> float:
        """Mean predicted score over brokers before this plan's moves (fsum: the same on any CPU).

        Brokers that the guard closed do not count, unless it closed all: nothing comes to them to even them out.
        """
        if self._mean is None:
            closed = self.draft.closed
            scores = self.draft.score[~closed if not closed.all() else slice(None)].tolist()
            self._mean = math.fsum(scores) / len(scores)
        return self._mean

    def concerned(self) -> Bools:
        """Brokers (mask) that can be evened out with others: not those that take nothing and have nothing to give."""
        closed = self.draft.closed
        found: Bools = ~closed | (self.draft.score > self.mean)
        return found if found.any() else ~found


@dataclass(slots=True, kw_only=True)
class Decision:
    """One shedder's output; the moves are in the draft."""

    verdict: Verdict
    memory: Memory
    brokers: list[Verdict] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows of one donor's bundles: those worth moving, and dust."""

    rows: Ints
    dust: Ints

    def left(self, draft: Draft) -> Ints:
        """Rows worth moving that this draft did not move yet."""
        return self.rows[~draft.moved[self.rows]]


def measured_since(context: Context, row: int, reported: int) -> bool:
    """Whether a broker's figures were measured (`BrokerReport.interval_ms`) and are not those of `reported`, in ms:
    they are of a time that was mostly not over then. Figures that ended before it are of another source: a report has
    the moment at which it was heard."""
    interval = context.snapshot.intervals[row] if context.snapshot.intervals else 0
    last = int(context.snapshot.brokers.last_update[row])
    return bool(interval) and not reported <= last < reported + interval / 2


def candidates(context: Context, source: int) -> Candidates:
    """Split the movable bundles of a broker into those worth a reconnect and dust.

    A bundle is worth it when it carries `min_unload_share` of the mean score, or half of what a mean one of these
    carries: hundreds of equal bundles are small each, and yet they are all there is to move.
    """
    draft = context.draft
    rows = draft.movable(source, context.eligible.mask)
    if len(rows) == 0:
        return Candidates(rows, rows)
    weight = draft.scores(draft.pressure(source)[rows - int(context.snapshot.bundles.starts[source])], source)
    enough = weight >= min(context.params.min_unload_share * context.mean, float(weight.mean()) / 2)
    return Candidates(rows[enough], rows[~enough])


def traffic_of(draft: Draft, source: int, relief: float) -> tuple[float, float]:
    """Messages and bytes a second that leave a broker with this part of its score."""
    score, traffic = float(draft.score[source]), draft.traffic[source].tolist()
    share = min(1.0, max(0.0, relief) / score) if score > 0 else 1.0
    return share * (traffic[RATE_IN] + traffic[RATE_OUT]), share * (traffic[THROUGHPUT_IN] + traffic[THROUGHPUT_OUT])


def best_fit(offer: Offer, before: float, other: float, want: float, *, ceiling: float, slack: float) -> int:
    """Index into the offer of the bundle to take, or -1. `before` and `other`: scores of source and target now.

    Of the bundles that relieve the source by at most `want`, or by up to `slack` more, the one after which the higher
    of both scores is lowest: one that is a little too large interrupts fewer clients than many small ones that fit. If
    there is none, the smallest larger one. More than `want` only as long as it leaves at most half of the difference
    on either side: beyond that it would swap the roles of the two brokers. The target ends below `ceiling` and below
    where the source was: a plan never makes the predicted maximum worse.
    """
    relief = before - offer.source_after
    legal = (offer.target_after < ceiling) & (offer.target_after < before - EPSILON) & (relief > EPSILON)
    fits = legal & (relief <= want + EPSILON)
    quarter = (before - other) / 4 - EPSILON
    helps = legal & (offer.target_after <= before - quarter) & (offer.source_after >= other + quarter)
    near = fits | (helps & (relief <= want + slack + EPSILON))
    if near.any():
        return int(np.argmin(np.where(near, np.maximum(offer.source_after, offer.target_after), np.inf)))
    return int(np.argmin(np.where(helps, relief, np.inf))) if helps.any() else -1


def refuse_all(context: Context, source: int, rows: Ints, code: Code, detail: str = "") -> list[Refusal]:
    """The same refusal for several bundles of one broker."""
    names, rest = context.snapshot.bundles.names, (context.snapshot.brokers.ids[source], detail, None, None, 0)
    return [Refusal._make((code, names[row], *rest)) for row in rows.tolist()]


def refuse_rest(context: Context, source: int, given: Candidates, code: Code, detail: str = "") -> list[Refusal]:
    """One refusal for each bundle of a donor that does not move: its own obstacle, dust, or else `code`."""
    return [
        *context.eligible.refusals(context.snapshot, source),
        *refuse_all(context, source, given.dust, Code.BELOW_MINIMUM),
        *refuse_all(context, source, given.left(context.draft), code, detail),
    ]
