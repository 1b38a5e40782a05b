"""Input and output of all shedders (balancing strategies), and the choices that several of them make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats, Ints
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import GroupVerdict, Move, Refusal, Verdict
from bundlekeel.model.snapshot import Bools, Snapshot
from bundlekeel.planning.draft import Draft, Offer
from bundlekeel.planning.guard.eligibility import Eligibility
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.memory import BrokerCourse, StrategyMemory
from bundlekeel.planning.strategies.placement import Placement

# Scores closer than this are equal: 32-bit percentages are not more precise.
EPSILON = 1e-6
# Maximum number of moves planned on one snapshot; the next snapshot is the base of further moves.
HORIZON = 500
# Bundles with these codes cannot move, at any size and to any target.
IMMOVABLE = frozenset(
    {Code.IDLE, Code.SYSTEM_BUNDLE, Code.V1_NAMESPACE, Code.EXCLUDED, Code.NOT_TAKEN_OVER, Code.BELOW_MINIMUM}
)


@dataclass(slots=True, kw_only=True)
class Context:
    """Input of a shedder (balancing strategy).

    `draft`: predicted load, to which the shedder adds its moves. `unsettled`: brokers whose load is not known yet,
    because reports do not show all moves, or not their CPU use. `courses`, `seconds`: load histories and newly measured
    seconds (results of `calm.follow_levels`) for the decision rule. `doubt`: part of each broker's difference from the
    others that may be noise, shape (n,). `planned`: number of moves that earlier groups of brokers have planned.
    """

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
        """Return whether the plan has enough moves for one snapshot: the budget of ten cycles, at most `HORIZON`."""
        return len(self.draft.moves) >= min(10 * max(self.params.max_moves_per_cycle, 10), HORIZON)

    @property
    def moves(self) -> list[Move]:
        """Moves that this shedder has planned, without those of earlier groups of brokers."""
        return self.draft.moves[self.planned :]

    @property
    def rows(self) -> list[int]:
        """Rows of the members: the brokers that can exchange bundles with each other."""
        rows: list[int] = np.flatnonzero(self.draft.members).tolist()
        return rows

    @property
    def mean(self) -> float:
        """Mean predicted score of the brokers in the current group that are not closed, before this plan's moves."""
        if self._mean is None:
            self._mean = self.draft.mean()
        return self._mean

    @property
    def base(self) -> float:
        """Lowest score that a broker of the current group would keep without bundles, before this plan's moves."""
        if self._base is None:
            self._base = float(self.draft.base_score()[self.draft.members].min(initial=self.mean))
        return self._base

    def concerned(self) -> Bools:
        """Return a mask of the members (brokers of the current group) that can accept or give bundles."""
        draft = self.draft
        mask: Bools = draft.members & (~draft.closed | (draft.score > self.mean))
        return mask if mask.any() else draft.members


def counting(context: Context) -> Bools:
    """Return a mask of the brokers whose mean the strategy should reach.

    These are the `concerned` brokers except those above the mean whose bundles an operator excluded from moves. Such a
    broker gives nothing away, so the other brokers cannot reach a mean that includes it.
    """
    draft, bundles, concerned = context.draft, context.snapshot.bundles, context.concerned()
    excluded = context.eligible.codes.rows_with((Code.EXCLUDED, Code.NOT_TAKEN_OVER))
    if not excluded:
        return concerned
    free = np.ones(len(bundles), dtype=bool)
    free[context.eligible.codes.rows_with(IMMOVABLE - {Code.BELOW_MINIMUM})] = False
    some, others = (np.bincount(bundles.owner[rows], minlength=len(concerned)) > 0 for rows in (excluded, free))
    mask: Bools = concerned & ~(some & ~others & (draft.score > context.mean))
    return mask if mask.any() else concerned


@dataclass(slots=True, kw_only=True)
class Decision:
    """Output of a shedder (balancing strategy), in addition to the moves in the draft.

    `sides`: by broker that gives or takes a bundle: `hot` if its score before the plan was at least the mean, `cold` if
    it was lower. Empty if the strategy does not use the decision rule (`planning.calm`).
    """

    verdict: Verdict
    memory: StrategyMemory
    brokers: list[Verdict] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    groups: tuple[GroupVerdict, ...] = ()
    sides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Movable bundles (rows) of one source broker: `rows` are worth a move, the load of `dust` is negligible."""

    rows: Ints
    dust: Ints

    def left(self, draft: Draft) -> Ints:
        """Return the bundles worth a move that the plan does not move yet."""
        return self.rows[~draft.moved[self.rows]]


def candidates(context: Context, source: int) -> Candidates:
    """Divide the movable bundles of a broker into bundles worth a move and negligible ones (`dust`).

    A bundle is worth a move if it causes `min_unload_share` of the mean score. Half of the mean of the broker's movable
    bundles is also enough, because each of hundreds of equal bundles is small. If all of them together cause less than
    `min_unload_share` of the mean score, none is worth a move: something else causes the broker's load.
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
    """Return the msg/s and bytes/s that must leave a broker for its score to decrease by `relief`."""
    score, traffic = float(draft.score[source]), draft.traffic[source].tolist()
    share = min(1.0, max(0.0, relief) / score) if score > 0 else 1.0
    return share * (traffic[RATE_IN] + traffic[RATE_OUT]), share * (traffic[THROUGHPUT_IN] + traffic[THROUGHPUT_OUT])


def best_fit(offer: Offer, before: float, other: float, want: float, *, ceiling: float, slack: float) -> int:
    """Return the index into the offer of the bundle that should move; -1: no bundle fits.

    `before`, `other`: present scores of source and target. `want`: score that should move.

    Candidates relieve the source by at most `want` plus `slack`: one bundle that is a little too large disconnects
    fewer clients than many small ones. The best candidate gives the lowest maximum of both scores. Without candidates,
    the smallest larger bundle is returned. More than `want` may move only if at most half of the difference remains, in
    either direction: otherwise the two brokers would swap roles. The target must stay below `ceiling` and below the
    source's present score, so that a plan never increases the predicted maximum.
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
    """Return a refusal for each of these bundles of one broker, all with the same code."""
    names, broker = context.snapshot.bundles.names, context.snapshot.brokers.ids[source]
    return [Refusal(code, names[row], broker, detail) for row in rows.tolist()]


def refuse_rest(context: Context, source: int, donor: Candidates, code: Code, detail: str = "") -> list[Refusal]:
    """Return a refusal for each bundle that stays at `source`: the code of its own obstacle, or else `code`.

    `donor`: the movable bundles of `source`.
    """
    return [
        *context.eligible.refusals(context.snapshot, source),
        *refuse_all(context, source, donor.dust, Code.BELOW_MINIMUM),
        *refuse_all(context, source, donor.left(context.draft), code, detail),
    ]


def legal_after(offer_after: Floats, before: float, ceiling: float) -> Bools:
    """Return a mask of the predicted target scores that are below `ceiling` and below the source's present score."""
    legal: Bools = offer_after < min(ceiling, before - EPSILON)
    return legal
