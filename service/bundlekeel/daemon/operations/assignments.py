"""Dry run of the assignment pipeline: the broker that an unowned bundle would get.

A lookup at a broker would assign the bundle. This runs our own copy of the pipeline on the latest snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bundlekeel.core.filters.assign import Assignment, AssignmentInput, AssignmentStep, assign
from bundlekeel.core.model.codes import EXPLANATIONS
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.names import (
    namespace_of,
)
from bundlekeel.core.model.parameter_table import STRATEGY_CLASSES
from bundlekeel.core.model.text_format import numbered
from bundlekeel.core.planning.draft import Draft
from bundlekeel.daemon.answers.picture import AssignmentView, DroppedView, Place, StepView
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.operations.where import where
from bundlekeel.daemon.sources.policies import PolicyCache
from bundlekeel.daemon.state.takeover_record import EXCLUDED, name_set
from bundlekeel.ports import Metadata, Ownership

_PLACEMENT_KEY = "loadBalancerLoadPlacementStrategy"
# Brokers that a sentence names.
_NAMED = 5
# Each answer names every broker in every step: so many answers, and so many answers times brokers.
MOST_ANSWERS = 200
MOST_CANDIDATES = 20_000


async def assignments(
    names: Sequence[str], *, cycle: Cycle, policies: PolicyCache, metadata: Metadata, ownership: Ownership
) -> list[AssignmentView]:
    """One answer a bundle; a partitioned topic has one a partition, a namespace one a bundle.

    NotFound for what does not exist, SnapshotError before the first cycle, ConfigError when it is too much at once.
    """
    snapshot = cycle.demand_snapshot()
    rows = [row for name in names for row in await where(name, metadata=metadata, ownership=ownership)]
    most = max(1, min(MOST_ANSWERS, MOST_CANDIDATES // max(1, len(snapshot.brokers))))
    if len(rows) > most:
        allowed = f"at most {numbered(most, 'bundle')} at once with {numbered(len(snapshot.brokers), 'broker')}"
        raise ConfigError(f"these are {len(rows)} bundles", field="names", value=len(rows), allowed=allowed)
    cycle_state, params, settings = cycle.cycle_state, cycle.params, cycle.config.adoptable()
    asked = AssignmentInput(
        draft=Draft(snapshot, cycle_state.ledger, params, cycle_state.memory.turn, cycle_state.memory.costs),
        ledger=cycle_state.ledger,
        policies=await policies.read((*snapshot.bundles.namespaces, *(namespace_of(row.bundle) for row in rows))),
        placement=_placement(settings.get(_PLACEMENT_KEY, "")),
        in_turn=name_set(settings.get(EXCLUDED, "")),
    )
    # In a thread: each answer names every broker in every step.
    return await asyncio.to_thread(lambda: [_answer(row, asked) for row in rows])


def _placement(class_name: str) -> str:
    """Return our name of the placement class that brokers run; of an unknown class its own name without the package.

    Without one it is LeastLongTermMessageRate, Pulsar's default.
    """
    short = class_name.rpartition(".")[2] or "LeastLongTermMessageRate"
    return STRATEGY_CLASSES.get(short, short)


def _answer(row: Place, asked: AssignmentInput) -> AssignmentView:
    topic = row.topic or ""
    made = assign(asked, row.bundle, non_persistent=topic.startswith("non-persistent://"))
    return AssignmentView(
        topic=row.topic,
        hash=row.hash,
        bundle=made.bundle,
        owner=row.broker,
        state=row.state,
        preallocated=made.preallocated or None,
        chosen=made.chosen or None,
        placement=made.placement,
        candidates=list(made.candidates),
        one_of=list(made.one_of),
        code=made.code.value if made.code is not None else None,
        sentence=_sentence(made),
        steps=[_step(item) for item in made.steps],
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


def _sentence(made: Assignment) -> str:
    if made.code is not None:
        return f"no broker: {EXPLANATIONS[made.code]}"
    if made.preallocated:
        return f"{made.chosen}, which it is on its way to already"
    target = made.chosen or "any of the candidates"
    if made.chosen and made.one_of:
        more = len(made.one_of) - _NAMED
        target = f"one of these: {', '.join(made.one_of[:_NAMED])}{f' and {more} more' if more > 0 else ''}"
    return f"{target}, by {made.placement} among {len(made.candidates)}"
