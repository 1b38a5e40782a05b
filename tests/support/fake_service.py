"""A `Service` in memory with three brokers and a dozen bundles, for API and CLI tests and for reviewing tables.

`fail[name] = error` makes that method raise; `calls` records the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from bundlekeel.leader.cycle.plan_responses import PlanImbalance, PlanRequest, PlanSummary, PlanView, SplitView
from bundlekeel.leader.cycle.report import CycleReport
from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.gate.responses import Mode, PauseView
from bundlekeel.leader.state.responses import OutcomeView, TaskView
from bundlekeel.model.check import Check
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.errors import NotFound
from bundlekeel.model.members import Member
from bundlekeel.model.plan import BrokerLoad, Finish, Verdict
from bundlekeel.model.response_fields import Json, TrafficView
from bundlekeel.requests.operator_responses import Submitted
from bundlekeel.requests.where_responses import AssignmentView, Place
from bundlekeel.views.picture import (
    BrokerView,
    BundleView,
    CodeView,
    ComingView,
    CpuCostsView,
    CycleVerdict,
    CycleView,
    ImbalanceView,
    LedgerView,
    ModeView,
    ResourceView,
    Resumed,
    Setting,
    State,
    StoreView,
    TotalsView,
    WhyView,
)
from bundlekeel.views.summary import summary
from bundlekeel.views.summary_fields import ALWAYS, Period, SummaryView
from tests.support.fake_channel import FakeChannel
from tests.support.fake_overview import FakeOverview
from tests.support.fake_places import (
    BROKERS,
    BUNDLE,
    BUNDLES,
    NOW_MS,
    OWNERS,
    SCORES,
    assignment,
    move,
    places,
    refusal,
)
from tests.support.fake_quotas import FakeQuotas
from tests.support.fake_requests import FakeWishes
from tests.support.fake_thresholds import FakeThresholds

__all__ = ["BROKERS", "HASH", "NOW_MS", "FakeService", "places", "plan_view"]

HASH = "5f0c3a1be2d4977a"


def _traffic(scale: float) -> TrafficView:
    return TrafficView(
        msg_rate_in=1200.0 * scale,
        msg_rate_out=3600.0 * scale,
        throughput_in=1.9e6 * scale,
        throughput_out=5.7e6 * scale,
    )


def _bundle(index: int) -> BundleView:
    moved = index == 1
    return BundleView(
        bundle=BUNDLES[index],
        broker=OWNERS[BUNDLES[index]],
        topics=12 + index,
        consumers=40,
        producers=9,
        latest=_traffic(2.1 / (index + 1)),
        short=_traffic(2.0 / (index + 1)),
        long=_traffic(1.5 / (index + 1)),
        short_samples=10,
        long_samples=431 + index,
        score_ratio=0.3 / (index + 1),
        may_move=not moved,
        code=Code.COOL_DOWN.value if moved else None,
        preallocated_to=BROKERS[2] if moved else None,
        preallocated_age_seconds=42.0 if moved else None,
        last_move_ms=NOW_MS - 42_000 if moved else None,
    )


CPU_COSTS = CpuCostsView(
    base_ratio=0.05,
    message_seconds=2e-5,
    message_seconds_low=1.5e-5,
    message_seconds_high=2.5e-5,
    byte_seconds=2e-8,
    byte_seconds_low=1.5e-8,
    byte_seconds_high=2.5e-8,
    capacity_msg_rate=38_000.0,
)


def _broker(row: int, broker: str) -> BrokerView:
    score = SCORES[broker]
    return BrokerView(
        broker=broker,
        alive=True,
        state="ok",
        detail="",
        score_ratio=score,
        reported_score_ratio=score + 0.01,
        resources={
            "cpu": ResourceView(percent=score * 100, usage=score * 400, limit=400.0, overridden=False),
            "bandwidth_in": ResourceView(
                percent=round(score * 5.12, 1), usage=round(score * 51_200, 1), limit=1e6, overridden=True
            ),
        },
        cpu_costs=CPU_COSTS,
        msg_rate_in=4100.0 * score,
        msg_rate_out=12_300.0 * score,
        throughput_in=6.4e6 * score,
        throughput_out=round(19.2e6 * score, 1),
        predicted_throughput=25.0e6 * score,
        bundles=(6, 4, 2)[row],
        topics=(92, 60, 31)[row],
        report_age_seconds=(12.0, 47.0, 611.0)[row],
        version="4.2.4",
        load_manager="org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        sheds_itself=False,
        requested="cordon" if row == 2 else "",
        shares_load=row != 2,
        unsettled=row == 2,
        preallocated=[ComingView(bundle=BUNDLES[1], age_seconds=42.0)] if row == 2 else [],
        short=TotalsView(msg_rate=16_000.0 * score, throughput=25.6e6 * score),
        long=TotalsView(msg_rate=13_000.0 * score, throughput=round(20.1e6 * score, 1)),
        verdict=_verdict(row),
    )


def _verdict(row: int) -> Verdict:
    return Verdict(
        code=(Code.OVERLOADED, Code.BALANCED, Code.UNSETTLED)[row],
        sentence=f"{SCORES[BROKERS[row]]:.1%} against a mean of 43.3%",
        hits_low=8 - 4 * row,
        hits_high=0,
    )


def plan_view(request: PlanRequest | None = None) -> PlanView:
    """A plan of two moves and a few refusals, as `make_plan` answers."""
    body = request or PlanRequest()
    codes = [(Code.COOL_DOWN, 1), (Code.BELOW_MINIMUM, 7), (Code.BELOW_MINIMUM, 8), (Code.SYSTEM_BUNDLE, 9)]
    return PlanView(
        hash=HASH,
        wall_ms=NOW_MS,
        strategy=body.strategy or "avg",
        placement=body.placement or "least_resource_usage",
        verdict=Verdict(code=Code.OVERLOADED, sentence="1 bundle to move; the difference falls to 15.0%"),
        brokers=[replace(_verdict(row), broker=broker) for row, broker in enumerate(BROKERS)],
        moves=[move("avg", threshold=0.065, runner_up=BROKERS[1])],
        refusals=[refusal(code, BUNDLES[index]) for code, index in codes],
        refusal_counts={"CoolDown": 1, "BelowMinimum": 2, "SystemBundle": 1},
        splits=[
            SplitView(
                bundle=BUNDLE,
                broker=BROKERS[0],
                rule="hot",
                value=1.8,
                limit=1.0,
                hits=3,
                at=(),
                halves=False,
                sentence=f"{BUNDLE}: carries 180% of a mean broker's load, no placement can even that out",
            )
        ],
        split_refusals=[refusal(Code.SINGLE_TOPIC, BUNDLES[2], BROKERS[1], "hot: 1.2 times the limit, 1 topic")],
        loads=[_load(row, broker) for row, broker in enumerate(BROKERS)],
        imbalance=PlanImbalance(measure="score", before=1.89, after=1.2),
        snapshot_digest="0" * 32,
        expires_ms=NOW_MS + 900_000,
        by_leader=True,
        what_if=body.what_if,
        assumption="what if: all traffic times 1.5. The busiest broker is at 82.0% now" if body.what_if else "",
        finished=Finish(max_mean=1.1, moves=23, cycles=6, seconds=241.0, complete=True) if body.what_if else None,
    )


def _load(row: int, broker: str) -> BrokerLoad:
    before, after = SCORES[broker], (0.52, 0.41, 0.37)[row]
    return BrokerLoad(
        broker=broker,
        score_before=before,
        score_after=after,
        msg_rate_before=16_400 * before,
        msg_rate_after=16_400 * after,
        throughput_before=25.6e6 * before,
        throughput_after=25.6e6 * after,
        bundles_before=(6, 4, 2)[row],
        bundles_after=(5, 4, 3)[row],
    )


class FakeService(FakeChannel, FakeOverview):
    """Answers as `api.service.Service` documents."""

    def __init__(self) -> None:
        self.requests = FakeWishes(self._called)
        self.obstacle = Code.RECOMMEND_ONLY
        self.thresholds = FakeThresholds(self._called)
        self.quotas = FakeQuotas(self._called)
        self.fail: dict[str, Exception] = {}
        self.calls: list[tuple[str, Any]] = []
        self.made: dict[str, PlanView] = {}
        self.verdicts_made = [
            CycleVerdict(
                cycle=4710 + index,
                wall_ms=NOW_MS - 10_000 * (1 - index),
                verdict=Verdict(code=Code.HIT_COUNT, sentence="2 brokers differ by up to 75.0% (>= 6.5%)"),
                moves=index,
                refusals={"CoolDown": 1},
            )
            for index in range(2)
        ]
        self.paused: PauseView | None = None
        self.mode: Mode = "recommend"
        self.task_state = "done"
        self.other_moves: list[OutcomeView] = []
        self.mode_ceiling: Mode = "act"
        self.checks = [Check(name=name, ok=True, detail="fine") for name in ("store", "picture")]
        self.findings = [
            Check(name="metadata store", ok=True, detail="zk:zk1:2181/pulsar answers"),
            Check(
                name="shedding", ok=False, detail=f"{BROKERS[1]} still sheds itself", fix="run `bundlekeel takeover`"
            ),
            Check(name="nic", ok=False, detail="NICs report no limit", fix="set capacity.nic_gbps", severity="warning"),
        ]

    @property
    def features(self) -> dict[str, Any]:
        """The operations of the features."""
        return {"recalibration": self.thresholds, "quotas": self.quotas}

    def _called(self, name: str, argument: Any = None) -> None:
        self.calls.append((name, argument))
        if name in self.fail:
            raise self.fail[name]

    def state(self) -> State:
        """One leader, one follower."""
        self._called("state")
        member = Member(id="pod-a", url="http://pod-a:8090", version="0.1.0", started_ms=NOW_MS - 10**7)
        leader = replace(member, seat=0, epoch=7)
        return State(
            member=leader.id,
            role="leader",
            seat=0,
            epoch=7,
            leader=leader,
            members=[leader, replace(member, id="pod-b", url="http://pod-b:8090", seat=1)],
            cluster="local",
            cluster_mode="modular",
            mode=self.mode,
            mode_ceiling=self.mode_ceiling,
            strategy="avg",
            placement="least_resource_usage",
            paused=self.paused,
            store=StoreView(connected=True, session_seconds=10.0),
            cycle=CycleView(
                id=4711,
                wall_ms=NOW_MS,
                sentence="recommends 1 move: broker-0.pulsar:8080 at 82.0% against a mean of 43.3%",
                verdict="Overloaded",
                moves=1,
                seconds=0.012,
                obstacle=self.obstacle,
                obstacle_explanation=EXPLANATIONS[self.obstacle],
            ),
            imbalance=ImbalanceView(throughput_max_mean=1.89, score_max_mean=1.89),
            overloaded_ratio=0.85,
            ledger=LedgerView(entries=1, unsettled=[BROKERS[2]]),
            intents=[],
            version="0.1.0",
            uptime_seconds=10_000.0,
            acting=False,
            acting_obstacle="RecommendOnly",
            acting_detail="",
            takeover=None,
            settling=None,
        )

    def brokers(self) -> list[BrokerView]:
        """Three brokers, the first one hot, and one whose report is unusable."""
        self._called("brokers")
        torn = BrokerView(broker="broker-3.pulsar:8080", alive=True, state="NotJson", detail="no JSON at byte 12")
        return [*(_broker(row, broker) for row, broker in enumerate(BROKERS)), torn]

    def bundles(
        self, *, broker: str | None = None, namespace: str | None = None, after: str = "", limit: int | None = None
    ) -> list[BundleView]:
        """Twelve bundles, filtered."""
        self._called("bundles", (broker, namespace, limit))
        if after and after not in BUNDLES:
            raise NotFound(f"no bundle {after!r} now: begin again without `after`")
        rows = [_bundle(index) for index in range(BUNDLES.index(after) + 1 if after else 0, 12)]
        rows = [row for row in rows if broker in (None, row.broker)]
        rows = [row for row in rows if namespace is None or row.bundle.startswith(f"{namespace}/")]
        return rows[:limit]

    async def why(self, name: str) -> WhyView:
        """Explain a bundle. Raises NotFound if the name contains `nowhere`."""
        self._called("why", name)
        if "nowhere" in name:
            raise NotFound(f"{name!r} is no broker, bundle or topic known here")
        if name in BROKERS:
            verdict = _verdict(BROKERS.index(name))
            explanation = EXPLANATIONS[Code(verdict.code)]
            return WhyView(
                kind="broker",
                name=name,
                broker=name,
                sentence=f"{name}: {verdict.sentence}",
                codes=[CodeView(code=verdict.code, explanation=explanation, detail=verdict.sentence)],
                planned=[item.sentence for item in plan_view().moves if name in (item.source, item.target)],
                history=[
                    item for item in self._records(2, "move") if name in (item.get("source"), item.get("destination"))
                ],
                what_would_change_it="nothing to do: a larger difference to the other brokers would change it",
            )
        bundle = name if name in OWNERS else BUNDLE
        broker = OWNERS[bundle]
        at = BROKERS.index(broker)
        return WhyView(
            kind="bundle" if name == bundle else "topic",
            name=name,
            broker=broker,
            bundle=bundle,
            sentence=f"it is to move: {move('avg', bundle, BROKERS[at - 1]).sentence}",
            codes=[CodeView(code=Code.RECOMMEND_ONLY.value, explanation=EXPLANATIONS[Code.RECOMMEND_ONLY])],
            history=[_moved(bundle, BROKERS[at - 2], broker)],
            what_would_change_it="set mode `act`; first `bundlekeel doctor --for act`",
        )

    async def verdicts(self, limit: int, period: Period = ALWAYS) -> list[CycleVerdict]:
        """Two cycles."""
        self._called("verdicts", (limit, period))
        return self.verdicts_made[-limit:]

    async def journal(self, limit: int, kind: str | None, period: Period = ALWAYS) -> list[Json]:
        """One move and one cycle."""
        self._called("journal", (limit, kind, period))
        return self._records(limit, kind)

    async def summary(self, period: Period) -> SummaryView:
        """Return the summary of the recorded period."""
        self._called("summary", period)
        records = self._records(10, None)
        return summary(period, NOW_MS, records, [item for item in records if item["kind"] == "move"], [])

    def _records(self, limit: int, kind: str | None) -> list[Json]:
        cycle = CycleReport(cycle=4711, wall_ms=NOW_MS, code=Code.HIT_COUNT, sentence="recommends 1 move")
        records = [_moved(BUNDLES[1], BROKERS[0], BROKERS[2]), cycle.record(7)]
        return [record for record in records if kind in (None, record["kind"])][-limit:]

    def settings(self) -> list[Setting]:
        """Two settings."""
        self._called("settings")
        return [
            Setting(
                key="strategy",
                value="avg",
                origin="default",
                pulsar_keys=[],
                unit="name",
                why="which shedder decides",
            ),
            Setting(key="admin.token", value="**********", origin="env", pulsar_keys=[], unit="", why=""),
        ]

    async def make_plan(self, request: PlanRequest) -> PlanView:
        """Always the same plan."""
        self._called("make_plan", request)
        return self.made.setdefault(HASH, plan_view(request))

    async def plan(self, hash_: str, *, here: bool = False) -> PlanView:
        """A plan made before."""
        self._called("plan", (hash_, here))
        if hash_ not in self.made:
            raise NotFound(f"no plan {hash_!r}; plans are kept for 15 minutes")
        return self.made[hash_]

    async def plans(self) -> list[PlanSummary]:
        """Summaries."""
        self._called("plans")
        columns = ("hash", "wall_ms", "strategy", "placement", "verdict", "expires_ms")
        return [
            PlanSummary(**{key: getattr(plan, key) for key in columns}, moves=len(plan.moves))
            for plan in self.made.values()
        ]

    async def execute(self, hash_: str, *, reason: str, by: str) -> Submitted:
        """A task."""
        self._called("execute", (hash_, reason, by))
        await self.plan(hash_)
        return Submitted(hash=hash_, moves=1, splits=0, task="req-0000000012", state="waiting", review=None)

    async def tasks(self) -> list[TaskView]:
        """One execution, finished unless `task_state` says otherwise."""
        self._called("tasks")
        landed = OutcomeView(bundle=BUNDLE, outcome="done", landed_on=BROKERS[1])
        return [
            TaskView(
                task="req-0000000012",
                hash=HASH,
                state=self.task_state,
                reason="even it out",
                by="ann",
                left_ms=NOW_MS,
                detail="1 of 1 landed",
                moves=[landed, *self.other_moves],
            )
        ]

    async def pause(self, *, reason: str, by: str, seconds: float | None) -> PauseView:
        """Remembers the pause."""
        self._called("pause", (reason, by, seconds))
        until = None if seconds is None else NOW_MS + int(1000 * seconds)
        self.paused = PauseView(reason=reason, by=by, since_ms=NOW_MS, until_ms=until)
        return self.paused

    async def resume(self, *, reason: str, by: str) -> Resumed:
        """Forgets it."""
        self._called("resume", (reason, by))
        self.paused = None
        return Resumed(reason=reason, by=by)

    async def set_mode(self, mode: str, *, reason: str, by: str) -> ModeView:
        """Sets it."""
        self._called("set_mode", (mode, reason, by))
        self.mode = cast(Mode, mode)
        return ModeView(mode=mode, reason=reason, by=by)

    async def where(self, name: str, *, listener: str = "") -> list[Place]:
        """Return an owned and an unowned row. Raises NotFound if the name contains `nowhere`."""
        self._called("where", name)
        if "nowhere" in name:
            raise NotFound(f"namespace {name} does not exist")
        return places(name, listener)

    async def assignments(self, names: Sequence[str]) -> list[AssignmentView]:
        """Return one assignment per name. Raises NotFound if a name contains `nowhere`."""
        self._called("assignments", list(names))
        if any("nowhere" in name for name in names):
            raise NotFound("namespace shop/nowhere does not exist")
        return [assignment(name) for name in names]

    async def doctor(self, *, for_act: bool = False) -> list[Check]:
        """The findings set."""
        self._called("doctor", for_act)
        return self.findings

    def live(self) -> list[Check]:
        """Always alive unless told otherwise."""
        self._called("live")
        return [Check(name="loop", ok="dead" not in self.fail, detail="no turn for 61 s")]

    def ready(self) -> list[Check]:
        """The checks set."""
        self._called("ready")
        return self.checks

    def render_metrics(self, accept: str) -> tuple[bytes, str]:
        """OpenMetrics when asked for."""
        self._called("render_metrics", accept)
        if "openmetrics" in accept:
            return b"# EOF\n", "application/openmetrics-text; version=1.0.0; charset=utf-8"
        return b"bundlekeel_leader 1.0\n", "text/plain; version=0.0.4; charset=utf-8"


def _moved(bundle: str, source: str, destination: str) -> Json:
    began = NOW_MS - 42_412
    outcome = MoveOutcome(
        bundle=bundle,
        source=source,
        destination=destination,
        outcome="done",
        landed_on=destination,
        started_wall_ms=began,
        landed_wall_ms=began + 412,
        seconds=0.412,
        epoch=7,
        intent_id="7.1",
        cycle_id="4708",
        predicted=(0.91, 0.78, 0.35, 0.48),
    )
    return outcome.record()
