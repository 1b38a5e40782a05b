"""The gate decides whether an action is allowed now: a cycle, request, move, split, quota change or adoption.

The kind of action selects the checks (`CHECKS`). They run in the order of `GateCheck`; the first failing check gives
the obstacle and its code. The gate changes nothing.

Two decisions are elsewhere, because they do not depend on the time. `planning/guard` decides which bundles may move,
where to and how many. The feature that adopts thresholds decides whether proposed ones are good enough.

Takeover, handback and the failsafe job do not use the gate, because they must work without a sidecar. They use only the
takeover record (requests/takeover.py, requests/failsafe.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from bundlekeel.leader.gate.in_force import ends_of, lasts, mode_in_force, pause_in_force, scopes_paused
from bundlekeel.leader.gate.responses import Mode
from bundlekeel.leader.state.documents import Desired
from bundlekeel.leader.state.partial_takeover import left_to_us, namespaces_of, put_aside
from bundlekeel.leader.state.takeover_record import TakeoverRecord
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.errors import Forbidden, LeadershipLost, StoreError
from bundlekeel.model.migration import NO_MIGRATION, StoreMigration
from bundlekeel.model.names import namespace_of
from bundlekeel.planning.guard.scope import pattern_for
from bundlekeel.ports import Clock, Metadata, RawClusterView
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig

# Bundlekeel acts on clusters with these load managers; it only observes the others (Simple, Noop).
ACTED_ON: Final = ("modular", "extensible")


class GateCheck(Enum):
    """The checks of the gate, in their order. The value is the condition that must hold."""

    MIGRATION = "the brokers do not move their metadata to another store, and have not moved it"
    TASK = "the requesting task was not stopped"
    REQUEST = "the requesting drain or warm-up has not ended"
    MODE = "the settings file and the operators' mode are both `act`"
    PAUSE = "there is no pause of everything"
    LEASE = "this sidecar leads, in the term of the action"
    OUTAGE = "brokers have settled after an outage of the metadata store"
    PUT_ASIDE = "the failsafe job has not ended the takeover"
    SECOND_BALANCER = "no other balancer keeps undoing Bundlekeel's moves"
    CLUSTER = "all brokers run the same load manager, which Bundlekeel supports, and their reports change"
    LOAD = "no broker's first load report is awaited"
    CHANNEL = "the ownership channel is followed (extensible load manager)"
    SHEDDING = "no broker sheds bundles of the taken-over namespaces itself"
    WINDOW = "a maintenance window allows it"
    REVIEW = "a second operator has approved it, if the settings require a review"
    SCOPE = "the bundle is taken over"
    BUNDLE = "the bundle and its brokers are not paused or excluded, and the bundle is not pinned"
    TARGET = "the target is neither cordoned nor drained"


class Action(Enum):
    """The kinds of action that the gate checks. The value describes them."""

    PLAN = "moves and splits that a cycle plans automatically"
    RELOCATION = "moves of a drain or a warm-up, in a cycle"
    REQUEST = "a plan, move or split that an operator requested, right before the leader executes it"
    SUBMISSION = "a plan, move or split, when an operator requests it from any sidecar or approves it"
    ORDER = "a drain or a warm-up, when an operator requests it from any sidecar"
    QUOTAS = "rates and resource groups of quota groups"
    ADOPTION = "thresholds that are adopted automatically"


_CLUSTER_CHANGES: Final = frozenset(GateCheck) - {GateCheck.TASK, GateCheck.REQUEST, GateCheck.WINDOW, GateCheck.REVIEW}
CHECKS: Final[Mapping[Action, frozenset[GateCheck]]] = {
    Action.PLAN: _CLUSTER_CHANGES | {GateCheck.WINDOW},
    Action.RELOCATION: _CLUSTER_CHANGES | {GateCheck.REQUEST},
    Action.REQUEST: _CLUSTER_CHANGES | {GateCheck.TASK, GateCheck.REVIEW},
    Action.SUBMISSION: frozenset({GateCheck.MIGRATION, GateCheck.MODE, GateCheck.PAUSE}),
    Action.ORDER: frozenset({GateCheck.MIGRATION, GateCheck.MODE}),
    Action.QUOTAS: frozenset({GateCheck.MIGRATION, GateCheck.MODE, GateCheck.PAUSE, GateCheck.LEASE, GateCheck.OUTAGE}),
    # If nothing is executed, the effect of new thresholds cannot be measured. The leader check is not needed: only the
    # leader's task adopts.
    Action.ADOPTION: frozenset({GateCheck.MIGRATION, GateCheck.MODE, GateCheck.PAUSE, GateCheck.PUT_ASIDE}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateQuestion:
    """An action to check. `epoch`: leader term to act in; None for a follower. `bundle`, `source` and `target` describe
    a single move or split; empty: the checks on bundles and brokers do not apply. `task`: id of the requesting task.
    `approved`: whether a second operator approved the task."""

    action: Action
    epoch: int | None = None
    bundle: str = ""
    source: str = ""
    target: str = ""
    task: str = ""
    approved: bool = False


class SharedStateView(Protocol):
    """The part of the shared state that the gate reads (leader/state/shared_state.py)."""

    @property
    def desired(self) -> Desired:
        """The operators' requests at run time."""

    @property
    def takeover(self) -> TakeoverRecord | None:
        """The last takeover, active or ended; None: there was none."""

    def current_epoch(self) -> int:
        """Return the epoch of this leader's term. Raises LeadershipLost if this sidecar does not lead."""

    async def refresh(self) -> None:
        """Reload the operators' requests from the metadata store. Raises StoreError if they cannot be read."""


@dataclass(kw_only=True, eq=False)
class Gate:
    """The gate of one sidecar. `ceiling` (the highest mode) and `review_required` come from the settings file.

    `outage` receives each new snapshot, and None for a check without a new snapshot. `outage`, `second_balancer`,
    `channel` ("": none) and `windows` (at a Unix time in ms) return the obstacle, or None."""

    ceiling: Mode
    review_required: bool
    shared: SharedStateView
    metadata: Metadata
    config: BrokerConfig
    clock: Clock
    outage: Callable[[RawClusterView | None], Obstacle | None]
    second_balancer: Callable[[], Obstacle | None]
    channel: Callable[[], str]
    windows: Callable[[int], Obstacle | None]
    _picture: RawClusterView | None = field(default=None, init=False)
    _migration: StoreMigration = field(default=NO_MIGRATION, init=False)
    _migration_boot: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._check_functions: Mapping[GateCheck, Callable[[GateQuestion], Obstacle | None]] = {
            GateCheck.MIGRATION: lambda _: self._migrating(),
            GateCheck.TASK: self._task,
            GateCheck.REQUEST: self._operator_request,
            GateCheck.MODE: self._mode,
            GateCheck.PAUSE: self._pause,
            GateCheck.LEASE: self._lease,
            GateCheck.OUTAGE: lambda _: self.outage(None),
            GateCheck.PUT_ASIDE: self._put_aside,
            GateCheck.SECOND_BALANCER: lambda _: self.second_balancer(),
            GateCheck.CLUSTER: lambda _: self.cluster_obstacle(),
            GateCheck.LOAD: self._load,
            GateCheck.CHANNEL: self._channel,
            GateCheck.SHEDDING: self._shedding,
            GateCheck.WINDOW: lambda _: self.windows(self.clock.wall_ms()),
            GateCheck.REVIEW: self._review,
            GateCheck.SCOPE: self._scope,
            GateCheck.BUNDLE: self._bundle,
            GateCheck.TARGET: self._target,
        }

    def see(self, picture: RawClusterView) -> None:
        """Use a new snapshot of the cluster for all checks from now on."""
        self._picture = picture
        self.outage(picture)

    async def observe_migration(self) -> None:
        """Read the state of a store migration. Raises StoreMigrated if it is completed, StoreError if unreadable."""
        (await self.metadata.migration()).demand_readable()
        self._migrating()

    def check(self, question: GateQuestion) -> Obstacle | None:
        """Return the first obstacle to the action, or None, from the data in memory. See also `check_anew`."""
        required = CHECKS[question.action]
        obstacles = (self._check_functions[check](question) for check in GateCheck if check in required)
        return next((obstacle for obstacle in obstacles if obstacle is not None), None)

    async def check_anew(self, question: GateQuestion) -> Obstacle | None:
        """Reload the operators' requests, then return the first obstacle or None. For use right before a change."""
        try:
            await self.shared.refresh()
            await self.metadata.migration()
        except StoreError as error:
            return Obstacle(code=Code(error.code), detail=str(error))
        return self.check(question)

    def demand(self, question: GateQuestion) -> None:
        """Raises Forbidden, with the obstacle, if the action is not allowed now."""
        obstacle = self.check(question)
        if obstacle is not None:
            raise Forbidden(f"not carried out: {obstacle.sentence}", code=obstacle.code)

    def cluster_obstacle(self) -> Obstacle | None:
        """Return why Bundlekeel can only observe this cluster, in any mode, or None.

        Reasons: other or mixed load managers, or a broker whose load report never changes
        (`loadBalancerEnabled=false`)."""
        picture = self._picture
        if picture is None:
            return None
        if picture.mode not in ACTED_ON:
            kinds = ", ".join(sorted({item.load_manager.rpartition(".")[2] for item in picture.endpoints.values()}))
            code = Code.MIXED_LOAD_MANAGERS if picture.mode == "mixed" else Code.UNSUPPORTED_LOAD_MANAGER
            return Obstacle(code=code, detail=kinds or picture.mode)
        frozen = [broker for broker in picture.endpoints if self.config.reports_frozen(broker)]
        return Obstacle(code=Code.FROZEN_REPORTS, detail=", ".join(sorted(frozen))) if frozen else None

    # --- the checks, in their order ---

    def _migrating(self) -> Obstacle | None:
        """Return an obstacle if a migration of the metadata store is running or completed.

        After a failed migration, the obstacle remains until a new snapshot is read.
        """
        state, picture = self.metadata.migration_now, self._picture
        if state != self._migration:
            self._migration, self._migration_boot = state, self.clock.boot()
        if state.code is not None:
            return Obstacle(code=state.code, detail=state.detail)
        if picture is not None and picture.boot < self._migration_boot:
            return Obstacle(code=Code.STORE_MIGRATING, detail=f"{state.detail}; the store must be read again first")
        return None

    def _task(self, question: GateQuestion) -> Obstacle | None:
        stop = self.shared.desired.stops.get(question.task) if question.task else None
        return Obstacle(code=Code.STOPPED, detail=f"by {stop.by}: {stop.reason}") if stop is not None else None

    def _operator_request(self, question: GateQuestion) -> Obstacle | None:
        """Return an obstacle if a move was planned for a drain or warm-up that has ended.

        Such a move ignores the bundle's cool-down, so it must not start afterwards."""
        desired = self.shared.desired
        if not question.bundle or question.source in desired.drains or question.target in desired.warms:
            return None
        return Obstacle(code=Code.STOPPED, detail="the drain or warm-up has ended")

    def _mode(self, _question: GateQuestion) -> Obstacle | None:
        ceiling = self.ceiling
        mode = mode_in_force(ceiling, self.shared.desired)
        if mode == "act":
            return None
        code = Code.OBSERVE_ONLY if mode == "observe" else Code.RECOMMEND_ONLY
        lowered = f"lowered from {ceiling}; `bundlekeel mode {ceiling}` restores it" if mode != ceiling else ""
        return Obstacle(code=code, detail=lowered)

    def _pause(self, _question: GateQuestion) -> Obstacle | None:
        pause = pause_in_force(self.shared.desired, self.clock.wall_ms())
        return Obstacle(code=Code.PAUSED, detail=f"by {pause.by}: {pause.reason}") if pause is not None else None

    def _lease(self, question: GateQuestion) -> Obstacle | None:
        try:
            current = self.shared.current_epoch()
        except LeadershipLost:
            return Obstacle(code=Code.NOT_LEADER)
        return Obstacle(code=Code.NOT_LEADER) if question.epoch != current else None

    def _put_aside(self, _question: GateQuestion) -> Obstacle | None:
        """Return an obstacle if the failsafe job ended the last takeover: an operator must take over again first.

        The check SHEDDING would fail too, but only if the brokers shed load before the takeover.
        """
        ended = put_aside(self.shared.takeover)
        return Obstacle(code=Code.PUT_ASIDE, detail=f"{ended.by}: {ended.reason}") if ended is not None else None

    def _load(self, _question: GateQuestion) -> Obstacle | None:
        """Return an obstacle while a broker's first load report is missing: the broker would seem to be idle."""
        awaited = self._picture.awaited if self._picture is not None else ()
        return Obstacle(code=Code.LOAD_AWAITED, detail=", ".join(awaited)) if awaited else None

    def _channel(self, _question: GateQuestion) -> Obstacle | None:
        fault = self.channel()
        return Obstacle(code=Code.CHANNEL_NOT_FOLLOWED, detail=fault) if fault else None

    def _shedding(self, _question: GateQuestion) -> Obstacle | None:
        """Return an obstacle if a broker itself sheds load. In a partial takeover it may shed other namespaces."""
        config, namespaces = self.config, namespaces_of(self.shared.takeover)
        brokers = sorted(self._picture.endpoints) if self._picture is not None else []
        shedding = [item for item in brokers if config.sheds(item) and not left_to_us(config.values(item), namespaces)]
        if shedding:
            return Obstacle(code=Code.BROKERS_SHED_THEMSELVES, detail=", ".join(shedding))
        unknown = [item for item in brokers if config.sheds(item) is None]
        if not unknown:
            return None
        # If no broker responds (expired token), this sidecar cannot act. The failsafe job has its own token and can.
        every = len(unknown) == len(brokers)
        return Obstacle(code=Code.BROKER_SETTINGS_UNKNOWN, detail=", ".join(unknown), unable=every)

    def _review(self, question: GateQuestion) -> Obstacle | None:
        needed = self.review_required and not question.approved
        return Obstacle(code=Code.NOT_REVIEWED) if needed else None

    def _scope(self, question: GateQuestion) -> Obstacle | None:
        namespaces = namespaces_of(self.shared.takeover)
        if not question.bundle or not namespaces or namespace_of(question.bundle) in namespaces:
            return None
        return Obstacle(code=Code.NOT_TAKEN_OVER, detail=f"the takeover covers only {', '.join(namespaces)}")

    def _bundle(self, question: GateQuestion) -> Obstacle | None:
        """Return an obstacle if the bundle is paused, excluded or pinned, also if that was requested after the plan."""
        bundle, desired, now = question.bundle, self.shared.desired, self.clock.wall_ms()
        if not bundle:
            return None
        brokers = [broker for broker in (question.source, question.target) if broker]
        paused = pattern_for(scopes_paused(desired, now), now, bundle, brokers)
        if paused:
            return Obstacle(code=Code.PAUSED, detail=f"its scope {paused} is paused")
        excluded = pattern_for(ends_of(desired.excluded), now, bundle, brokers)
        if excluded:
            return Obstacle(code=Code.EXCLUDED, detail=f"by {excluded}")
        pin = desired.pinned.get(bundle)
        if pin is not None and lasts(pin.until_ms, now):
            return Obstacle(code=Code.PINNED, detail="since this plan was made")
        return None

    def _target(self, question: GateQuestion) -> Obstacle | None:
        desired, target = self.shared.desired, question.target
        closed = bool(target) and (target in desired.cordons or target in desired.drains)
        return Obstacle(code=Code.CORDONED, detail=target) if closed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """A reason why an action is not executed now. `unable`: this sidecar cannot act at all; see
    `CycleReport.completed`."""

    code: Code
    detail: str = ""
    unable: bool = False

    @property
    def sentence(self) -> str:
        """Return the explanation of the code, followed by the detail in brackets if there is one."""
        return f"{EXPLANATIONS[self.code]}{f' ({self.detail})' if self.detail else ''}"
