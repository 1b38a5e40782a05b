"""Computes which broker would get a bundle that no broker owns, without assigning the bundle.

A lookup at a broker would assign it. So this module runs our own copy of the broker's selection steps on the latest
snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from bundlekeel.leader.state.takeover_record import EXCLUDED, name_set
from bundlekeel.model.codes import EXPLANATIONS
from bundlekeel.model.doc import Doc
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameter_table import STRATEGY_CLASSES
from bundlekeel.model.response_fields import Sentence
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.filters.assign import Assignment, AssignmentInput, assign
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
class AssignmentView(Assignment):
    """The broker that would receive a bundle if no broker owned it."""

    topic: Annotated[str | None, Doc("requested topic; null: the request named a bundle")]
    hash: Annotated[str | None, Doc("hash of the topic, which determines the bundle; null: the request named a bundle")]
    owner: Annotated[str | None, Doc("broker that owns the bundle now; null: none")]
    state: Annotated[OwnershipState, Doc("whether a broker owns the bundle now")]
    sentence: Sentence


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
        **Assignment.part_of(assignment),
        topic=row.topic,
        hash=row.hash,
        owner=row.broker,
        state=row.state,
        sentence=_sentence(assignment),
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
