"""States of a cluster, mostly while an alert fires: responses of the tests' fake service for samples."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.gate.responses import PauseView
from bundlekeel.leader.state.documents import request_record
from bundlekeel.leader.state.responses import EndedView, TakeoverView
from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.check import Check
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.members import Member
from bundlekeel.model.plan import Verdict
from bundlekeel.model.response_fields import Json
from bundlekeel.planning.effects import NO_BENEFIT, Effect
from bundlekeel.planning.guard.external_moves import ExternalMove
from bundlekeel.pulsar.channel.findings import ChannelFinding, Deadlines, findings
from bundlekeel.pulsar.channel.responses import ChannelSummary
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.quotas.responses import GroupDetailView, QuotasView, TopicView, TransportView
from bundlekeel.recalibration.adopting.responses import AdoptedView, ThresholdsView
from bundlekeel.recalibration.parquet import ParquetStore
from bundlekeel.requests.doctor_checks import UNREADABLE_FIX, live_loads_check, migration_check
from bundlekeel.requests.operator_responses import OperationsView
from bundlekeel.requests.takeover import TakeoverContext, TakeoverResult, preview
from bundlekeel.settings.parameters import STOCK
from bundlekeel.views.picture import BrokerView, CodeView, CycleVerdict, ImbalanceView, LedgerView, State, WhyView
from bundlekeel.wiring.takeover import handback_preview, json_result
from tests.support.fake_channel import VIEW
from tests.support.fake_places import BUNDLE
from tests.support.fake_quotas import FakeQuotas, rates
from tests.support.fake_service import BROKERS, NOW_MS, FakeService
from tests.support.fake_thresholds import DIGEST, TRIAL, FakeThresholds
from tests.support.fake_wiring import FakeWiring
from tests.support.history_cases import records_of, sequence
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.memory_source import MemoryMetadata, RealClock

HOT, COOL, QUIET = BROKERS
STORE: Final = "zk:zk1:2181/pulsar"
# Sidecars in Kubernetes: their pods, a hyphen and six hexadecimal digits.
LEADER, FOLLOWER = "bundlekeel-7c9d5b-k4x2p-3f9a1c", "bundlekeel-7c9d5b-w8zt6-b07e52"
_IN_FLIGHT_SECONDS: Final = 7_530.0
_WHO: Final = {"by": "ann", "reason": "broker upgrade"}
_BALANCED: Final = (Code.BALANCED, "the brokers differ by up to 3.1% (< 6.1%)")
_TAKEN_OVER: Final = TakeoverView(active=True, wall_ms=NOW_MS, namespaces=(), ended=None, by="ann", reason="go live")


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Differences from the fake service. `state`: fields of it. `verdict`: of the last cycles. `checks`: of `doctor`
    and the probes. `why`: of a broker, its verdict and what would change it; `codes`: with these. `quotas`, `group`,
    `topic`: of the answer about quotas, its group and the topic in it. `thresholds`: of that about proposals. `sheds`:
    whether the brokers shed by themselves; a takeover is in force where `state` has one.
    """

    state: Mapping[str, Any] = field(default_factory=dict)
    verdict: tuple[Code, str] = (
        Code.HIT_COUNT,
        "broker-1:8080 and broker-3:8080 differ by 72.0% (tolerated: 6.1%); this has cost 118 of the 250 that moving "
        "3 bundles costs",
    )
    checks: tuple[Check, ...] = ()
    records: tuple[Json, ...] = ()
    channel: Mapping[str, Any] = field(default_factory=dict)
    why: tuple[str, str] | None = None
    codes: tuple[CodeView, ...] = ()
    brokers: Callable[[list[BrokerView]], list[BrokerView]] = lambda rows: rows[:3]
    failsafe: Json = field(default_factory=dict)
    blocked: Mapping[str, int] = field(default_factory=dict)
    quotas: Mapping[str, Any] = field(default_factory=dict)
    group: Mapping[str, Any] = field(default_factory=dict)
    topic: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    sheds: str = "false"


class SampleThresholds(FakeThresholds):
    """In such a situation, a proposal that the default settings take."""

    def __init__(self, at: Situation) -> None:
        super().__init__(lambda *_: None)
        self._at = at

    def _view(self) -> ThresholdsView:
        """With what differs."""
        return replace(super()._view(), **self._at.thresholds)


class SampleQuotas(FakeQuotas):
    """In such a situation."""

    def __init__(self, at: Situation) -> None:
        super().__init__(lambda *_: None)
        self._at = at

    def _group(self) -> GroupDetailView:
        return replace(super()._group(), **self._at.group)

    def _topic(self) -> TopicView:
        return replace(super()._topic(), **self._at.topic)

    async def view(self) -> QuotasView:
        """With what differs."""
        return replace(await super().view(), **self._at.quotas)


class SampleService(FakeService):
    """In such a situation."""

    def __init__(self, at: Situation) -> None:
        super().__init__()
        self._at = at
        self.quotas = SampleQuotas(at)
        self.thresholds = SampleThresholds(at)
        code, sentence = at.verdict
        verdict = Verdict(code=code, sentence=sentence)
        self.verdicts_made = [
            CycleVerdict(cycle=4700 + index, wall_ms=NOW_MS + 10_000 * index, verdict=verdict, moves=0, refusals={})
            for index in range(12)
        ]
        self.checks = self.findings = list(at.checks)

    def state(self) -> State:
        """With what differs."""
        state = super().state()
        leader, other = (replace(item, id=id) for item, id in zip(state.members, (LEADER, FOLLOWER), strict=True))
        return replace(state, **{"member": LEADER, "leader": leader, "members": [leader, other], **self._at.state})

    def brokers(self) -> list[BrokerView]:
        """Three of them, unless one more is what it is about."""
        return self._at.brokers(super().brokers())

    async def why(self, name: str) -> WhyView:
        answer = await super().why(name)
        if self._at.why is None:
            return answer
        verdict, change = self._at.why
        codes = list(self._at.codes)
        return replace(answer, sentence=f"{name}: {verdict}", codes=codes, history=[], what_would_change_it=change)

    def channel(self) -> ChannelSummary:
        """With what differs."""
        return replace(super().channel(), **self._at.channel)

    def channel_findings(self) -> list[ChannelFinding]:
        """Return the finding for a bundle that has been releasing for two hours, unless the channel is in order.
        It uses the clock, because the command prints ages.
        """
        if not self._at.channel.get("findings", True):
            return []
        now = round(time.time() * 1000)
        began = now - round(1000 * _IN_FLIGHT_SECONDS)
        bundle = next(name for name, unit in VIEW.units.items() if unit.state is UnitState.RELEASING)
        units = {bundle: replace(VIEW.units[bundle], timestamp_ms=began)}
        return list(findings(units, {bundle: began}, (), BROKERS, Deadlines(), now))

    def live(self) -> list[Check]:
        return list(self._at.checks)

    def _records(self, limit: int, kind: str | None) -> list[Json]:
        return list(self._at.records)


class SampleWiring(FakeWiring):
    """Commands that ask no sidecar."""

    def __init__(self, at: Situation, service: SampleService) -> None:
        super().__init__()
        self._at = at
        self.checks = list(at.checks)
        self.deaths = [at.failsafe]
        sample = asyncio.run(service.requests.operations()).drains[0]
        drain = replace(sample, blocked=dict(at.blocked), left=3, state="blocked", eta_seconds=None)

        async def operations() -> OperationsView:
            drains = [drain] if at.blocked else []
            return OperationsView(drains=drains, cordons=[], warms=[], pins=[], exclusions=[], pauses=[])

        service.requests.operations = operations  # type: ignore[method-assign]

    def takeover(
        self, settings: Any, *, split: str, reason: str, by: str, dry_run: bool, tell: Any, namespaces: Any = ()
    ) -> Json:
        """Return a dry run for brokers that all shed."""
        assert dry_run
        model = BrokerModel(BROKERS)
        admin, coordination = MemoryAdmin(model), MemoryCoordination(MemoryStore())
        admin.set_endpoints(model.endpoints())
        context = TakeoverContext(
            admin=admin,
            commands=admin,
            coordination=coordination,
            metadata=MemoryMetadata(),
            endpoints=model.endpoints(),
            clock=RealClock(),
        )

        async def preview_takeover() -> TakeoverResult:
            await coordination.start()
            return await preview(context, split=split == "off", namespaces=namespaces)

        return json_result(asyncio.run(preview_takeover()), dict.fromkeys(BROKERS, "true"))

    def handback(self, settings: Any, *, reason: str, by: str, dry_run: bool, tell: Any) -> Json:
        """Return a dry run without quota groups."""
        assert dry_run
        return handback_preview(dict.fromkeys(BROKERS, self._at.sheds), [], taken_over="takeover" in self._at.state)


def write_history(place: Path) -> None:
    """Write a history of six cycles, of which two are missing."""
    store, records = ParquetStore(place), records_of(sequence(6, 12))
    store.publish(1, 1, records[:2])
    store.publish(1, 2, records[4:])


def _excluded(rows: list[BrokerView]) -> list[BrokerView]:
    return rows


def _good(rows: list[BrokerView]) -> list[BrokerView]:
    return [
        replace(
            row, score_ratio=score, requested="", shares_load=True, unsettled=False, preallocated=[],
            report_age_seconds=8.0, measured_seconds=10.0, verdict=Verdict(code=Code.BALANCED, sentence=""),
        )
        for row, score in zip(rows, (0.45, 0.43, 0.42), strict=False)
    ]  # fmt: skip


def _old(rows: list[BrokerView]) -> list[BrokerView]:
    *others, last = _good(rows)
    return [*others, replace(last, report_age_seconds=1571.0, measured_seconds=None)]


def _stopped(code: Code, detail: str = "", **more: Any) -> dict[str, Any]:
    stopped = {"acting": False, "acting_obstacle": code.value, "acting_detail": detail}
    return {"mode": "act", "takeover": _TAKEN_OVER, **stopped, **more}


def _request(what: str) -> Json:
    return request_record(what, wall_ms=NOW_MS, **_WHO)


def _audit(path: str, status: int) -> Json:
    sentence = f"somebody without valid credentials: POST {path} answered {status}"
    return {"kind": "audit", "wall_ms": NOW_MS, "by": "", "reason": "", "what": f"POST {path}", "sentence": sentence}


def _code(code: Code, detail: str) -> CodeView:
    return CodeView(code=code.value, explanation=EXPLANATIONS[code], detail=detail)


_BAD_SETTINGS: Final = {
    "kind": "settings",
    "wall_ms": NOW_MS,
    "outcome": "refused",
    "sentence": "the settings file is refused, what ran goes on: file:/etc/bundlekeel/settings.yaml:14: "
    "parameters.cpu_weight = -1: not allowed (allowed: a number, 0 or more (ratio))",
}
_RESTART_NEEDED: Final = {
    "kind": "settings",
    "wall_ms": NOW_MS,
    "outcome": "applied",
    "sentence": "the settings file was read; a restart is needed for mode, windows",
}
_OWN_SPLITS: Final = {
    "kind": "finding",
    "wall_ms": NOW_MS,
    "event": "appeared",
    "code": Code.BROKERS_SPLIT_THEMSELVES.value,
    "sentence": f"{Code.BROKERS_SPLIT_THEMSELVES.value}: {COOL} split by themselves again, though the takeover turned "
    "that off",
}
_EFFECT: Final = Effect(
    source=HOT, target=QUIET, bundles=(BUNDLE,), at_ms=NOW_MS, begun_ms=NOW_MS - 300_000, predicted=0.11,
    realised=0.01, word=NO_BENEFIT,
).record()  # fmt: skip
_STORE_ANSWERS: Final = (
    Check.passed("metadata store", f"{STORE} answers"),
    Check.passed("session", "negotiated 10 s, heartbeat every 2 s"),
    Check.passed("own root", "reads and writes below Bundlekeel's root"),
)
_STOCK: Final = ", ".join(f"{key} {value} (default of its release)" for key, value in STOCK.items())
_REFUSED: Final = Check.failed(
    "admin API",
    f"{COOL}: AdminUnauthorized: GET /admin/v2/brokers/configuration/runtime at {COOL}: 401 Unauthorized",
    "give `admin.token` or `admin.token_file` a super-user role's token",
)


class _NoCounters:
    """The command `doctor` sends no request to a sidecar."""

    def states(self) -> dict[str, str]:
        return {}

    refusals = states


_NOT_READ_HERE: Final = live_loads_check(cast(LiveLoads, _NoCounters()))
_NO_COUNTERS: Final = Check.warned(
    "live loads",
    f"3 brokers: live 2, refused 1; {COOL}: 401 Unauthorized",
    "let this host read /metrics/ of the brokers with topics in it (exposeTopicLevelMetricsInPrometheus=true), "
    "or set `counters.source` to prometheus or off; reports are used until then",
)
_UNREADABLE: Final = Check.failed("documents", "desired cannot be read: it is cut off", UNREADABLE_FIX)
_NO_TOPICS: Final = Check.failed(
    "load topics",
    "connecting ConnectError",
    "let this host reach the brokers' service ports; its identity must be allowed to consume in pulsar/system",
)
_NO_STORE: Final = Check.failed(
    "metadata store",
    f"{STORE} did not answer within 10 s",
    "check `metadata_store` in the settings and that this host may reach the ZooKeeper client port",
)


def _migrated() -> Check:
    metadata = MemoryMetadata()
    metadata.migrate("COMPLETED", "oxia://oxia1:6648/pulsar")
    return asyncio.run(migration_check(metadata))


_NO_PICTURE: Final = Check.failed("metadata store", f"{STORE} does not answer", f"check that {STORE} is reachable")
_NO_POLICIES: Final = Check.failed(
    "policies",
    "could not be read: there is no /admin/clusters/local in the configuration store: it is not the brokers'",
    "check `configuration_store` in the settings; nothing moves until then",
)
_LATE: Final = Check.failed(
    "cycles", "last one ended 605 s ago", "restart this sidecar; its intents are settled by the next leader"
)
_PUT_ASIDE: Final = EndedView(
    by="deadman (root@failsafe-1)", reason="no cycle was completed for 604 s", wall_ms=NOW_MS, deadman=True
)

_PROPOSED: Final[Mapping[str, Any]] = {
    "sentence": "proposed: avg_low_threshold_percent 15 -> 20; `bundlekeel thresholds adopt`",
    "objections": [], "adopted": None, "reverted": [],
}  # fmt: skip

# By the name that a page gives.
SITUATIONS: Final[Mapping[str, Situation]] = {
    "good": Situation(
        state={"mode": "act", "acting": True, "acting_obstacle": None, "takeover": _TAKEN_OVER,
               "imbalance": ImbalanceView(throughput_max_mean=1.89, score_max_mean=1.04),
               "ledger": LedgerView(entries=0, unsettled=[])},
        verdict=_BALANCED,
        checks=(
            *_STORE_ANSWERS, Check.passed("documents", "everything below Bundlekeel's root can be read"),
            Check.passed("sidecars", f"2 seats taken, led by {LEADER}"),
            Check.passed(
                "hosts of the API",
                "localhost; /metrics and the probes: every IP address too; `api.allowed_hosts` adds names",
            ),
            Check.passed("brokers", "3 registered, mode modular"), Check.passed("cluster name", "local"),
            Check.passed("configuration store", STORE), Check.passed("reports", "3 usable"),
            Check.passed("admin API", "3 brokers show their configuration"),
            Check.passed("load reports of brokers", f"all 3 brokers: {_STOCK}"),
            _NOT_READ_HERE, Check.passed("takeover", "in force, by ann"),
            Check.passed("load manager", "ModularLoadManagerImpl"),
            Check.passed("brokers' own shedding", "off on every broker"),
            Check.passed("brokers' own splits", "off on every broker"),
            Check.passed("Pulsar's leader broker", COOL),
            Check.passed("bandwidth", "every broker has a bandwidth limit"),
            Check.passed("limits", "no broker uses more than its limits allow"),
            Check.passed("CPU figures", "no sign that brokers share a CPU"),
            Check.passed("clocks", "the brokers' clocks agree, and this host's is not behind them"),
            Check.passed("placement of new bundles", "LeastResourceUsageWithWeight"),
            Check.passed("policies", "0 isolation policies, 0 in groups"),
        ),
        channel={"findings": {}, "in_flight_oldest_seconds": 0.0},
        brokers=_good,
    ),
    "proposed": Situation(thresholds=_PROPOSED),
    "on trial": Situation(
        thresholds={
            **_PROPOSED, "sentence": "the newest proposal is in force, on trial", "changes": [],
            "adopted": AdoptedView(
                digest=DIGEST, strategy="avg", values={"avg_low_threshold_percent": 20.0},
                instead_of={"avg_low_threshold_percent": 15.0}, by="ann", reason="a third fewer moves",
                since_ms=NOW_MS, state="trial", trial=replace(TRIAL, imbalance_before=0.12, moves_before=6.1),
            ),
        },
    ),
    "admin refused": Situation(checks=(*_STORE_ANSWERS, _REFUSED)),
    "requests refused": Situation(records=(_audit("/api/v1/pause", 401), _audit("/api/v1/mode", 401))),
    "hot": Situation(),
    "hot, recommend": Situation(state={"mode_ceiling": "recommend"}),
    "overloaded": Situation(
        why=("92.0%, hot: low 8/8, high 2/2 fresh reports",
             f"{HOT} is hot, but a broker that took a bundle would be above 85% itself; add brokers"),
        codes=(
            _code(Code.TARGET_OVERLOADED, f"4 bundles, the first one {BUNDLE} limit 85%; until the load changes"),
            _code(Code.COOL_DOWN, "2 bundles, the first one shop/orders/0x10000000_0x20000000; "
                  "until 2026-09-21 14:45:10 UTC"),
        ),
    ),
    "excluded": Situation(brokers=_excluded),
    "own splits": Situation(records=(_OWN_SPLITS,)),
    "in flight": Situation(channel={"in_flight_oldest_seconds": _IN_FLIGHT_SECONDS}),
    "incomplete": Situation(verdict=(Code.INCOMPLETE_PICTURE, "1 of 3 live brokers have a usable report, 50% needed")),
    "no channel": Situation(channel={"up": False, "detail": "no broker's web service answers", "findings": {}}),
    "counters": Situation(checks=(*_STORE_ANSWERS, _NO_COUNTERS)),
    "drain": Situation(blocked={Code.POLICY_FORBIDS.value: 3}),
    "external": Situation(
        records=tuple(ExternalMove(bundle=BUNDLE, source=a, target=b, at_ms=NOW_MS + at, undone=undone).record()
                      for a, b, at, undone in ((HOT, QUIET, 0, False), (QUIET, HOT, 40_000, True))),
    ),
    "put aside": Situation(
        state=_stopped(Code.PUT_ASIDE, takeover=replace(_TAKEN_OVER, active=False, ended=_PUT_ASIDE)),
    ),
    "taken over": Situation(state={"takeover": _TAKEN_OVER}),
    "they shed": Situation(sheds="true"),
    "nobody sheds": Situation(),
    "failsafe": Situation(failsafe={"state": "alive", "sentence": "a cycle was completed 4 s ago"}),
    "intents": Situation(
        state={"ledger": LedgerView(entries=2, unsettled=[HOT, QUIET]), "intents": [BUNDLE]},
    ),
    "load topics": Situation(checks=(*_STORE_ANSWERS, _NO_TOPICS)),
    "effects": Situation(records=(_EFFECT,)),
    "moves fail": Situation(
        records=(MoveOutcome(bundle=BUNDLE, source=HOT, destination=QUIET, outcome="unknown", seconds=90.2,
                             code=Code.NO_ANSWER.value, started_wall_ms=NOW_MS).record(),),
    ),
    "no cycles": Situation(checks=(_LATE,)),
    "no leader": Situation(
        state={"leader": None, "role": "follower", "epoch": None},
        checks=(
            _NO_PICTURE, Check.failed("leadership", "no leader known yet", ""), Check.passed("picture", "3 brokers"),
        ),
    ),
    "paused": Situation(
        state=_stopped(Code.PAUSED, paused=PauseView(since_ms=NOW_MS, until_ms=None, **_WHO)),
        records=(_request("pause"),),
    ),
    "old": Situation(brokers=_old),
    "alone": Situation(state={"members": []}),
    "restart needed": Situation(records=(_RESTART_NEEDED,)),
    "settings refused": Situation(records=(_BAD_SETTINGS,)),
    "policies": Situation(checks=(*_STORE_ANSWERS, _NO_POLICIES)),
    "unreadable": Situation(checks=(*_STORE_ANSWERS, _UNREADABLE)),
    "skewed": Situation(topic={"usage": rates(14.0, 1e6, 28.0, 1e6), "loss": rates(30.0, 0.0)}),
    "quota exceeded": Situation(
        quotas={"problems": [], "left": {}, "transport": TransportView(state="ok", detail="", since_ms=0, fault="")},
        group={"usage": rates(660.0, 9.5e6), "used_ratio": rates(1.32, 0.95), "defects": []},
    ),
    "second balancer": Situation(state=_stopped(Code.SECOND_BALANCER, f"undone: {BUNDLE}; resting until 14:45:10Z")),
    "no store": Situation(checks=(_NO_STORE,)),
    "store migrated": Situation(checks=(_migrated(),)),
    "not acting": Situation(
        state={"mode_ceiling": "recommend", "takeover": _TAKEN_OVER},
        records=(_request("mode recommend"),),
    ),
    "two leaders": Situation(
        state={"member": FOLLOWER, "leader": Member(id=FOLLOWER, seat=0, epoch=6), "epoch": 6},
    ),
    "error": Situation(verdict=(Code.INTERNAL_ERROR, "the cycle failed unexpectedly; see the log")),
}  # fmt: skip
