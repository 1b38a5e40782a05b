"""Where would it go if no broker owned it? The assignment pipeline, dry: it reads, computes, and asks no broker.

A lookup would answer by assigning; this runs our own copy of the pipeline on the picture at hand instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from bundlekeel.core.filters.assign import Assignment, AssignmentInput, AssignmentStep, assign
from bundlekeel.core.model.codes import EXPLANATIONS
from bundlekeel.core.model.errors import ConfigError, SnapshotError
from bundlekeel.core.model.names import namespace_of
from bundlekeel.core.planning.draft import Draft
from bundlekeel.daemon.answers.picture import AssignmentView, DroppedView, Place, StepView
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.operations.where import where
from bundlekeel.daemon.sources.policies import PolicyCache
from bundlekeel.ports import Metadata, Ownership

# Each answer names every broker in every step.
MOST_ANSWERS = 200


async def assignments(
    names: Sequence[str], *, cycle: Cycle, policies: PolicyCache, metadata: Metadata, ownership: Ownership
) -> list[AssignmentView]:
    """One answer a bundle; a partitioned topic has one a partition, a namespace one a bundle.

    NotFound for what does not exist, SnapshotError before the first cycle, ConfigError when it is too much at once.
    """
    snapshot = cycle.snapshot
    if snapshot is None:
        raise SnapshotError("there is no picture of the cluster yet; try again in a few seconds")
    rows = [row for name in names for row in await where(name, metadata=metadata, ownership=ownership)]
    if len(rows) > MOST_ANSWERS:
        allowed = f"at most {MOST_ANSWERS} bundles at once"
        raise ConfigError(f"these are {len(rows)} bundles", field="names", value=len(rows), allowed=allowed)
    cycle_state, params = cycle.cycle_state, cycle.params
    asked = AssignmentInput(
        draft=Draft(snapshot, cycle_state.ledger, params, cycle_state.memory.turn, cycle_state.memory.idle),
        ledger=cycle_state.ledger,
        policies=await policies.read((*snapshot.bundles.namespaces, *(namespace_of(row.bundle) for row in rows))),
        placement=params.placement,
    )
    return [_answer(row, asked) for row in rows]


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
    return f"{made.chosen}, by {made.placement} among {len(made.candidates)}"
