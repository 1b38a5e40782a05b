"""What `plan()` returns: moves with their reasons, refusals, verdicts, loads before and after, and a hash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Annotated, NamedTuple

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.doc import Answer, Doc

Traffic4 = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One bundle from one broker to another, and why.

    Scores are ratios (0.85 is 85 %), predicted for the moment before and after this move, earlier moves of the
    plan included. `traffic`: msg/s in, msg/s out, bytes/s in, bytes/s out, the bundle's share (by short-term
    averages) of what its broker reports. `pressure`: what the bundle uses of each resource, in the units of
    `core.model.load.RESOURCES`. `runner_up` is the next best target.
    """

    bundle: str
    source: str
    target: str
    rule: str
    threshold: float
    source_before: float
    source_after: float
    target_before: float
    target_after: float
    runner_up: str = ""
    traffic: Traffic4
    pressure: tuple[float, ...]

    @property
    def sentence(self) -> str:
        """Why, in English."""
        return (
            f"{self.bundle}: {self.source} {self.source_before:.1%} -> {self.source_after:.1%}, "
            f"{self.target} {self.target_before:.1%} -> {self.target_after:.1%} ({self.rule})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One bundle to divide: which limit it is above (`rule`: topics, sessions, msg_rate, bandwidth, hot), by how much,
    and how often in a row that was seen. Where to cut is computed from its topics when it is carried out.

    `value` and `limit`: topics, sessions, msg/s, MiB/s, or shares of the mean broker load. `at`: the positions a person
    asked for (rule `by hand`), none: where its load divides. `halves`: the broker is asked for `range_equally_divide`,
    which cuts there, since it takes positions for no bundle of fewer than two topics.
    """

    bundle: str
    broker: str
    rule: str
    value: float
    limit: float
    hits: int = 0
    at: tuple[int, ...] = ()
    halves: bool = False

    @property
    def sentence(self) -> str:
        """Why, in English."""
        if self.rule == "by hand":
            return f"{self.bundle}: a person asked for it"
        if self.rule == "hot":
            return f"{self.bundle}: carries {self.value:.0%} of a mean broker's load, no placement can even that out"
        unit = {"topics": "topics", "sessions": "sessions", "msg_rate": "msg/s"}.get(self.rule, "MiB/s")
        return f"{self.bundle}: {self.value:,.0f} {unit}, the limit is {self.limit:,.0f}"


class Refusal(NamedTuple):
    """A candidate that does not move: bundle, or the broker when none of its bundles was looked at.

    What the guard refuses says when that ends: `frees_ms`, wall milliseconds; 0: with the next cycle, or not known.
    A budget has its `limit` and what is `used` of it as well (moves, or a share of traffic), both None otherwise.
    A tuple, because a large cluster's plan has tens of thousands of them.
    """

    code: Code
    bundle: str = ""
    broker: str = ""
    detail: str = ""
    limit: float | None = None
    used: float | None = None
    frees_ms: int = 0


@dataclass(frozen=True, slots=True)
class Verdict(Answer):
    """Why the cycle, or one broker in it, did what it did."""

    code: Annotated[Code, Doc("a code of docs/reference/codes.md", grows=Code)]
    sentence: Annotated[str, Doc("the same as a sentence")]
    broker: Annotated[str, Doc("the broker it is about; empty: the whole cycle")] = ""
    hits_low: Annotated[int, Doc("with compat: calls in a row with a small difference")] = 0
    hits_high: Annotated[int, Doc("with compat: calls in a row with a large difference")] = 0
    cost: Annotated[float, Doc("cost of the imbalance so far, in seconds of twice the tolerated difference")] = 0.0
    price: Annotated[float, Doc("price of the moves that would end the imbalance, in the same unit")] = 0.0


class GroupVerdict(NamedTuple):
    """The verdict of one group of brokers that policies let exchange bundles only with each other."""

    brokers: tuple[str, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class BrokerLoad(Answer):
    """A broker's load before and after."""

    broker: Annotated[str, Doc("a broker id")]
    score_before: Annotated[float, Doc("score before, a ratio")]
    score_after: Annotated[float, Doc("score after, a ratio")]
    msg_rate_before: Annotated[float, Doc("msg/s in and out together, before")]
    msg_rate_after: Annotated[float, Doc("msg/s in and out together, after")]
    throughput_before: Annotated[float, Doc("bytes/s in and out together, before")]
    throughput_after: Annotated[float, Doc("bytes/s in and out together, after")]
    bundles_before: Annotated[int, Doc("how many bundles it owns before")]
    bundles_after: Annotated[int, Doc("how many bundles it owns after")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The opinion of one cycle. `groups`: where policies divide the brokers into groups that cannot exchange bundles,
    the verdict of each, and `verdict` is that of the most important one; empty: one group. `split_refusals`: bundles
    above a split limit that are not split, and why. `closed`: brokers that take no bundle: drained, cordoned or
    excluded. `mean`: of all scores, these brokers' too, so that it follows the traffic: effects are scaled by it, and
    to close a broker changes no traffic.

    `hash` covers the decisions and their input: equal hashes mean equal decisions.
    """

    wall_ms: int
    strategy: str
    placement: str
    seed: int
    snapshot_digest: str
    verdict: Verdict
    brokers: tuple[Verdict, ...]
    moves: tuple[Move, ...]
    refusals: tuple[Refusal, ...]
    loads: tuple[BrokerLoad, ...]
    groups: tuple[GroupVerdict, ...] = ()
    closed: frozenset[str] = frozenset()
    splits: tuple[Split, ...] = ()
    split_refusals: tuple[Refusal, ...] = ()
    mean: float = 0.0
    hash: str = ""
    extra: Mapping[str, float] = field(default_factory=dict)

    def group_of(self, broker: str) -> GroupVerdict:
        """Return the group to which a broker belongs; without groups all brokers."""
        whole = GroupVerdict(tuple(load.broker for load in self.loads), self.verdict)
        return next((group for group in self.groups if broker in group.brokers), whole)

    def mean_of(self, column: str, brokers: Sequence[str] | None = None) -> float:
        """Return the mean of this column of `loads` over those of `brokers` (None: all) that share the load."""
        shared = sharing(*self._column(column, brokers))
        return math.fsum(shared) / len(shared) if shared else 0.0

    def imbalance(self, column: str) -> float:
        """How unevenly this column of `loads` is spread."""
        return imbalance(*self._column(column))

    def _column(self, name: str, brokers: Sequence[str] | None = None) -> tuple[list[float], list[bool]]:
        loads = [load for load in self.loads if brokers is None or load.broker in brokers]
        return [getattr(load, name) for load in loads], [load.broker in self.closed for load in loads]


def plan_hash(plan: Plan) -> str:
    """SHA-256 over what was decided, and for which input; first 16 hex digits.

    Sentences, details and predicted figures are no part of it, so that their wording and rounding may change. The
    snapshot's digest is: a plan is asked for by its hash, and the same moves for another snapshot are another plan.
    Written out column by column: a plan has tens of thousands of refusals.
    """
    verdicts = (plan.verdict, *(group.verdict for group in plan.groups), *plan.brokers)
    given = (plan.strategy, plan.placement, plan.seed, plan.snapshot_digest)
    splits = [(s.bundle, s.broker, s.rule, s.at, s.halves) for s in plan.splits]
    hits = [(v.hits_low, v.hits_high) for v in verdicts]
    sha = hashlib.sha256(json.dumps((*given, splits, hits), separators=(",", ":")).encode())
    columns = [[m.bundle for m in plan.moves], [m.source for m in plan.moves]]
    columns += [[m.target for m in plan.moves], [m.rule for m in plan.moves]]
    columns += [[v.code for v in verdicts], [v.broker for v in verdicts]]
    for refusals in (plan.refusals, plan.split_refusals):
        columns += [list(map(itemgetter(place), refusals)) for place in range(3)]  # code, bundle, broker
    for column in columns:
        sha.update(f"{len(column)}\0".encode())
        sha.update("\0".join(column).encode())
    return sha.hexdigest()[:16]


def measure_of(strategy: str) -> str:
    """What of `BrokerLoad` a strategy evens out: `score`, or the throughput that `uniform` compares."""
    return "throughput" if strategy == "uniform" else "score"


def sharing(values: Sequence[float], closed: Sequence[bool]) -> list[float]:
    """Of a load by broker, what the mean is taken of: not of the brokers that take no bundle (`closed`), unless all are
    such. Nothing comes to them to even them out, and one that is kept empty would pull the mean down."""
    return [value for value, shut in zip(values, closed, strict=True) if not shut] or list(values)


def imbalance(values: Sequence[float], closed: Sequence[bool]) -> float:
    """max/mean: the busiest of all brokers over the mean of those that share the load, or of all where these carry
    nothing; 1.0 is even, 0.0 when there is no load."""
    shared = sharing(values, closed)
    counted = shared if any(shared) else values
    total = math.fsum(counted)
    return max(values) * len(counted) / total if total > 0 else 0.0
