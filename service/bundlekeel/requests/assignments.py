"""Computes which broker would get a bundle that no broker owns, without assigning the bundle.

A lookup at a broker would assign it. So this module runs our own copy of the broker's selection steps on the latest
snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from bundlekeel.leader.state.takeover_record import EXCLUDED, name_set
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGY_CLASSES
from bundlekeel.model.response_fields import Broker, Bundle, Explanation, Sentence
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.filters.assign import Assignment, AssignmentInput, AssignmentStep, assign
from bundlekeel.ports import Metadata, Ownership
from bundlekeel.requests.where import OwnershipState, Place, where

if TYPE_CHECKING:
    from bundlekeel.leader.cycle.cycle import Cycle
    from bundlekeel.pulsar.sources.policies import PolicyCache

_PLACEMENT_KEY = "loadBalancerLoadPlacementStrategy"
# A sentence lists at most this many brokers.
_NAMED = 5
# A response has at most this many results, and at most this many results times brokers, because each result lists
# every broker in every step.
MOST_ANSWERS = 200
MOST_CANDIDATES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedView(Answer):
    """A broker that a step of the selection excluded."""

    broker: Broker
    code: Annotated[str, Doc("code of why the broker is not a candidate", grows=Code)]
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView(Answer):
    """One step of the selection of a broker for a bundle."""

    name: Annotated[str, Doc("name of the step")]
    candidates: Annotated[list[str], Doc("remaining brokers after the step")]
    dropped: Annotated[list[DroppedView], Doc("dropped brokers with their codes")]
    note: Annotated[str, Doc("other effects of the step")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentView(Answer):
    """The broker that would receive a bundle if no broker owned it."""

    topic: Annotated[str | None, Doc("requested topic; null: the request named a bundle")]
    hash: Annotated[str | None, Doc("hash of the topic, which determines the bundle; null: the request named a bundle")]
    bundle: Bundle
    owner: Annotated[str | None, Doc("broker that owns the bundle now; null: none")]
    state: Annotated[OwnershipState, Doc("whether a broker owns the bundle now")]
    preallocated: Annotated[str | None, Doc("broker that the bundle is in transit to; null: none")]
    chosen: Annotated[
        str | None,
        Doc("broker that would receive the bundle; null: any of the candidates (`round_robin`), or none (`code`)"),
    ]
    one_of: Annotated[
        list[str], Doc("brokers, including `chosen`, from which Pulsar selects at random or in turn; empty: no choice")
    ] = field(default_factory=list)
    placement: Annotated[str, Doc("placement of the brokers, which selects the target", grows=PLACEMENTS)]
    candidates: Annotated[list[str], Doc("remaining brokers after the last step")]
    code: Annotated[str | None, Doc("code of why no broker would receive the bundle; null: a broker would", grows=Code)]
    sentence: Sentence
    steps: Annotated[list[StepView], Doc("steps of the selection, in order")]


async def assignments(
    names: Sequence[str], *, cycle: Cycle, policies: PolicyCache, metadata: Metadata, ownership: Ownership
) -> list[AssignmentView]:
    """Return the broker that each name would get: one result per bundle or topic.

    A partitioned topic has one result per partition, a namespace one per bundle. Raises NotFound if a name does not
    exist, SnapshotError before the first cycle, and ConfigError if there would be too many results.
    """
    snapshot = cycle.demand_snapshot()
    rows = [row for name in names for row in await where(name, metadata=metadata, ownership=ownership)]
    most = max(1, min(MOST_ANSWERS, MOST_CANDIDATES // max(1, len(snapshot.brokers))))
    if len(rows) > most:
        allowed = f"at most {numbered(most, 'bundle')} at once with {numbered(len(snapshot.brokers), 'broker')}"
        raise ConfigError(f"these are {len(rows)} bundles", field="names", value=len(rows), allowed=allowed)
    cycle_state, params, settings = cycle.cycle_state, cycle.params, cycle.config.adoptable()
    inputs = AssignmentInput(
        draft=Draft(snapshot, cycle_state.ledger, params, cycle_state.memory.turn, cycle_state.memory.costs),
        ledger=cycle_state.ledger,
        policies=await policies.read((*snapshot.bundles.namespaces, *(namespace_of(row.bundle) for row in rows))),
        placement=_placement(settings.get(_PLACEMENT_KEY, "")),
        in_turn=name_set(settings.get(EXCLUDED, "")),
    )
    # In a thread, because it takes long: each result contains every broker in every step.
    return await asyncio.to_thread(lambda: [_answer(row, inputs) for row in rows])


def _placement(class_name: str) -> str:
    """Return our name for the Java class by which brokers place bundles; an unknown class keeps its short name.

    `class_name`: with or without the package; "": LeastLongTermMessageRate, Pulsar's default."""
    short = class_name.rpartition(".")[2] or "LeastLongTermMessageRate"
    return STRATEGY_CLASSES.get(short, short)


def _answer(row: Place, inputs: AssignmentInput) -> AssignmentView:
    topic = row.topic or ""
    assignment = assign(inputs, row.bundle, non_persistent=topic.startswith("non-persistent://"))
    return AssignmentView(
        topic=row.topic,
        hash=row.hash,
        bundle=assignment.bundle,
        owner=row.broker,
        state=row.state,
        preallocated=assignment.preallocated or None,
        chosen=assignment.chosen or None,
        placement=assignment.placement,
        candidates=list(assignment.candidates),
        one_of=list(assignment.one_of),
        code=assignment.code.value if assignment.code is not None else None,
        sentence=_sentence(assignment),
        steps=[_step(item) for item in assignment.steps],
    )


def _step(step: AssignmentStep) -> StepView:
    return StepView(
        name=step.name,
        candidates=list(step.candidates),
        dropped=[
            DroppedView(broker=broker, code=code.value, explanation=EXPLANATIONS[code])
            for broker, code in step.dropped.items()
        ],
        note=step.note,
    )


def _sentence(assignment: Assignment) -> str:
    if assignment.code is not None:
        return f"no broker: {EXPLANATIONS[assignment.code]}"
    if assignment.preallocated:
        return f"{assignment.chosen}, which it is on its way to already"
    target = assignment.chosen or "any of the candidates"
    if assignment.chosen and assignment.one_of:
        more = len(assignment.one_of) - _NAMED
        target = f"one of these: {', '.join(assignment.one_of[:_NAMED])}{f' and {more} more' if more > 0 else ''}"
    return f"{target}, by {assignment.placement} among {len(assignment.candidates)}"
