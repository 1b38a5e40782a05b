"""Responses about plans: moves, splits, refusals and the request of a dry run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.plan import BrokerLoad, Finish, Move, PlanHead, Split, Verdict
from bundlekeel.model.response_fields import (
    Broker,
    CodeName,
    Detail,
    Explanation,
    Json,
    Sentence,
    TrafficView,
)

# Largest factor by which a plan may multiply the current traffic.
MOST_SCALE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveUsageView(Answer):
    """Resources that a bundle uses at its broker."""

    cpu: Annotated[float, Doc("percent of a core")]
    direct_memory: Annotated[float, Doc("MiB")]
    bandwidth_in: Annotated[float, Doc("kbit/s")]
    bandwidth_out: Annotated[float, Doc("kbit/s")]
    msg_rate: Annotated[float, Doc("msg/s, published and delivered")]
    throughput: Annotated[float, Doc("bytes/s, published and delivered")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveView(Move):
    """A move of a bundle between two brokers. Scores are ratios, predicted for right before and after the move."""

    rates: Annotated[TrafficView, Doc("`traffic` by name")]
    usage: Annotated[MoveUsageView, Doc("`pressure` by name")]
    # `field()`, because the property of the base class would become the default.
    sentence: Sentence = field()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView(Split):
    """A split of a bundle."""

    sentence: Sentence = field()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalView(Answer):
    """A bundle, or all bundles of a broker, that a plan does not move, and the reason."""

    code: CodeName
    bundle: Annotated[str, Doc("the bundle; empty: the whole broker")]
    broker: Broker
    detail: Detail
    explanation: Explanation
    limit: Annotated[float | None, Doc("for a budget: its limit, in moves or as a share of the traffic")] = None
    used: Annotated[float | None, Doc("for a budget: its used part, in the unit of `limit`")] = None
    frees_ms: Annotated[int, Doc("time at which the obstacle ends; 0: in the next cycle, or unknown")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanImbalance(Answer):
    """max/mean: most loaded broker divided by the mean of the brokers that share the load; 1: balanced, 0: idle."""

    measure: Annotated[str, Doc("kind of load that the strategy balances", of=("score", "throughput"))]
    before: Annotated[float, Doc("max/mean before the moves")]
    after: Annotated[float, Doc("max/mean after the moves")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary(PlanHead):
    """A recent plan, without its moves."""

    expires_ms: Annotated[int, Doc("time at which the plan is deleted")]
    moves: Annotated[int, Doc("number of moves")]
    what_if: Annotated[
        bool, Doc("whether the plan assumes other brokers or traffic than at present; such a plan is never executed")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView(PlanHead):
    """A dry run: moves and splits with reasons, refusals with codes and explanations, load of each broker before and
    after."""

    expires_ms: Annotated[int, Doc("time at which the plan is deleted")]
    snapshot_digest: Annotated[str, Doc("digest of the snapshot that the plan is based on")]
    brokers: Annotated[list[Verdict], Doc("verdict on each broker: why it is relieved, or why not")]
    moves: Annotated[list[MoveView], Doc("planned moves, in order")]
    refusals: Annotated[list[RefusalView], Doc("candidates that do not move, with reasons")]
    refusal_counts: Annotated[dict[str, int], Doc("number of refusals by code", keys=Code)]
    splits: Annotated[list[SplitView], Doc("planned splits, after the moves")]
    split_refusals: Annotated[list[RefusalView], Doc("bundles above a limit that are not split, with reasons")]
    loads: Annotated[list[BrokerLoad], Doc("load of each broker before and after")]
    imbalance: Annotated[
        PlanImbalance, Doc("max/mean (1: balanced) before and after; in thresholds, `imbalance` is max/mean minus 1")
    ]
    by_leader: Annotated[bool, Doc("whether the leader computed the plan")] = False
    what_if: Annotated[bool, Doc("whether it assumes other brokers or traffic; such a plan is never executed")] = False
    assumption: Annotated[
        str,
        Doc("for a what-if: a sentence with its assumptions, and the highest load of a broker now and in the what-if"),
    ] = ""
    finished: Annotated[Finish | None, Doc("for a what-if: result after repeated cycles")] = None
    request: Annotated[Json, Doc("request, in the form of the body of POST /plans")] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Parameters of a dry run, which override the current settings.

    `ignore_hit_counts`: whether moves start without waiting for a condition to hold in several cycles; None: only if
    the request assumes other brokers or traffic. `forwarded`: another sidecar sent the request, so do not forward it to
    a leader again."""

    strategy: str | None = None
    placement: str | None = None
    parameters: Json = field(default_factory=dict)
    remove_brokers: tuple[str, ...] = ()
    add_brokers: tuple[str, ...] = ()
    traffic_scale: float = 1.0
    ignore_hit_counts: bool | None = None
    forwarded: bool = False

    @property
    def what_if(self) -> bool:
        """Return whether the request assumes other brokers or traffic. Such a plan is never executed."""
        return bool(self.remove_brokers or self.add_brokers) or self.traffic_scale != 1.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PlanRequest:
        """Read a request from JSON: a result of `to_json`, or a body of the API. Raises TypeError or ValueError."""
        brokers = {name: tuple(values.get(name, ())) for name in ("remove_brokers", "add_brokers")}
        return cls(**{**values, **brokers})

    def to_json(self) -> Json:
        """Return the request as JSON, for another sidecar or the metadata store.

        Added brokers are omitted if there are none: a sidecar of an older release rejects unknown fields."""
        values = asdict(self)
        return values if self.add_brokers else {key: item for key, item in values.items() if key != "add_brokers"}
