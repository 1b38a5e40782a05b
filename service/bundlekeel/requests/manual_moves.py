"""Common parts of moves, unloads and splits by operators: planned as a dry run, stored for the leader, planned again.

A request names bundles and their sources. Right before it acts, the leader plans again from its own view and with the
same guard (limits on moves), and executes exactly the requested action or nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from bundlekeel.leader.cycle.plan_responses import MoveView, RefusalView
from bundlekeel.leader.gate.gate import Action, GateQuestion
from bundlekeel.model.codes import EXPLANATIONS, Code, reason_of, way_out
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import CodecError, ConfigError, Conflict, StoreError
from bundlekeel.model.names import is_system_bundle
from bundlekeel.model.plan import BrokerLoad, Refusal
from bundlekeel.model.response_fields import Broker, Bundle, Explanation, Hash, Json, Sentence
from bundlekeel.planning.owned import with_owned
from bundlekeel.planning.situation import Situation
from bundlekeel.requests.verb import DryRun, Held, HeldExplanation, ReviewId, Verb
from bundlekeel.requests.where import WholeBundle, whole_bundles

if TYPE_CHECKING:
    from bundlekeel.requests.unload import NamespaceUnloadView

Response = TypeVar("Response", "ManualMoveView", "NamespaceUnloadView")

UNREADABLE: Final = "the request cannot be read; perhaps another version of Bundlekeel wrote it"
TaskId = Annotated[str | None, Doc("id of the task; null: a dry run, or not approved yet")]
ManualMoveState = Annotated[
    str,
    Doc(
        "planned (a dry run), waiting (for the leader) or proposed (to a second operator)",
        of=("planned", "waiting", "proposed"),
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView(Answer):
    """A broker as a possible target of a bundle, or the reason against this broker."""

    broker: Broker
    score_before: Annotated[float, Doc("current score of the broker, a ratio")]
    score_after: Annotated[float | None, Doc("score of the broker with the bundle, a ratio; null: not computed")]
    code: Annotated[str | None, Doc("code of the reason against this broker; null: none", grows=Code)]
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView(Answer):
    """A bundle that a split creates."""

    bundle: Bundle
    topics_ratio: Annotated[float, Doc("share of the original bundle's topics that this new bundle gets")]
    msg_rate_ratio: Annotated[float, Doc("share of the original bundle's messages that this new bundle gets")]
    throughput_ratio: Annotated[float, Doc("share of the original bundle's bytes that this new bundle gets")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualMoveView(Answer):
    """A move or split that an operator requested."""

    kind: Annotated[str, Doc("kind of the request", of=("transfer", "unload", "split"))]
    name: Annotated[str, Doc("requested bundle or topic")]
    bundle: Bundle
    source: Annotated[str, Doc("broker that owns the bundle")]
    hash: Hash
    refusals: Annotated[
        list[RefusalView],
        Doc("obstacles of the bundle or its brokers; see `held` for mode and pauses"),
    ]
    sentence: Sentence
    target: Annotated[
        str | None, Doc("broker that receives the bundle; null if the request is a split or the bundle stays")
    ] = None
    move: Annotated[MoveView | None, Doc("planned move; null if the request is a split or the bundle stays")] = None
    candidates: Annotated[list[CandidateView], Doc("all other brokers as targets, with reasons against them")] = field(
        default_factory=list
    )
    loads: Annotated[list[BrokerLoad], Doc("load of each broker before and after")] = field(default_factory=list)
    override_cool_down: Annotated[bool, Doc("whether the bundle moves despite its cool-down")] = False
    topics: Annotated[list[str], Doc("for a split: requested topics")] = field(default_factory=list)
    children: Annotated[list[ChildView], Doc("for a split: the new bundles")] = field(default_factory=list)
    algorithm: Annotated[str | None, Doc("for a split: Pulsar's algorithm; null: divide the load evenly")] = None
    unload: Annotated[bool, Doc("for a split: whether the new bundles are unloaded afterwards")] = False
    dry_run: DryRun = True
    task: TaskId = None
    state: ManualMoveState = "planned"
    review: ReviewId = None
    held: Held = ""
    held_explanation: HeldExplanation = ""


class ManualMoves(Verb):
    """Requests to move, unload or split bundles.

    Methods raise NotFound or ConfigError if a name is wrong, and Conflict if the bundle cannot be moved or split. They
    raise SnapshotError before the first cycle, and StoreError if the store does not respond."""

    async def _respond(
        self, verb: str, answer: Response, operator_request: Json, *, execute: bool, reason: str, by: str
    ) -> Response:
        answer = replace(answer, **self._held(Action.SUBMISSION))
        if not execute:
            return answer
        self.gate.demand(GateQuestion(action=Action.SUBMISSION))
        if not operator_request:
            reasons = sorted({_refusal_text(item) for item in answer.refusals})
            codes = {item.code for item in answer.refusals}
            text = f"not carried out: {'; '.join(reasons)}{way_out(verb, codes)}"
            raise Conflict(text, code=reason_of(codes), difference=reasons)
        left = await self.review_store.submit(
            answer.hash, verb, answer.sentence, operator_request | {"reason": reason, "by": by}
        )
        what = answer.bundle if isinstance(answer, ManualMoveView) else answer.namespace
        self._record(f"{verb} of {what}", reason, by)
        return replace(answer, dry_run=False, **left | {"task": left["task"] or None})

    async def _whole(self, name: str) -> WholeBundle:
        wholes = await whole_bundles(name, metadata=self.cycle.metadata)
        if len(wholes) != 1:
            bundles = ", ".join(item.bundle for item in wholes)
            raise ConfigError(
                f"{name!r} covers {len(wholes)} bundles, but this command needs exactly one; pass one of: {bundles}",
                field="name",
                value=name,
                allowed="one bundle, or a topic without partitions",
            )
        return wholes[0]

    async def _owner(self, bundle: str) -> str:
        try:
            owner = await self.ownership.owner(bundle)
        except CodecError as error:
            raise StoreError(f"the owner of {bundle} cannot be read: {error}") from error
        if owner is None:
            # The ownership channel does not contain system bundles although they have an owner: so do not advise a
            # lookup.
            code = Code.SYSTEM_BUNDLE if is_system_bundle(bundle) else Code.UNOWNED
            raise Conflict(f"{bundle}: {EXPLANATIONS[code]}", code=code.value, difference=[code.value])
        if owner.disabled:
            code = Code.IN_TRANSIT
            raise Conflict(f"{bundle}: {EXPLANATIONS[code]}", code=code.value, difference=[code.value])
        return owner.broker_id

    async def _with_policies(self, owners: Mapping[str, str]) -> Situation:
        """Return the inputs of a plan, with policies that are read again, and with these bundles at their owners."""
        owned: dict[str, list[str]] = {}
        for bundle, owner in owners.items():
            owned.setdefault(owner, []).append(bundle)
        snapshot = with_owned(self.cycle.demand_snapshot(), owned)
        policies = await self.cycle.policies.read(snapshot.bundles.namespaces)
        return replace(self.cycle.plan_input(snapshot), policies=policies)


def _refusal_text(refusal: RefusalView) -> str:
    """Return a refusal as text, with the pause or exclusion that causes it.

    Omits other details: they differ between bundles, and operators see one text per reason.
    """
    detail = f" ({refusal.detail})" if refusal.code in (Code.PAUSED, Code.EXCLUDED) else ""
    return f"{refusal.code}: {refusal.explanation}{detail}"


def text_of(refusal: Refusal) -> str:
    return f"{EXPLANATIONS[refusal.code]}{f' ({refusal.detail})' if refusal.detail else ''}"


def hash_of(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
