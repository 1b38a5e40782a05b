"""Parameters on trial: other values for the bundles of some namespaces, while all other bundles follow the common ones.

The common parameters plan first, with the namespaces of the trial excluded. The values on trial then plan for these
namespaces alone, as if the first moves had started. Both share the budgets, and their moves are one plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan, Refusal, plan_hash
from bundlekeel.model.snapshot import BundleTable
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.guard.scope import match_any
from bundlekeel.planning.relocation import NOT_FOR_BALANCE, with_loads_before


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialParameters:
    """Values, by parameter, that replace the common ones for some namespaces: names, or patterns such as `tenant/*`."""

    namespaces: tuple[str, ...]
    values: Mapping[str, float | int]

    def names(self, bundles: BundleTable, params: Parameters) -> tuple[str, ...]:
        """Return the namespaces with bundles for which these values apply: settings may exclude some of them.

        With `compat` there is none: Pulsar's classes do not know the moves of another plan of the same cycle.
        """
        if params.compat != "none":
            return ()
        names = bundles.namespaces
        chosen = match_any(self.namespaces, names)
        if params.included_namespaces:
            chosen &= match_any(params.included_namespaces, names)
        excluded = frozenset(params.excluded_namespaces)
        return tuple(names[row] for row in np.flatnonzero(chosen).tolist() if names[row] not in excluded)

    def parameters(self, params: Parameters, names: tuple[str, ...], first: Plan) -> Parameters:
        """Return the parameters of the second plan. The splits of the first one use the same budget."""
        values: dict[str, Any] = dict(self.values)
        splits = max(0, params.split_max_per_cycle - len(first.splits))
        return replace(params, **values, included_namespaces=names, split_max_per_cycle=splits)


def excluding(params: Parameters, names: tuple[str, ...]) -> Parameters:
    """Return the parameters with these namespaces excluded from moves for the balance."""
    return replace(params, excluded_namespaces=(*params.excluded_namespaces, *names)) if names else params


def both(first: Plan, second: Plan, draft: Draft, trial: TrialParameters, names: tuple[str, ...]) -> Plan:
    """Return the moves and splits of the common plan and of the plan on trial as one plan.

    `draft`: of the common plan, whose weights give the loads. A bundle has the refusal of its plan, or of its drain.
    """
    moved, inner = {move.bundle for move in second.moves}, frozenset(names)

    def inside(bundle: str) -> bool:
        return bool(bundle) and namespace_of(bundle) in inner

    def drains(item: Refusal) -> bool:
        return item.broker in first.closed and item.code is not Code.EXCLUDED and item.bundle not in moved

    def own(common: tuple[Refusal, ...], tried: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
        rows = [item for item in common if not inside(item.bundle) or drains(item)]
        bundles = {item.bundle for item in rows}
        return (*rows, *(item for item in tried if inside(item.bundle) and item.bundle not in bundles))

    balancing = tuple(move for move in first.moves if move.rule not in NOT_FOR_BALANCE)
    verdict = second.verdict if second.moves and not first.moves else first.verdict
    if second.verdict.sentence != first.verdict.sentence:
        text = f"{first.verdict.sentence}; on trial in {', '.join(trial.namespaces)}: {second.verdict.sentence}"
        verdict = replace(verdict, sentence=text)
    merged = replace(
        first,
        verdict=verdict,
        moves=(*first.moves, *second.moves),
        refusals=own(first.refusals, second.refusals),
        splits=(*first.splits, *second.splits),
        split_refusals=own(first.split_refusals, second.split_refusals),
        loads=with_loads_before(first.loads, draft.loads((*balancing, *second.moves))),
    )
    return replace(merged, hash=plan_hash(merged))
