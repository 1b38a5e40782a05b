"""What the API and the CLI may ask of a running sidecar. Every replica answers (what stands on counters, which
only the leader reads, is older on followers); what only the leader can do is passed on to it, or left for it in the
shared state.

Raises NotFound, Conflict, Forbidden, ConfigError, StoreError, SnapshotError, TooSlow of `core.model.errors`; nothing
else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Protocol

from bundlekeel.core.channel.states import UnitState
from bundlekeel.core.quotas.groups import QuotaGroup
from bundlekeel.core.splitting.algorithms import BY_LOAD, SplitOptions
from bundlekeel.daemon.answers.channel import ChannelSummary, FindingView, UnitView
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.operations import (
    AdoptionView,
    CordonedView,
    ExcludedView,
    IncludedView,
    OperationsView,
    PausedScopeView,
    PinnedView,
    ResumedScopeView,
    ReversionView,
    ThresholdsView,
    UncordonedView,
    UnpinnedView,
)
from bundlekeel.daemon.answers.picture import (
    AssignmentView,
    BrokerView,
    BundleView,
    Check,
    CycleVerdict,
    Marks,
    ModeView,
    OverviewView,
    PauseView,
    Place,
    Resumed,
    Setting,
    State,
    WhyView,
)
from bundlekeel.daemon.answers.plans import (
    ManualMoveView,
    NamespaceUnloadView,
    PlanSummary,
    PlanView,
    RelocationView,
    ReviewView,
    Stopping,
    Submitted,
    TaskView,
)
from bundlekeel.daemon.answers.quotas import GroupDetailView, GroupRemoved, GroupSetView, QuotasView, QuotaWhyView
from bundlekeel.daemon.answers.summary import ALWAYS, Period, SummaryView

# How many times the traffic of now a plan may be made for.
MOST_SCALE: Final = 1000
Verb = Literal["transfer", "unload", "split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A dry run: overrides on top of the running settings. `ignore_hit_counts`: None: in a what-if alone. `forwarded`
    stops a second hand-over to a leader."""

    strategy: str | None = None
    placement: str | None = None
    parameters: Json = field(default_factory=dict)
    remove_brokers: tuple[str, ...] = ()
    add_brokers: tuple[str, ...] = ()
    traffic_scale: float = 1.0
    ignore_hit_counts: bool | None = None
    forwarded: bool = False

    @property
    def what_if(self) -> bool:
        """Whether brokers or traffic in it are not as they are: such a plan is never carried out."""
        return bool(self.remove_brokers or self.add_brokers) or self.traffic_scale != 1.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PlanRequest:
        """Out of JSON: what `to_json` gave, or a body of the API. TypeError, ValueError for what is no such thing."""
        brokers = {name: tuple(values.get(name, ())) for name in ("remove_brokers", "add_brokers")}
        return cls(**{**values, **brokers})

    def to_json(self) -> Json:
        """As JSON, for another sidecar or the store. Added brokers only where there are some: a sidecar of the release
        before refuses what it does not know."""
        values = asdict(self)
        return values if self.add_brokers else {key: item for key, item in values.items() if key != "add_brokers"}


class OperationsService(Protocol):
    """What people ask of brokers and bundles. Every mutation names `by` and `reason`, which the journal keeps."""

    async def operations(self) -> OperationsView:
        """Everything that was asked for and lasts, with the progress of drains."""

    async def drain(self, broker: str, *, dry_run: bool, reason: str, by: str) -> RelocationView:
        """Empty a broker and keep it empty until `uncordon`. Without `dry_run` the request is written."""

    async def cordon(self, broker: str, *, reason: str, by: str) -> CordonedView:
        """Stop moving bundles to a broker; Conflict for the last one open to bundles."""

    async def uncordon(self, broker: str, *, reason: str, by: str) -> UncordonedView:
        """End cordon, drain and warm of a broker; NotFound when there is none."""

    async def warm(self, broker: str, *, dry_run: bool, reason: str, by: str) -> RelocationView:
        """Fill a broker gently until it carries its share."""

    async def pin(self, bundle: str, *, seconds: float | None, reason: str, by: str) -> PinnedView:
        """Keep a bundle (or a topic's bundle) where it is."""

    async def unpin(self, bundle: str, *, reason: str, by: str) -> UnpinnedView:
        """End a pin; NotFound when there is none."""

    async def exclude(self, pattern: str, *, seconds: float | None, reason: str, by: str) -> ExcludedView:
        """Leave tenants, namespaces, bundles or brokers alone. ConfigError for a malformed pattern, NotFound for an
        unknown broker."""

    async def include(self, pattern: str, *, reason: str, by: str) -> IncludedView:
        """End an exclusion; NotFound when there is none."""

    async def pause_scope(self, scope: str, *, seconds: float | None, reason: str, by: str) -> PausedScopeView:
        """Move nothing of one scope (`tenant:..`, `namespace:..`, `broker:..`). Raises as `exclude`."""

    async def resume_scope(self, scope: str, *, reason: str, by: str) -> ResumedScopeView:
        """End the pause of one scope; NotFound when there is none."""

    async def manual_move(
        self,
        verb: Verb,
        name: str,
        *,
        to: str = "",
        options: SplitOptions = BY_LOAD,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> ManualMoveView:
        """Move or split one bundle. Dry unless `execute`; Conflict when it is to be carried out and something refuses.
        `options`: of a split, whose `name` may be TENANT/NAMESPACE/LARGEST. `override_cool_down`: although it moved
        lately, also straight back; what else of the guard binds a person says core/operations/manual_moves.py."""

    async def unload_namespace(
        self,
        namespace: str,
        *,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> NamespaceUnloadView:
        """Each bundle of a namespace off its broker, cycle by cycle within the budgets of the guard. Dry unless
        `execute`; Conflict when all are to stay."""

    async def task(self, task: str) -> TaskView:
        """One task as in `tasks`, or, while the leader has not taken it, its request (state `waiting`); NotFound."""

    async def stop(self, task: str, *, reason: str, by: str) -> Stopping:
        """Begin no further move of a task; those under way end."""

    async def reviews(self) -> list[ReviewView]:
        """What is, or was, to be approved, oldest first."""

    async def approve(self, id_: str, *, reason: str, by: str) -> ReviewView:
        """Let a proposal be carried out; Forbidden for the person who proposed it. One that is approved without a task,
        because the store failed, may be approved again."""

    async def discard(self, id_: str, *, reason: str, by: str) -> ReviewView:
        """Discard a proposal: it is not carried out."""


class ThresholdsService(Protocol):
    """Proposals of the nightly job, and what is in force of them."""

    async def view(self) -> ThresholdsView:
        """The newest proposal, its difference to what is in force, what speaks against it, and what is adopted."""

    async def adopt(self, *, digest: str | None, force: bool, reason: str, by: str) -> AdoptionView:
        """Let the newest proposal come into force. Conflict with the objections, if there are any; `force` overrides
        those that are a matter of judgement. `digest`: only if it is still this one. NotFound without proposal,
        Forbidden when calibration is off."""

    async def revert(self, *, digest: str | None, reason: str, by: str) -> ReversionView:
        """Take the last adoption back. `digest`: only if it is still this one. NotFound when nothing is adopted."""


class QuotasService(Protocol):
    """Quota groups: what holds, how they fare, and changing them. Raises NotFound, ConfigError, StoreError."""

    async def view(self) -> QuotasView:
        """All groups, and how they are enforced."""

    async def group(self, name: str) -> GroupDetailView:
        """One of the groups, with its busiest topics."""

    async def why(self, name: str, *, here: bool = False) -> QuotaWhyView:
        """`name`: a group or a topic. The leader knows every topic, and others ask it; `here`: no other sidecar is
        asked."""

    async def put(self, group: QuotaGroup, *, reason: str, by: str) -> GroupSetView:
        """Set a group, new or over the one of the settings. ConfigError when it cannot be kept: names, limits, unknown
        tenants, namespaces of another group."""

    async def remove(self, name: str, *, reason: str, by: str) -> GroupRemoved:
        """Take a group out of force; topics get back what was there."""

    async def reset(self, name: str, *, reason: str, by: str) -> GroupSetView:
        """Drop what was set or removed over a group of the settings, so that they hold again. ConfigError when it does
        not fit to the other groups any more."""


class Service(Protocol):
    """What a running sidecar answers and does."""

    @property
    def requests(self) -> OperationsService:
        """Drains, moves by hand, pins, reviews."""

    @property
    def thresholds(self) -> ThresholdsService:
        """Calibrated thresholds."""

    @property
    def quotas(self) -> QuotasService:
        """Quota groups."""

    def state(self) -> State:
        """Who and what this sidecar is, who leads, the last cycle, and why nothing is carried out now."""

    def brokers(self) -> list[BrokerView]:
        """One row a registered broker, by id."""

    def bundles(
        self, *, broker: str | None = None, namespace: str | None = None, after: str = "", limit: int | None = None
    ) -> list[BundleView]:
        """Sorted by short-term throughput, largest first, beginning after the bundle `after`. NotFound for an unknown
        broker or bundle."""

    def overview(self, largest: int) -> OverviewView:
        """The cluster in few rows: of each broker the `largest` bundles."""

    def changes(self) -> Marks:
        """Marks that differ when something changed."""

    async def why(self, name: str) -> WhyView:
        """`name`: bundle, topic or broker."""

    async def verdicts(self, limit: int, period: Period = ALWAYS) -> list[CycleVerdict]:
        """The last cycles' of that time, newest last."""

    async def journal(self, limit: int, kind: str | None, period: Period = ALWAYS) -> list[Json]:
        """The newest of that time, newest last, each a `JournalRecord` and what its kind has beside it."""

    async def summary(self, period: Period) -> SummaryView:
        """What happened in that time, in figures: moves and what they did, refusals, overloads, what people asked of
        this sidecar."""

    def settings(self) -> list[Setting]:
        """The settings in effect, secrets hidden."""

    async def make_plan(self, request: PlanRequest) -> PlanView:
        """A dry run on the leader's picture."""

    async def plan(self, hash_: str, *, here: bool = False) -> PlanView:
        """A plan made earlier by any sidecar (`here`: by this one); NotFound when unknown or expired (15 min)."""

    async def plans(self) -> list[PlanSummary]:
        """Plans made here lately, newest last."""

    async def execute(self, hash_: str, *, reason: str, by: str) -> Submitted:
        """Carry out exactly that plan on the leader, or Conflict with what changed. The leader compares again right
        before it acts: `tasks`."""

    async def tasks(self) -> list[TaskView]:
        """Executions asked for."""

    async def pause(self, *, reason: str, by: str, seconds: float | None) -> PauseView:
        """Stop acting everywhere, at once, leader or not."""

    async def resume(self, *, reason: str, by: str) -> Resumed:
        """End a pause."""

    async def set_mode(self, mode: str, *, reason: str, by: str) -> ModeView:
        """Lower or restore the mode within the file's ceiling; Forbidden above it."""

    async def where(self, name: str, *, listener: str = "") -> list[Place]:
        """A topic, partitioned topic (a row a partition), bundle or namespace. ConfigError: an owner has no such
        listener. Never assigns anything."""

    def channel(self) -> ChannelSummary:
        """The ownership channel (extensible load manager; else Conflict)."""

    def channel_bundles(
        self,
        *,
        state: UnitState | None = None,
        broker: str | None = None,
        namespace: str | None = None,
        after: str = "",
        limit: int = 1000,
    ) -> list[UnitView]:
        """By bundle name, beginning after `after`. Conflict without channel, StoreError unless followed."""

    def channel_findings(self) -> list[FindingView]:
        """By code, then bundle. Conflict without channel, StoreError unless followed."""

    async def assignments(self, names: Sequence[str]) -> list[AssignmentView]:
        """Where topics, bundles or namespaces would be placed if no broker owned them; nothing is assigned, no broker
        is asked."""

    async def doctor(self, *, for_act: bool = False) -> list[Check]:
        """Every connection and permission, what is wrong and how to fix it. `for_act`: what must hold before the
        sidecars act, with what a day of recommendations came to."""

    def live(self) -> list[Check]:
        """Whether this process itself turns over; never depends on the store."""

    def ready(self) -> list[Check]:
        """Whether it can do its work now: store, picture, leadership known."""

    def render_metrics(self, accept: str) -> tuple[bytes, str]:
        """Prometheus exposition and content type."""
