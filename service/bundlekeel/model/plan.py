"""Result of `plan()`: moves with their reasons, refusals, verdicts, loads before and after, and a hash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Annotated, NamedTuple

from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.model.response_fields import Bundle, Hash, Like, PictureMs

Traffic4 = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Answer):
    """A move of one bundle from one broker to another, with its reason.

    Scores are ratios (0.85 is 85 %). They are predicted for right before and right after this move, with earlier moves
    of the plan. `traffic` is the bundle's share (by short-term averages) of its broker's reported traffic.
    """

    bundle: Bundle
    source: Annotated[str, Doc("broker that the bundle leaves")]
    target: Annotated[str, Doc("broker that receives the bundle")]
    rule: Annotated[str, Doc("rule that selected the bundle")]
    threshold: Annotated[float, Doc("exceeded limit, a ratio")]
    source_before: Annotated[float, Doc("score of the source before the move, a ratio")]
    source_after: Annotated[float, Doc("score of the source after the move, a ratio")]
    target_before: Annotated[float, Doc("score of the target before the move, a ratio")]
    target_after: Annotated[float, Doc("score of the target after the move, a ratio")]
    runner_up: Annotated[str, Doc("second-best target; empty: none")]
    traffic: Annotated[
        Traffic4,
        Like(list[float]),
        Doc("four rates: msg/s published, msg/s delivered, bytes/s published, bytes/s delivered, in this order"),
    ]
    pressure: Annotated[
        tuple[float, ...],
        Doc(
            "six resources that the bundle uses: CPU (percent of a core), direct memory (MiB), bandwidth in (kbit/s), "
            "bandwidth out (kbit/s), messages (msg/s) and throughput (bytes/s), in this order"
        ),
    ]

    @property
    def sentence(self) -> str:
        """Return the move with its predicted scores and its rule, as an English sentence."""
        return (
            f"{self.bundle}: {self.source} {self.source_before:.1%} -> {self.source_after:.1%}, "
            f"{self.target} {self.target_before:.1%} -> {self.target_after:.1%} ({self.rule})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(Answer):
    """A bundle to split, with its reason. The hash positions are computed from its topics when the split is executed.

    `halves`: cut in the middle (`range_equally_divide`). Brokers allow this for a bundle with fewer than two topics,
    too.
    """

    bundle: Bundle
    broker: Annotated[str, Doc("broker that owns the bundle")]
    rule: Annotated[str, Doc("exceeded limit: topics, sessions, msg_rate, bandwidth, hot, or `by hand`")]
    value: Annotated[
        float, Doc("value of the bundle: topics, sessions, msg/s, MiB/s, or shares of the mean broker load")
    ]
    limit: Annotated[float, Doc("exceeded limit in the unit of `value`")]
    hits: Annotated[int, Doc("number of consecutive cycles above the limit")]
    at: Annotated[tuple[int, ...], Doc("requested hash positions; empty: chosen so that the load divides evenly")]
    halves: Annotated[bool, Doc("whether the hash range is divided in the middle")]

    @property
    def sentence(self) -> str:
        """Return the bundle and the reason for the split, as an English sentence."""
        if self.rule == "by hand":
            return f"{self.bundle}: an operator requested it"
        if self.rule == "hot":
            return f"{self.bundle}: carries {self.value:.0%} of a mean broker's load, which no placement can balance"
        unit = {"topics": "topics", "sessions": "sessions", "msg_rate": "msg/s"}.get(self.rule, "MiB/s")
        return f"{self.bundle}: {self.value:,.0f} {unit}, the limit is {self.limit:,.0f}"


class Refusal(NamedTuple):
    """Why a bundle does not move, or why the bundles of a broker were not checked.

    `frees_ms`: when the obstacle ends, Unix ms; 0: in the next cycle, or unknown. `limit`, `used`: if a budget is the
    obstacle: its limit and its used part, in moves or as share of traffic; otherwise None. The class is a tuple,
    because the plan of a large cluster has tens of thousands of refusals.
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
    """Outcome of a cycle, or of one broker in it: why bundles move or stay."""

    code: Annotated[Code, Doc("a code of docs/reference/codes.md", grows=Code)]
    sentence: Annotated[str, Doc("the outcome as a sentence")]
    broker: Annotated[str, Doc("broker of the verdict; empty: the whole cycle")] = ""
    hits_low: Annotated[int, Doc("with compat: calls in a row with a small difference")] = 0
    hits_high: Annotated[int, Doc("with compat: calls in a row with a large difference")] = 0
    cost: Annotated[float, Doc("cost of the imbalance so far: 1 per second at twice the tolerated difference")] = 0.0
    price: Annotated[float, Doc("price of the moves that would end the imbalance, in the unit of `cost`")] = 0.0


class GroupVerdict(NamedTuple):
    """Verdict for one group of brokers, if policies allow each broker to exchange bundles only within its group."""

    brokers: tuple[str, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class BrokerLoad(Answer):
    """A broker's load before the moves of a plan, and its predicted load after them."""

    broker: Annotated[str, Doc("a broker id")]
    score_before: Annotated[float, Doc("score before the moves, a ratio")]
    score_after: Annotated[float, Doc("predicted score after the moves, a ratio")]
    msg_rate_before: Annotated[float, Doc("msg/s in and out together, before the moves")]
    msg_rate_after: Annotated[float, Doc("msg/s in and out together, after the moves")]
    throughput_before: Annotated[float, Doc("bytes/s in and out together, before the moves")]
    throughput_after: Annotated[float, Doc("bytes/s in and out together, after the moves")]
    bundles_before: Annotated[int, Doc("number of its bundles before the moves")]
    bundles_after: Annotated[int, Doc("number of its bundles after the moves")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead(Answer):
    """Fields that a plan and the responses about it share."""

    hash: Hash
    wall_ms: PictureMs
    strategy: Annotated[str, Doc("strategy, which selected the bundles to move", grows=STRATEGIES)]
    placement: Annotated[str, Doc("placement, which selected the targets", grows=PLACEMENTS)]
    verdict: Annotated[Verdict, Doc("verdict: why bundles move or stay")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlanHead):
    """Decisions of one cycle.

    `groups`: verdicts of groups of brokers, if policies forbid moves between them; `verdict` is then that of the most
    important group; (): all brokers are one group. `split_refusals`: bundles above a split limit that are not split.
    `closed`: brokers that accept no bundle: drained, cordoned or excluded. `mean`: mean of all scores, including closed
    brokers. The measured effects of moves are divided by it, so it must follow the traffic, which closing a broker does
    not change. `hash`: covers the decisions and their input, so equal hashes mean equal decisions.
    """

    seed: int
    snapshot_digest: str
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
        """Return the group of brokers that contains `broker`, with its verdict; without groups, all brokers."""
        whole = GroupVerdict(tuple(load.broker for load in self.loads), self.verdict)
        return next((group for group in self.groups if broker in group.brokers), whole)

    def mean_of(self, column: str, brokers: Sequence[str] | None = None) -> float:
        """Return the mean of a field of `BrokerLoad` over `brokers` (None: all), except closed ones (`sharing`)."""
        shared = sharing(*self._column(column, brokers))
        return math.fsum(shared) / len(shared) if shared else 0.0

    def imbalance(self, column: str) -> float:
        """Return max/mean of a field of `BrokerLoad` over all brokers (see the function `imbalance`)."""
        return imbalance(*self._column(column))

    def _column(self, name: str, brokers: Sequence[str] | None = None) -> tuple[list[float], list[bool]]:
        loads = [load for load in self.loads if brokers is None or load.broker in brokers]
        return [getattr(load, name) for load in loads], [load.broker in self.closed for load in loads]


def plan_hash(plan: Plan) -> str:
    """Return the first 16 hex digits of SHA-256 over the decisions and their input.

    Sentences, details and predicted values are not included, so that their wording and rounding can change. The
    snapshot's digest is included, because the hash identifies a plan: the same moves for another snapshot are another
    plan. Data is hashed column by column, because a plan has tens of thousands of refusals.
    """
    verdicts = (plan.verdict, *(group.verdict for group in plan.groups), *plan.brokers)
    inputs = (plan.strategy, plan.placement, plan.seed, plan.snapshot_digest)
    splits = [(s.bundle, s.broker, s.rule, s.at, s.halves) for s in plan.splits]
    hits = [(v.hits_low, v.hits_high) for v in verdicts]
    sha = hashlib.sha256(json.dumps((*inputs, splits, hits), separators=(",", ":")).encode())
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
    """Return the measure that a strategy balances: `score`, or `throughput` for `uniform` (fields of `BrokerLoad`)."""
    return "throughput" if strategy == "uniform" else "score"


def sharing(values: Sequence[float], closed: Sequence[bool]) -> list[float]:
    """Return the values of the brokers that are not closed, for the mean; all values if all brokers are closed.

    Closed brokers accept no bundle, so they cannot be balanced, and an empty one would lower the mean.
    """
    return [value for value, shut in zip(values, closed, strict=True) if not shut] or list(values)


def imbalance(values: Sequence[float], closed: Sequence[bool]) -> float:
    """Return the highest value divided by the mean; 1.0 is balanced, 0.0 means no load.

    `values`: load of each broker. `closed`: whether it accepts no bundle. Closed brokers count in the mean only if all
    others have no load.
    """
    shared = sharing(values, closed)
    counted = shared if any(shared) else values
    total = math.fsum(counted)
    return max(values) * len(counted) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Answer):
    """Predicted result of a what-if: the cluster after its plan and all following plans. Splits are not counted."""

    max_mean: Annotated[
        float, Doc("max/mean after the last plan, of the `measure` of the plan's `imbalance`; 1: even, 0: no load")
    ]
    moves: Annotated[int, Doc("number of moves, including those of this plan")]
    cycles: Annotated[int, Doc("number of cycles for these moves")]
    seconds: Annotated[float, Doc("seconds until the last bundle has arrived at its new broker")]
    complete: Annotated[bool, Doc("false: more cycles would be needed than were simulated")]
