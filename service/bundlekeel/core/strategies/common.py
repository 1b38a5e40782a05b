"""What every shedder gets and gives, and the two selections they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.core.guard.eligibility import Eligibility
from bundlekeel.core.guard.state import GuardState
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats, Ints
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import GroupVerdict, Move, Refusal, Verdict
from bundlekeel.core.model.snapshot import Bools, Snapshot
from bundlekeel.core.planning.draft import Draft, Offer
from bundlekeel.core.planning.memory import BrokerCourse, StrategyMemory
from bundlekeel.core.strategies.placement import Placement

# Scores closer than this are equal: 32-bit percentages carry no more.
EPSILON = 1e-6
# At most so many moves are planned on one snapshot of the cluster; the rest is planned on the next one.
HORIZON = 500
# Bundles with these codes could not move whatever their size and whatever the target.
IMMOVABLE = frozenset(
    {Code.IDLE, Code.SYSTEM_BUNDLE, Code.V1_NAMESPACE, Code.EXCLUDED, Code.NOT_TAKEN_OVER, Code.BELOW_MINIMUM}
)


@dataclass(slots=True, kw_only=True)
class Context:
    """One shedder's input. `unsettled`: brokers whose report does not show all moves, or their CPU use, yet. `courses`,
    `seconds`: of the decision rule (`calm.follow_levels`); `doubt`: part of each broker's difference that may be noise,
    shape (n,). `planned`: number of moves that groups before this one have planned."""

    snapshot: Snapshot
    draft: Draft
    eligible: Eligibility
    memory: StrategyMemory
    params: Parameters
    placement: Placement
    unsettled: frozenset[str]
    seed: int
    guard: GuardState = field(default_factory=GuardState)
    courses: Mapping[str, BrokerCourse] = field(default_factory=dict)
    seconds: Floats = field(default_factory=lambda: np.zeros(1))
    doubt: Floats = field(default_factory=lambda: np.zeros(1))
    planned: int = 0
    _mean: float | None = None
    _base: float | None = None

    def full(self) -> bool:
        """Whether the plan looks far enough ahead: ten cycles' budget. The rest is planned when it may be done."""
        return len(self.draft.moves) >= min(10 * max(self.params.max_moves_per_cycle, 10), HORIZON)

    @property
    def moves(self) -> list[Move]:
        """Moves of this plan between members."""
        return self.draft.moves[self.planned :]

    @property
    def rows(self) -> list[int]:
        """Rows of the members: the brokers that can exchange bundles with each other."""
        found: list[int] = np.flatnonzero(self.draft.members).tolist()
        return found

    @property
    def mean(self) -> float:
        """Mean predicted score over the members that share the load, before this plan's moves."""
        if self._mean is None:
            self._mean = self.draft.mean()
        return self._mean

    @property
    def base(self) -> float:
        """Score that all members keep without any bundle, as estimated before this plan's moves."""
        if self._base is None:
            self._base = float(self.draft.base_score()[self.draft.members].min(initial=self.mean))
        return self._base

    def concerned(self) -> Bools:
        """Return the members (mask) that can be balanced with others: not those that take nothing and have nothing to
        give."""
        draft = self.draft
        found: Bools = draft.members & (~draft.closed | (draft.score > self.mean))
        return found if found.any() else draft.members


def counting(context: Context) -> Bools:
    """Return the concerned brokers (mask) without those above the mean whose bundles an operator excluded.

    Such a broker gives nothing away, so the other brokers cannot reach a mean that includes it.
    """
    draft, bundles, concerned = context.draft, context.snapshot.bundles, context.concerned()
    kept = context.eligible.codes.rows_with((Code.EXCLUDED, Code.NOT_TAKEN_OVER))
    if not kept:
        return concerned
    free = np.ones(len(bundles), dtype=bool)
    free[context.eligible.codes.rows_with(IMMOVABLE - {Code.BELOW_MINIMUM})] = False
    some, others = (np.bincount(bundles.owner[rows], minlength=len(concerned)) > 0 for rows in (kept, free))
    found: Bools = concerned & ~(some & ~others & (draft.score > context.mean))
    return found if found.any() else concerned


@dataclass(slots=True, kw_only=True)
class Decision:
    """One shedder's output; the moves are in the draft. `sides`: `hot` or `cold`, by broker that gives or takes; empty
    if the decision rule is not used."""

    verdict: Verdict
    memory: StrategyMemory
    brokers: list[Verdict] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    groups: tuple[GroupVerdict, ...] = ()
    sides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows of one donor's bundles: those worth moving, and dust."""

    rows: Ints
    dust: Ints

    def left(self, draft: Draft) -> Ints:
        """Rows worth moving that this draft did not move yet."""
        return self.rows[~draft.moved[self.rows]]


def candidates(context: Context, source: int) -> Candidates:
    """Split the movable bundles of a broker into those worth a reconnect and dust.

    A bundle is worth it when it carries `min_unload_share` of the mean score, or half of what a mean one of these
    carries: hundreds of equal bundles are small each, and yet they are all there is to move. Where all of them together
    carry less than `min_unload_share` of the mean score, none is: something else causes the broker's load.
    """
    draft = context.draft
    rows = draft.movable(source, context.eligible.mask)
    if len(rows) == 0:
        return Candidates(rows, rows)
    weight = draft.scores(draft.pressure(source)[rows - int(context.snapshot.bundles.starts[source])], source)
    least = context.params.min_unload_share * context.mean
    caused = float(weight.sum()) >= min(least, float(draft.score[source]) / 2)
    enough = (weight >= min(least, float(weight.mean()) / 2)) & caused
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
    legal = legal_after(offer.target_after, before, ceiling) & (relief > EPSILON)
    fits = legal & (relief <= want + EPSILON)
    quarter = (before - other) / 4 - EPSILON
    helps = legal & (offer.target_after <= before - quarter) & (offer.source_after >= other + quarter)
    near = fits | (helps & (relief <= want + slack + EPSILON))
    if near.any():
        return int(np.where(near, np.maximum(offer.source_after, offer.target_after), np.inf).argmin())
    return int(np.where(helps, relief, np.inf).argmin()) if helps.any() else -1


def refuse_all(context: Context, source: int, rows: Ints, code: Code, detail: str = "") -> list[Refusal]:
    """The same refusal for several bundles of one broker."""
    names, broker = context.snapshot.bundles.names, context.snapshot.brokers.ids[source]
    return [Refusal(code, names[row], broker, detail) for row in rows.tolist()]


def refuse_rest(context: Context, source: int, given: Candidates, code: Code, detail: str = "") -> list[Refusal]:
    """One refusal for each bundle of a donor that does not move: its own obstacle, dust, or else `code`."""
    return [
        *context.eligible.refusals(context.snapshot, source),
        *refuse_all(context, source, given.dust, Code.BELOW_MINIMUM),
        *refuse_all(context, source, given.left(context.draft), code, detail),
    ]


def legal_after(offer_after: Floats, before: float, ceiling: float) -> Bools:
    """Return which targets (or bundles) stay below the ceiling and below the source's present score."""
    legal: Bools = offer_after < min(ceiling, before - EPSILON)
    return legal
