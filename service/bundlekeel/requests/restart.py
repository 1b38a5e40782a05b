"""The plan of a rolling restart: the order of the brokers, the free capacity without each of them, and the progress.

Brokers are drained and restarted one at a time. The bundles of the first broker move twice, because the others restart
later. So the broker with the fewest bundles is first.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Final

from bundlekeel.leader.gate.gate import Action
from bundlekeel.leader.gate.guard_state import KEPT_MS
from bundlekeel.model.calls import reads_long
from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.response_fields import Broker, Sentence
from bundlekeel.model.text_format import HOUR_MS, numbered
from bundlekeel.planning.engine import PlanInput
from bundlekeel.planning.relocation import relocate
from bundlekeel.requests.relocation import UNLIMITED
from bundlekeel.requests.verb import Held, HeldExplanation, Verb

DONE, RESTARTING, DRAINING, WAITING = STATES = ("done", "restarting", "draining", "waiting")
_NO_CAPACITY: Final = (Code.TARGET_OVERLOADED, Code.NO_LEGAL_TARGET)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartStep(Answer):
    """One broker of a rolling restart."""

    broker: Broker
    state: Annotated[
        str,
        Doc(
            f"done: it restarted in the last {KEPT_MS // HOUR_MS} h; "
            "restarting: drained, and stopped or not uncordoned yet",
            of=STATES,
        ),
    ]
    bundles: Annotated[int | None, Doc("number of bundles that it reports; null: no usable report")]
    moves: Annotated[int, Doc("number of bundles that its drain moves now; 0 if it is done")] = 0
    homeless: Annotated[int, Doc("number of bundles that no other broker can receive now")] = 0
    highest_ratio: Annotated[
        float | None, Doc("highest score of another broker after its drain; null: done or unknown")
    ] = None
    free_ratio: Annotated[
        float | None,
        Doc("overload threshold minus `highest_ratio`: the free capacity without the broker; null: unknown"),
    ] = None
    eta_seconds: Annotated[float, Doc("estimated duration of its drain; 0: done")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPlan(Answer):
    """Plan and progress of a rolling restart."""

    brokers: Annotated[list[RestartStep], Doc("brokers in the order in which they restart; finished ones are first")]
    overloaded_ratio: Annotated[float, Doc("overload threshold: a drain moves no bundle that lifts a broker above it")]
    moves: Annotated[int, Doc("estimated number of moves until all brokers have restarted and the last one is filled")]
    eta_seconds: Annotated[float, Doc("estimated duration of these moves, without the starts of the brokers")]
    refused: Annotated[str, Doc("reason why the next broker must not restart now; empty: it may")]
    fix: Annotated[str, Doc("what to do about `refused`; empty: nothing")]
    sentence: Sentence
    held: Held = ""
    held_explanation: HeldExplanation = ""


class Restart(Verb):
    """The plan of a rolling restart. It changes nothing: each broker is drained by its own request."""

    @reads_long
    async def restart_plan(self) -> RestartPlan:
        """Return order, free capacity and progress of a rolling restart of all brokers."""
        inputs, registered = self.cycle.plan_input(self.cycle.demand_snapshot()), self._registered()
        states = self._states(registered, inputs)
        steps = await asyncio.to_thread(lambda: [_step(inputs, broker, state) for broker, state in states.items()])
        steps = [replace(step, eta_seconds=self.drain_tracker.eta(step.moves)) for step in steps]
        steps.sort(key=lambda step: (STATES.index(step.state), step.bundles is None, step.bundles or 0, step.broker))
        moves = _count_moves(steps)
        refused, fix = _refusal(steps, registered)
        return RestartPlan(
            brokers=steps,
            overloaded_ratio=inputs.params.overloaded_threshold_percent / 100,
            moves=moves,
            eta_seconds=self.drain_tracker.eta(moves),
            refused=refused,
            fix=fix,
            sentence=_sentence(steps),
            **self._held(Action.ORDER),
        )

    def _states(self, registered: Collection[str], inputs: PlanInput) -> dict[str, str]:
        """Return the state of each broker that is registered or drained."""
        drains, changed = self.shared_state.desired.drains, inputs.guard.changed_brokers
        states = {broker: DONE if broker in changed else WAITING for broker in registered}
        for broker, request in drains.items():
            is_back = changed.get(broker, 0) > request.since_ms
            states[broker] = RESTARTING if is_back or broker not in registered else DRAINING
        return states


def _step(inputs: PlanInput, broker: str, state: str) -> RestartStep:
    """Return the step of one broker, with the effect of its drain on the present loads."""
    row, table = inputs.snapshot.broker_row(broker), inputs.snapshot.bundles
    bundles = int((~table.system[table.rows_of(row)]).sum()) if row >= 0 else None
    step = RestartStep(broker=broker, state=state, bundles=bundles)
    if state not in (DRAINING, WAITING) or bundles is None:
        return step
    alone = frozenset({broker})
    guard = replace(inputs.guard, cordoned=inputs.guard.cordoned | alone, draining=alone, warming=frozenset())
    params = replace(inputs.params, drain_max_moves_per_cycle=UNLIMITED)
    result = relocate(replace(inputs, guard=guard, params=params))
    others = [load.score_after for load in result.loads if load.broker != broker]
    if not others:
        return step
    highest = max(others)
    return replace(
        step,
        moves=len(result.moves),
        homeless=sum(item.code in _NO_CAPACITY and item.broker == broker for item in result.refusals),
        highest_ratio=highest,
        free_ratio=params.overloaded_threshold_percent / 100 - highest,
    )


def _count_moves(steps: Collection[RestartStep]) -> int:
    """Return the estimated number of moves that remain: drains, and the fill of the last broker.

    For n equal brokers of which none has restarted, this is 1 + 2/n moves per bundle.
    """
    remaining = [step.moves for step in steps if step.state in (DRAINING, WAITING)]
    if all(step.state == DONE for step in steps):
        return 0
    first_moves_twice = remaining[0] if len(remaining) == len(steps) else 0
    fill = math.ceil(sum(step.bundles or 0 for step in steps) / len(steps))
    return sum(remaining) + first_moves_twice + fill


def _refusal(steps: Collection[RestartStep], registered: Collection[str]) -> tuple[str, str]:
    """Return why the next broker must not restart now, and what to do; ("", ""): it can restart."""
    for step in steps:
        if step.state == RESTARTING:
            return f"{step.broker} is restarting", f"wait until it runs, then `bundlekeel uncordon {step.broker}`"
        if step.state == DRAINING:
            fix = f"restart it when it is empty, then `bundlekeel uncordon {step.broker}`"
            return f"{step.broker} is being drained", fix
    if len(registered) < 2:
        return (
            f"{numbered(len(registered), 'broker')} is registered: no other one can receive its bundles",
            "add a broker",
        )
    for step in steps:
        if step.bundles is None:
            return f"the load of {step.broker} is unknown", "`bundlekeel doctor` shows the reason"
        if step.state == WAITING and step.highest_ratio is None:
            return "too few brokers report their load", "`bundlekeel doctor` shows the reason"
        if step.homeless:
            reason = f"{step.homeless} of {numbered(step.bundles, 'bundle')} of {step.broker} fit on no other broker"
            fix = "add a broker, end cordons, or wait for less traffic"
            return reason, f"{fix}; `bundlekeel drain {step.broker}` shows these bundles and their codes"
    return "", ""


def _sentence(steps: Collection[RestartStep]) -> str:
    counts = {state: sum(step.state == state for step in steps) for state in STATES}
    return f"{counts[DONE]} of {numbered(len(steps), 'broker')} done, " + ", ".join(
        f"{counts[state]} {state}" for state in STATES[1:]
    )
