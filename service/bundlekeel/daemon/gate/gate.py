"""The one gate: may this be done now? Asked for cycles, requests, each single move and split, quotas and adoptions.

Which checks apply depends on what kind of action asks (`CHECKS`). They are made in the order of `GateCheck`, and the
first one that fails is the answer, with its code. The gate reads what it is given and changes nothing.

Not here, because it is no question of now: which bundles may move where and how many (core/guard), and whether the
proposed thresholds are any good (core/calibration/thresholds.py). Taking over, handing back and the failsafe job do not
ask the gate: they run without a sidecar, because a person asks or because every sidecar failed, and go by the takeover
record alone (daemon/operations/takeover.py, daemon/operations/failsafe.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from bundlekeel.core.guard.scope import pattern_for
from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.errors import Forbidden, LeadershipLost, StoreError
from bundlekeel.core.model.migration import NO_MIGRATION, StoreMigration
from bundlekeel.core.model.names import namespace_of
from bundlekeel.daemon.answers.picture import Mode
from bundlekeel.daemon.gate.in_force import ends_of, lasts, mode_in_force, pause_in_force, scopes_paused
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.daemon.state.documents import Desired
from bundlekeel.daemon.state.takeover_record import TakeoverRecord, left_to_us, namespaces_of, put_aside
from bundlekeel.ports import Clock, Metadata, RawClusterView

# Load managers that are acted on; the others (Simple, Noop) are observed.
ACTED_ON: Final = ("modular", "extensible")


class GateCheck(Enum):
    """What is checked, in this order; the value says what must hold."""

    MIGRATION = "the brokers do not move their metadata to another store, and have not moved it"
    TASK = "the task that asks was not stopped"
    REQUEST = "the drain or warm-up that asks for it has not ended"
    MODE = "the settings file and people at run time say `act`"
    PAUSE = "there is no pause of everything"
    LEASE = "this sidecar leads, in the very term that is asked about"
    OUTAGE = "brokers have settled after an outage of the metadata store"
    PUT_ASIDE = "the failsafe job has not ended the takeover"
    SECOND_BALANCER = "no other balancer keeps undoing our moves"
    CLUSTER = "all brokers run one load manager that is acted on, and their reports are alive"
    LOAD = "no broker's first load report is awaited"
    CHANNEL = "the ownership channel is followed (extensible load manager)"
    SHEDDING = "no broker sheds by itself what is taken over"
    WINDOW = "a maintenance window allows it"
    REVIEW = "a second person has approved it, where the settings ask for that"
    SCOPE = "the bundle is taken over"
    BUNDLE = "neither it nor its brokers are paused or excluded, and it is not pinned"
    TARGET = "the target is neither cordoned nor drained"


class Action(Enum):
    """What kind of action asks; the value says which actions are meant."""

    PLAN = "what a cycle moves and splits by itself"
    RELOCATION = "what a drain or a warm-up moves, in a cycle"
    REQUEST = "a plan, move or split that a person asked for, right before the leader carries it out"
    SUBMISSION = "the same when a person asks any sidecar for it, or approves it"
    ORDER = "a drain or a warm-up when a person asks any sidecar for it"
    QUOTAS = "rates and resource groups of quota groups"
    ADOPTION = "thresholds that come into force by themselves"


_CLUSTER_CHANGES: Final = frozenset(GateCheck) - {GateCheck.TASK, GateCheck.REQUEST, GateCheck.WINDOW, GateCheck.REVIEW}
CHECKS: Final[Mapping[Action, frozenset[GateCheck]]] = {
    Action.PLAN: _CLUSTER_CHANGES | {GateCheck.WINDOW},
    Action.RELOCATION: _CLUSTER_CHANGES | {GateCheck.REQUEST},
    Action.REQUEST: _CLUSTER_CHANGES | {GateCheck.TASK, GateCheck.REVIEW},
    Action.SUBMISSION: frozenset({GateCheck.MIGRATION, GateCheck.MODE, GateCheck.PAUSE}),
    Action.ORDER: frozenset({GateCheck.MIGRATION, GateCheck.MODE}),
    Action.QUOTAS: frozenset({GateCheck.MIGRATION, GateCheck.MODE, GateCheck.PAUSE, GateCheck.LEASE, GateCheck.OUTAGE}),
    # Where nothing is carried out it is not seen whether it helps. Only the leader's task adopts
    # (daemon/calibration/watcher.py).
    Action.ADOPTION: frozenset({GateCheck.MIGRATION, GateCheck.MODE, GateCheck.PAUSE, GateCheck.PUT_ASIDE}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateQuestion:
    """Who asks for what. `epoch`: the term it is to be done in, None for a follower. `bundle`, `source`,
    `target`: of a single move or split; without a bundle no bundle is asked about. `task`, `approved`: of a request."""

    action: Action
    epoch: int | None = None
    bundle: str = ""
    source: str = ""
    target: str = ""
    task: str = ""
    approved: bool = False


class SharedStateView(Protocol):
    """What the gate needs of the shared state (daemon/state/shared_state.py)."""

    @property
    def desired(self) -> Desired:
        """What people asked for at run time."""

    @property
    def takeover(self) -> TakeoverRecord | None:
        """The last takeover, in force or ended."""

    def current_epoch(self) -> int:
        """The epoch; LeadershipLost when we do not lead."""

    async def refresh(self) -> None:
        """Read what people want anew. StoreError when it cannot be read."""


@dataclass(kw_only=True, eq=False)
class Gate:
    """One for each sidecar. `ceiling`, `review_required`: of the settings file. `outage` is shown each new picture, and
    asked without one. `second_balancer`, `channel` ("" for none), `windows` (at a wall ms): why not, if so."""

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
        self._made: Mapping[GateCheck, Callable[[GateQuestion], Obstacle | None]] = {
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
        """A new picture of the cluster: from now on actions are judged by it."""
        self._picture = picture
        self.outage(picture)

    async def observe_migration(self) -> None:
        """Read the state of a store migration. Raises StoreError; StoreMigrated once it is completed."""
        (await self.metadata.migration()).demand_readable()
        self._migrating()

    def check(self, question: GateQuestion) -> Obstacle | None:
        """The first reason why this may not be done now, or None. By what is known here; see `check_anew`."""
        wanted = CHECKS[question.action]
        found = (self._made[check](question) for check in GateCheck if check in wanted)
        return next((obstacle for obstacle in found if obstacle is not None), None)

    async def check_anew(self, question: GateQuestion) -> Obstacle | None:
        """The same after reading what people want from the store: right before anything is changed."""
        try:
            await self.shared.refresh()
            await self.metadata.migration()
        except StoreError as error:
            return Obstacle(code=Code(error.code), detail=str(error))
        return self.check(question)

    def demand(self, question: GateQuestion) -> None:
        """Forbidden, with the reason, unless it may be done now."""
        obstacle = self.check(question)
        if obstacle is not None:
            raise Forbidden(f"not carried out: {obstacle.sentence}", code=obstacle.code)

    def cluster_obstacle(self) -> Obstacle | None:
        """What about the cluster itself forbids acting, in any mode: observed, reported, never acted on."""
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
        """Return a migration in progress or completed, or that the picture is older than the end of a failed one."""
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
        """A bundle leaves a draining broker within its cool-down: not when the drain ended while the move waited."""
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
        """The failsafe job ended the last takeover: no sidecar acts before a person takes over anew.

        That the brokers shed again would stop us too (SHEDDING), but not where they did not shed before.
        """
        ended = put_aside(self.shared.takeover)
        return Obstacle(code=Code.PUT_ASIDE, detail=f"{ended.by}: {ended.reason}") if ended is not None else None

    def _load(self, _question: GateQuestion) -> Obstacle | None:
        """A plan by the traffic of idle brokers alone would be a wrong one; in a moment there is a better one."""
        awaited = self._picture.awaited if self._picture is not None else ()
        return Obstacle(code=Code.LOAD_AWAITED, detail=", ".join(awaited)) if awaited else None

    def _channel(self, _question: GateQuestion) -> Obstacle | None:
        fault = self.channel()
        return Obstacle(code=Code.CHANNEL_NOT_FOLLOWED, detail=fault) if fault else None

    def _shedding(self, _question: GateQuestion) -> Obstacle | None:
        """Brokers that leave the namespaces of a partial takeover alone may shed the others."""
        config, taken = self.config, namespaces_of(self.shared.takeover)
        brokers = sorted(self._picture.endpoints) if self._picture is not None else []
        shedding = [item for item in brokers if config.sheds(item) and not left_to_us(config.values(item), taken)]
        if shedding:
            return Obstacle(code=Code.BROKERS_SHED_THEMSELVES, detail=", ".join(shedding))
        unknown = [item for item in brokers if config.sheds(item) is None]
        if not unknown:
            return None
        # Where no broker answers (an expired token), nothing can be carried out: the failsafe, with another one, may.
        every = len(unknown) == len(brokers)
        return Obstacle(code=Code.BROKER_SETTINGS_UNKNOWN, detail=", ".join(unknown), unable=every)

    def _review(self, question: GateQuestion) -> Obstacle | None:
        needed = self.review_required and not question.approved
        return Obstacle(code=Code.NOT_REVIEWED) if needed else None

    def _scope(self, question: GateQuestion) -> Obstacle | None:
        taken = namespaces_of(self.shared.takeover)
        if not question.bundle or not taken or namespace_of(question.bundle) in taken:
            return None
        return Obstacle(code=Code.NOT_TAKEN_OVER, detail=f"the takeover is of {', '.join(taken)} only")

    def _bundle(self, question: GateQuestion) -> Obstacle | None:
        """A scope that was paused or excluded, or a pin, after the plan was made holds too."""
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
    """Why nothing is carried out now. `unable`: this sidecar cannot, whoever leads by it; see
    `CycleReport.completed`."""

    code: Code
    detail: str = ""
    unable: bool = False

    @property
    def sentence(self) -> str:
        """The explanation of the code, with the detail when there is one."""
        return f"{EXPLANATIONS[self.code]}{f' ({self.detail})' if self.detail else ''}"
