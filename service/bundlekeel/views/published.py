"""Immutable values for the API's reads: created on the main event loop, and readable in any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.leader.cycle.report import CycleReport
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.documents import Desired
from bundlekeel.model.check import Check
from bundlekeel.model.load import THROUGHPUT_IN, THROUGHPUT_OUT
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.response_fields import Json
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.effects import Effect
from bundlekeel.planning.engine import PlanInput
from bundlekeel.planning.filters.allowed import limits_of
from bundlekeel.planning.guard.eligibility import Eligibility, eligibility
from bundlekeel.ports import RawClusterView
from bundlekeel.pulsar.channel.channel_watch import ChannelWatch
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.settings.parameters import MergedParameters
from bundlekeel.views.picture import Marks, OverviewView, State


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterState:
    """The cluster and the state of the cycles, for the API's reads.

    The first use of a cached property takes up to a second in a large cluster. `plan_input`: input of the next plan;
    None before the first snapshot. `sheds`, `splits`: whether each broker's own shedding or splitting is on; None:
    unknown. `sources`: the objects from which this one was created, to detect changes."""

    snapshot: Snapshot | None
    picture: RawClusterView | None
    report: CycleReport | None
    params: Parameters
    cycle_state: CycleState
    desired: Desired
    plan_input: PlanInput | None
    no_picture: str
    sheds: Mapping[str, bool | None]
    splits: Mapping[str, bool | None]
    sources: tuple[object, ...]

    @cached_property
    def draft(self) -> Draft:
        """Loads of brokers and bundles, including moves that the load reports do not show yet. Do not change it."""
        assert self.snapshot is not None
        return Draft(self.snapshot, self.cycle_state.ledger, self.params, costs=self.cycle_state.memory.costs)

    @cached_property
    def largest_first(self) -> list[int]:
        """Indexes of the snapshot's bundles, in descending order of short-term throughput."""
        assert self.snapshot is not None
        table = self.snapshot.bundles
        size = table.short[:, THROUGHPUT_IN] + table.short[:, THROUGHPUT_OUT]
        order: list[int] = np.argsort(-size, kind="stable").tolist()
        return order

    @cached_property
    def overviews(self) -> dict[int, OverviewView]:
        """Cache of the last overview, by its number of bundles per broker (`largest`)."""
        return {}

    @cached_property
    def obstacles(self) -> Eligibility:
        """Bundles that must not move now, with reason and end of each obstacle."""
        return self.obstacles_without("")

    def obstacles_without(self, rested: str) -> Eligibility:
        """Return `obstacles` as if the cool-down of the bundle `rested` were over; "": all cool-downs apply."""
        inputs, snapshot = self.plan_input, self.snapshot
        assert inputs is not None and snapshot is not None
        ledger = self.cycle_state.ledger
        under_way = ledger.under_way()
        recent = {bundle: move for bundle, move in inputs.guard.recent.items() if bundle != rested}
        return eligibility(
            snapshot,
            replace(inputs.guard, recent=recent),
            inputs.params,
            snapshot.wall_ms,
            under_way,
            unsettled=ledger.bundles() - under_way,
            limits=limits_of(snapshot, inputs.policies, ledger),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """All values for the API's reads, from one point in time.

    `moves`: move records of all sidecars, oldest first. `judged`: measured effects of moves. `parameters`: planning
    parameters in effect. `turned_boot`: boot-clock time in seconds at which the last cycle, or one of its moves, ended.
    """

    cluster: ClusterState
    state: State
    marks: Marks
    ready: Sequence[Check]
    channel: ChannelWatch
    moves: Sequence[Json]
    judged: Sequence[Effect]
    parameters: MergedParameters
    turned_boot: float


def capture_cluster(cycle: Cycle, config: BrokerConfig, before: ClusterState | None = None) -> ClusterState:
    """Return the cluster's state for the API's reads, or `before` if nothing has changed. For the main loop only."""
    snapshot, shared = cycle.snapshot, cycle.shared_state
    values: dict[str, Any] = {
        "snapshot": snapshot,
        "picture": cycle.picture,
        "report": cycle.report,
        "params": cycle.params,
        "cycle_state": cycle.cycle_state,
        "desired": shared.desired,
        "no_picture": cycle.no_picture,
    }
    sources = (*values.values(), cycle.policies.current, shared.frozen, shared.takeover)
    if before is not None and all(old is new for old, new in zip(before.sources, sources, strict=True)):
        return before
    brokers = snapshot.brokers.ids if snapshot is not None else ()
    return ClusterState(
        **values,
        plan_input=cycle.plan_input(snapshot) if snapshot is not None else None,
        sheds={broker: config.sheds(broker) for broker in brokers},
        splits={broker: config.splits(broker) for broker in brokers},
        sources=sources,
    )
