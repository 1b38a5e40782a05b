"""Drains (an operator's request to empty a broker): the data that the leader's cycle needs, and their progress.

A drained broker is queried for its bundles (`owned_bundles`), because load reports omit bundles without topics and can
be minutes old. A broker that does not respond never counts as empty.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import structlog

from bundlekeel.leader.gate.gate import Action, GateQuestion
from bundlekeel.leader.gate.in_force import LeftAlone
from bundlekeel.leader.state.documents import Desired
from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Doc
from bundlekeel.model.errors import AdminApiError
from bundlekeel.model.names import is_system_bundle, parse_bundle
from bundlekeel.model.plan import Refusal
from bundlekeel.model.response_fields import Detail
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.owned import with_owned
from bundlekeel.ports import BrokerAdmin, Clock, RawClusterView, Telemetry
from bundlekeel.requests.relocation import Relocation, RelocationView, relocations
from bundlekeel.requests.verb import RequestView, put

if TYPE_CHECKING:
    from bundlekeel.leader.state.shared_state import SharedState
    from bundlekeel.pulsar.sources.broker_settings import BrokerConfig

_log = structlog.get_logger(__name__)

# A broker that does not list its bundles must not delay the cycle for longer than this.
LIST_SECONDS: Final = 5.0
# The estimated end of a drain assumes this many parallel moves per broker (ExecutorLimits.max_in_flight_per_broker),
# and the mean duration of this many last moves.
PARALLEL: Final = 1
MEASURED: Final = 50
# Assumed seconds per move before the first move is measured: the duration in an idle cluster.
GUESS_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView(RequestView):
    """A drain (request to empty a broker) and its progress."""

    state: Annotated[
        str, Doc("blocked: none of the remaining bundles may move", of=("draining", "empty", "blocked", "unknown"))
    ] = "unknown"
    left: Annotated[int | None, Doc("number of bundles that the broker still owns; null: unknown")] = None
    moved: Annotated[int, Doc("number of bundles that have left the broker")] = 0
    blocked: Annotated[dict[str, int], Doc("number of bundles that cannot leave, by code", keys=Code)] = field(
        default_factory=dict
    )
    eta_seconds: Annotated[float | None, Doc("estimated time until the broker is empty; null: unknown, or blocked")] = (
        None
    )
    emptied_ms: Annotated[int, Doc("time at which the broker was first empty; 0: not yet")] = 0
    bundle_seconds: Annotated[
        float, Doc("sum over all bundles of the broker: seconds from the start of the drain until the bundle left")
    ] = 0.0
    detail: Detail = "no cycle has examined it yet"


class Drain(Relocation):
    """The request to empty a broker (drain)."""

    async def drain(self, broker: str, *, dry_run: bool, reason: str, by: str) -> RelocationView:
        """Store a request to empty a broker and keep it empty; with `dry_run`, only return the moves."""
        self._check_registered(broker)
        self._check_others_open(self.shared_state.desired, broker)
        view = await self._preview_drain(broker, dry_run=dry_run)

        def drained(desired: Desired) -> Desired:
            # Check the stored requests again: another replica may have added a drain in between.
            self._check_others_open(desired, broker)
            return put(desired, "drains", broker, self._operator_request(reason, by))

        if not dry_run:
            self.gate.demand(GateQuestion(action=Action.ORDER))
            await self._note(drained, f"drain of {broker}", reason, by)
        return view

    async def _preview_drain(self, broker: str, *, dry_run: bool) -> RelocationView:
        owned, detail = dict[str, frozenset[str]](), ""
        try:
            owned[broker] = await self.drain_tracker.listed(broker)
        except (AdminApiError, TimeoutError) as error:
            detail = f"{broker} did not list its bundles ({error}); its load report is used"
        result = await self._plan_relocations(draining=frozenset({broker}), owned=owned)
        moves = relocations(result)
        explain = self._left_alone().explain
        refusals = [explain(item) for item in result.plan.refusals if item.broker == broker and item.bundle]
        count = len(owned[broker]) if owned else len(moves) + len(refusals)
        stay = f", {len(refusals)} {'stays' if len(refusals) == 1 else 'stay'} for now" if refusals else ""
        return self._relocation_view(
            broker,
            moves,
            refusals,
            dry_run=dry_run,
            bundles=count,
            # A drain does not end if all its bundles must stay: return no expected time.
            eta_seconds=None if count and not moves else self.drain_tracker.eta(len(moves)),
            sentence=f"{numbered(len(moves), 'bundle', 'leave')} {broker}{stay}",
            detail=detail,
        )


@dataclass(slots=True)
class _DrainedBroker:
    """Progress of one drain. `left`: the bundles that the broker still owns; None: it did not list them."""

    since_ms: int
    left: frozenset[str] | None = None
    detail: str = "not asked yet"
    asked_boot: float = 0.0
    bundle_seconds: float = 0.0
    emptied_ms: int = 0
    blocked: dict[str, str] = field(default_factory=dict)
    planned: frozenset[str] = frozenset()


class DrainTracker:
    """Tracks the bundles and the progress of drained brokers for the leader's cycle."""

    def __init__(
        self, shared_state: SharedState, admin: BrokerAdmin, config: BrokerConfig, clock: Clock, telemetry: Telemetry
    ) -> None:
        self._shared_state = shared_state
        self._admin = admin
        self._config = config
        self._clock = clock
        self._telemetry = telemetry
        self._endpoints: Collection[str] = ()
        self._watches: dict[str, _DrainedBroker] = {}
        self._listing = asyncio.Lock()

    # --- for the cycle ---

    @property
    def owned(self) -> Mapping[str, frozenset[str]]:
        """Bundles by draining broker, as that broker last listed them."""
        return {broker: watch.left for broker, watch in self._watches.items() if watch.left is not None}

    async def complete(self, snapshot: Snapshot, picture: RawClusterView) -> Snapshot:
        """Return the snapshot with all bundles that draining brokers own, also unreported bundles. Never raises."""
        self._endpoints = tuple(picture.endpoints)
        await self._list()
        return with_owned(snapshot, self.owned)

    def planned(self, refusals: Collection[Refusal]) -> None:
        """After a plan, record which bundles it refuses to move away from draining brokers."""
        with_cause = LeftAlone(self._shared_state.desired, self._clock.wall_ms()).explain
        for broker, watch in self._watches.items():
            watch.planned = watch.left or frozenset()
            watch.blocked = {
                item.bundle: with_cause(item).code.value
                for item in refusals
                if item.broker == broker and item.bundle and item.code is not Code.BUDGET_OF_DRAIN
            }

    def record(self) -> dict[str, Any]:
        """Return the progress of all drains. It is stored with the leader's state, so that every replica shows it."""
        return {broker: self._progress(broker, watch) for broker, watch in self._watches.items()}

    # --- keeping drained brokers empty ---

    async def look(self, under_way: Collection[str]) -> bool:
        """Query draining brokers again; return whether one of them owns a bundle that it did not own at the last plan.

        `under_way`: bundles in transit, which do not count."""
        if not self._shared_state.desired.drains:
            self._watches.clear()
            return False
        await self._list()
        return any((watch.left or frozenset()) - watch.planned - set(under_way) for watch in self._watches.values())

    async def listed(self, broker: str) -> frozenset[str]:
        """Return the bundles that a broker owns now, without system bundles.

        Raises AdminApiError if the request fails, and TimeoutError after 5 s."""
        cluster = self._config.adoptable().get("clusterName", "")
        async with asyncio.timeout(LIST_SECONDS):
            names = await self._admin.owned_bundles(broker, cluster)
        return frozenset(name for name in names if _moves_at_all(name))

    async def _list(self) -> None:
        async with self._listing:
            drains = self._shared_state.desired.drains
            self._watches = {
                broker: watch
                if (watch := self._watches.get(broker)) is not None and watch.since_ms == operator_request.since_ms
                else _DrainedBroker(since_ms=operator_request.since_ms)
                for broker, operator_request in drains.items()
            }
            await asyncio.gather(*(self._ask(broker, watch) for broker, watch in self._watches.items()))
            for watch in self._watches.values():
                # Drop the bundles that have left, so that one which returns counts as newly arrived.
                watch.planned &= watch.left if watch.left is not None else watch.planned
            # Drop the metrics of stopped brokers, because their last values would keep an alert firing.
            self._telemetry.retain("drain_bundles", "broker", drains.keys() & set(self._endpoints))

    async def _ask(self, broker: str, watch: _DrainedBroker) -> None:
        before, last_boot = watch.left, watch.asked_boot
        if broker not in self._endpoints:
            watch.left, watch.detail = None, "not registered"
            return
        try:
            watch.left, watch.detail = await self.listed(broker), ""
        except (AdminApiError, TimeoutError) as error:
            watch.left, watch.detail = None, str(error) or "it did not list its bundles in time"
            return
        watch.asked_boot = self._clock.boot()
        if before:
            bundle_seconds = len(before) * (watch.asked_boot - last_boot)
            watch.bundle_seconds += bundle_seconds
            self._telemetry.count("drain_bundle_seconds_total", bundle_seconds, broker=broker)
        watch.emptied_ms = 0 if watch.left else watch.emptied_ms or self._clock.wall_ms()
        self._telemetry.gauge("drain_bundles", float(len(watch.left)), broker=broker)

    # --- progress ---

    def progress(self) -> dict[str, dict[str, Any]]:
        """Return the progress of every drain by broker. A follower returns what the leader measured.

        Omits progress that belongs to an earlier drain of the same broker."""
        stored = self._shared_state.shared.report.get("operations") or {}
        own = self.record() if self._shared_state.leading or not stored else stored
        return {
            broker: own_progress
            for broker, request in self._shared_state.desired.drains.items()
            if (own_progress := own.get(broker)) and own_progress.get("since_ms") == request.since_ms
        }

    def _progress(self, broker: str, watch: _DrainedBroker) -> dict[str, Any]:
        records = [
            item for item in self._shared_state.moves if item["source"] == broker and item["wall_ms"] >= watch.since_ms
        ]
        # A bundle that left after the last query is in both lists: count it once, as not moved yet.
        departed = {item["bundle"] for item in records if item["outcome"] in ("done", "landed_elsewhere", "released")}
        moved = departed - (watch.left or frozenset())
        blocked = {name: code for name, code in watch.blocked.items() if watch.left is None or name in watch.left}
        free = len(watch.left) - len(blocked) if watch.left is not None else 0
        return {
            "since_ms": watch.since_ms,
            "left": None if watch.left is None else len(watch.left),
            "moved": len(moved),
            "blocked": dict(Counter(blocked.values())),
            "state": _state(watch, free),
            "eta_seconds": None if watch.left is None or (watch.left and free <= 0) else self.eta(free),
            "emptied_ms": watch.emptied_ms,
            "bundle_seconds": round(watch.bundle_seconds, 1),
            "detail": watch.detail,
        }

    def eta(self, moves: int) -> float:
        """Return the expected seconds of `moves` moves from one broker.

        The duration of a move is the mean of the last moves, or a fixed estimate before the first move."""
        took = [item["seconds"] for item in self._shared_state.moves if item["outcome"] in ("done", "released")][
            -MEASURED:
        ]
        each = sum(took) / len(took) if took else GUESS_SECONDS
        return round(moves * each / PARALLEL, 1)


def _state(watch: _DrainedBroker, free: int) -> str:
    if watch.left is None:
        return "unknown"
    if not watch.left:
        return "empty"
    return "draining" if free > 0 else "blocked"


def _moves_at_all(name: str) -> bool:
    try:
        parse_bundle(name)
    except ValueError:
        return False
    return not is_system_bundle(name)
