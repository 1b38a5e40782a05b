"""States of a sidecar over in-memory adapters, mostly while an alert fires, for samples of output."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.gate.responses import Mode
from bundlekeel.leader.state.responses import EndedView, TakeoverView
from bundlekeel.leader.state.takeover_record import TAKEOVER, TakeoverRecord
from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.check import Check
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.double_service import ServedTwice
from bundlekeel.model.members import Member
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Verdict
from bundlekeel.model.response_fields import Json
from bundlekeel.planning.effects import NO_BENEFIT, Effect
from bundlekeel.planning.guard.external_moves import ExternalMove
from bundlekeel.pulsar.channel.findings import ChannelFinding, Deadlines, findings
from bundlekeel.quotas.responses import GroupDetailView, RatesView
from bundlekeel.recalibration.adopting.responses import ThresholdsView
from bundlekeel.recalibration.parquet import ParquetStore
from bundlekeel.requests.doctor_checks import UNREADABLE_FIX, double_service_checks, migration_check
from bundlekeel.requests.operator_requests import OperationsView
from bundlekeel.requests.takeover import TakeoverContext, TakeoverResult, preview
from bundlekeel.views.picture import BrokerView, CodeView, CycleVerdict, LedgerView, State
from bundlekeel.wiring.takeover import handback_preview, json_result
from tests.support.fake_wiring import FakeWiring
from tests.support.history_cases import records_of, sequence
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.memory_source import MemoryMetadata, RealClock
from tests.support.shop import BROKERS, BUNDLE, BUNDLES, CHANNEL, NOW_MS, Shop
from tests.support.spied import Spied, always, with_fields

HOT, COOL, QUIET = BROKERS
STORE: Final = "zk:zk1:2181/pulsar"
# Sidecars in Kubernetes: their pods, a hyphen and six hexadecimal digits.
LEADER, FOLLOWER = "bundlekeel-7c9d5b-k4x2p-3f9a1c", "bundlekeel-7c9d5b-w8zt6-b07e52"
_IN_FLIGHT_SECONDS: Final = 7_530.0
_WHO: Final = {"by": "ann", "reason": "broker upgrade"}
_TAKEN_OVER: Final = TakeoverView(active=True, wall_ms=NOW_MS, namespaces=(), ended=None, by="ann", reason="go live")


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A situation of a sidecar with three brokers, from which samples of output are made.

    `prepare`: function that brings the sidecar into this state. `results`: by method of the service, a function that
    changes the response; `state`: changed fields in the response of `state`. `verdict`: verdict of the last cycles;
    None: do not replace it. `checks`, `records`: results of `doctor` and the probes, and records of the journal; empty:
    do not replace them. `sheds`: whether the brokers' own shedding is on.
    """

    params: Parameters = field(default_factory=Parameters)
    mode: Mode = "recommend"
    taken_over: bool = False
    prepare: Callable[[Shop], Awaitable[None]] | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    verdict: tuple[Code, str] | None = None
    checks: tuple[Check, ...] = ()
    records: tuple[Json, ...] = ()
    failsafe: Json = field(default_factory=dict)
    sheds: str = "false"


async def situated(at: Situation) -> Spied:
    """Return the service of a sidecar in this situation."""
    shop = await Shop(mode=at.mode, params=at.params).open()
    if at.taken_over:
        record = TakeoverRecord(by="ann", reason="go live", wall_ms=NOW_MS, overrides={}, runtime={})
        await shop.coordination.write_shared(TAKEOVER, record.encode(), version=None)
        await shop.turns()
    if at.prepare is not None:
        await at.prepare(shop)
    service = Spied(shop.service)
    service.results = {"state": partial(_two_sidecars, at), **at.results}
    if at.verdict is not None:
        service.results["verdicts"] = always(_verdicts(*at.verdict))
    if at.checks:
        service.results |= dict.fromkeys(("doctor", "live", "ready"), always(list(at.checks)))
    if at.records:
        service.results["journal"] = always(list(at.records))
    return service


def _two_sidecars(at: Situation, state: State) -> State:
    leader = replace(state.leader or Member(id=LEADER), id=LEADER, seat=0, epoch=7)
    members = [leader, replace(leader, id=FOLLOWER, seat=1, epoch=-1)]
    named = {"member": LEADER, "leader": leader, "members": members, "epoch": 7, "uptime_seconds": 10_000.0}
    return replace(state, **{**named, **at.state})


def _verdicts(code: Code, sentence: str) -> list[CycleVerdict]:
    verdict = Verdict(code=code, sentence=sentence)
    return [
        CycleVerdict(cycle=4700 + index, wall_ms=NOW_MS + 10_000 * index, verdict=verdict, moves=0, refusals={})
        for index in range(12)
    ]


class SampleWiring(FakeWiring):
    """The functions of commands that need no running sidecar, such as `takeover`. They return results for samples."""

    def __init__(self, at: Situation) -> None:
        super().__init__()
        self._at = at
        self.checks = list(at.checks)
        self.deaths = [at.failsafe]

    def takeover(
        self, settings: Any, *, split: str, reason: str, by: str, dry_run: bool, tell: Any, namespaces: Any = ()
    ) -> Json:
        """Return a dry run of a takeover (turning the brokers' own shedding off) while all brokers shed."""
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
        """Return a dry run of a handback (turning the brokers' own shedding on again), without quota groups."""
        assert dry_run
        return handback_preview(dict.fromkeys(BROKERS, self._at.sheds), [], taken_over=self._at.taken_over)


def write_history(place: Path) -> None:
    """Write the history of six cycles, without the third and the fourth."""
    store, records = ParquetStore(place), records_of(sequence(6, 12))
    store.publish(1, 1, records[:2])
    store.publish(1, 2, records[4:])


async def _pin_bundle(shop: Shop) -> None:
    await shop.service.requests.pin(BUNDLES[3], seconds=None, **_WHO)


async def _exclude_broker(shop: Shop) -> None:
    shop.cluster.source.exclude("broker-3.pulsar:8080", "NotJson", "no JSON at byte 12")
    await shop.turns()


async def _follow_channel(shop: Shop) -> None:
    shop.follow_channel()


async def _drain_broker(shop: Shop) -> None:
    await shop.service.requests.drain(COOL, dry_run=False, **_WHO)
    await shop.turns()


async def _outlast_price(shop: Shop) -> None:
    """Run the sidecar until the imbalance has cost more than the moves that would end it."""
    await shop.turns(4)


async def _heat_bundle(shop: Shop) -> None:
    """Give a bundle with a single topic more load than the mean load of a broker."""
    shop.page_cluster.shares |= {BUNDLES[2]: 0.65}
    await shop.turns(8)


async def _pause(shop: Shop) -> None:
    await shop.service.pause(seconds=None, **_WHO)
    await shop.turns()


async def _recommend(shop: Shop) -> None:
    await shop.service.set_mode("recommend", **_WHO)
    await shop.turns()


async def _adopt(shop: Shop) -> None:
    await shop.service.features["recalibration"].adopt(digest=None, force=False, by="ann", reason="a third fewer moves")


def _on_trial(view: ThresholdsView) -> ThresholdsView:
    """Return the view with the measurements of a trial of adopted thresholds after half an hour."""
    assert view.adopted is not None and view.adopted.trial is not None
    trial = replace(
        view.adopted.trial, seconds=1800.0, needed_seconds=21_600.0, imbalance=0.11, imbalance_before=0.12,
        moves_per_hour=4.0, moves_before=6.1,
    )  # fmt: skip
    return replace(view, adopted=replace(view.adopted, trial=trial))


def _old_report(rows: list[BrokerView]) -> list[BrokerView]:
    *others, last = rows
    return [*others, replace(last, report_age_seconds=1571.0, measured_seconds=None)]


def _blocked_drain(view: OperationsView) -> OperationsView:
    (drain,) = view.drains
    blocked = replace(drain, blocked={Code.POLICY_FORBIDS.value: 3}, left=3, state="blocked", eta_seconds=None)
    return replace(view, drains=[blocked], held="")


def _skewed(group: GroupDetailView) -> GroupDetailView:
    (row,) = group.rows
    return replace(group, rows=[replace(row, partitions=4, usage=_published(14.0), loss=_published(486.0))])


def _published(messages: float) -> RatesView:
    return RatesView(publish_messages=messages, publish_bytes=0.0, dispatch_messages=0.0, dispatch_bytes=0.0)


def _in_flight(_: object) -> list[ChannelFinding]:
    """Return the finding about a bundle that has been in state Releasing for two hours.

    The start time is relative to the present time, because the command prints how long ago it was.
    """
    now = round(time.time() * 1000)
    began = now - round(1000 * _IN_FLIGHT_SECONDS)
    bundle = next(name for name, unit in CHANNEL.units.items() if unit.state is UnitState.RELEASING)
    units = {bundle: replace(CHANNEL.units[bundle], timestamp_ms=began)}
    return list(findings(units, {bundle: began}, (), BROKERS, Deadlines(), now))


def _stopped(code: Code, detail: str = "", **more: Any) -> dict[str, Any]:
    stopped = {"acting": False, "acting_obstacle": code.value, "acting_detail": detail}
    return {"takeover": _TAKEN_OVER, **stopped, **more}


def _audit(path: str, status: int) -> Json:
    sentence = f"a client without valid credentials: POST {path} answered {status}"
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
    "sentence": f"{Code.BROKERS_SPLIT_THEMSELVES.value} {COOL}: splits bundles itself again, although the takeover "
    "turned that off",
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
_REFUSED: Final = Check.failed(
    "admin API",
    f"{COOL}: AdminUnauthorized: GET /admin/v2/brokers/configuration/runtime at {COOL}: 401 Unauthorized",
    "give `admin.token` or `admin.token_file` a super-user role's token",
)


_NO_COUNTERS: Final = Check.warned(
    "live loads",
    f"3 brokers: live 2, refused 1; {COOL}: 401 Unauthorized",
    "let this host read /metrics/ of the brokers with topics in it (exposeTopicLevelMetricsInPrometheus=true), "
    "or set `counters.source` to prometheus or off; reports are used until then",
)
_SERVED_TWICE: Final = double_service_checks(
    (ServedTwice(bundle=BUNDLE, brokers=(HOT, COOL), topics=2, since_ms=NOW_MS, confirmed_ms=NOW_MS),)
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
    "cycles", "the last cycle ended 605 s ago", "restart this sidecar; its intents are settled by the next leader"
)
_PUT_ASIDE: Final = EndedView(
    by="deadman (root@failsafe-1)", reason="no cycle was completed for 604 s", wall_ms=NOW_MS, deadman=True
)

# By the name that a page gives.
SITUATIONS: Final[Mapping[str, Situation]] = {
    "good": Situation(mode="act", taken_over=True, prepare=_pin_bundle),
    "proposed": Situation(),
    "on trial": Situation(prepare=_adopt, results={"recalibration.view": _on_trial}),
    "admin refused": Situation(checks=(*_STORE_ANSWERS, _REFUSED)),
    "requests refused": Situation(records=(_audit("/api/v1/pause", 401), _audit("/api/v1/mode", 401))),
    "hot": Situation(),
    "hot, recommend": Situation(prepare=_outlast_price),
    "hot bundle": Situation(prepare=_heat_bundle),
    "rates left": Situation(
        results={
            "quotas.why": with_fields(
                codes=[CodeView(code=Code.BUDGET_OF_RATES.value, explanation=EXPLANATIONS[Code.BUDGET_OF_RATES])]
            )
        }
    ),
    "overloaded": Situation(
        results={
            "why": with_fields(
                sentence=f"{HOT}: 92.0%, hot: low 8/8, high 2/2 fresh reports",
                codes=[
                    _code(Code.TARGET_OVERLOADED,
                          f"4 bundles, the first one {BUNDLE} limit 85%; until the load changes"),
                    _code(Code.COOL_DOWN, "2 bundles, the first one shop/orders/0x10000000_0x20000000; "
                          "until 2026-09-21 14:45:10 UTC"),
                ],
                what_would_change_it=f"{HOT} is hot, but a broker that took a bundle would be above 85% itself; "
                "add brokers",
            )
        },
    ),
    "excluded": Situation(prepare=_exclude_broker),
    "own splits": Situation(records=(_OWN_SPLITS,)),
    "in flight": Situation(prepare=_follow_channel,
        results={"channel": with_fields(in_flight_oldest_seconds=_IN_FLIGHT_SECONDS), "channel_findings": _in_flight},
    ),
    "incomplete": Situation(verdict=(Code.INCOMPLETE_PICTURE, "1 of 3 live brokers have a usable report, 50% needed")),
    "no channel": Situation(
        prepare=_follow_channel,
        results={"channel": with_fields(variant="system_topic", up=False, detail="no broker's web service answers")},
    ),
    "counters": Situation(checks=(*_STORE_ANSWERS, _NO_COUNTERS)),
    "served twice": Situation(checks=(*_STORE_ANSWERS, *_SERVED_TWICE)),
    "drain": Situation(mode="act", prepare=_drain_broker, results={"requests.operations": _blocked_drain}),
    "external": Situation(
        records=tuple(ExternalMove(bundle=BUNDLE, source=a, target=b, at_ms=NOW_MS + at, undone=undone).record()
                      for a, b, at, undone in ((HOT, QUIET, 0, False), (QUIET, HOT, 40_000, True))),
    ),
    "put aside": Situation(mode="act",
        state=_stopped(Code.PUT_ASIDE, takeover=replace(_TAKEN_OVER, active=False, ended=_PUT_ASIDE)),
    ),
    "taken over": Situation(taken_over=True),
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
    "paused": Situation(mode="act", prepare=_pause),
    "old": Situation(results={"brokers": _old_report}),
    "alone": Situation(state={"members": []}),
    "restart needed": Situation(records=(_RESTART_NEEDED,)),
    "settings refused": Situation(records=(_BAD_SETTINGS,)),
    "policies": Situation(checks=(*_STORE_ANSWERS, _NO_POLICIES)),
    "unreadable": Situation(checks=(*_STORE_ANSWERS, _UNREADABLE)),
    "skewed": Situation(results={"quotas.group": _skewed}),
    "quota exceeded": Situation(),
    "second balancer": Situation(
        mode="act", state=_stopped(Code.SECOND_BALANCER, f"undone moves of {BUNDLE}; no moves until 14:45:10Z")
    ),
    "no store": Situation(checks=(_NO_STORE,)),
    "store migrated": Situation(checks=(_migrated(),)),
    "not acting": Situation(mode="act", taken_over=True, prepare=_recommend),
    "two leaders": Situation(
        state={"member": FOLLOWER, "leader": Member(id=FOLLOWER, seat=0, epoch=6), "epoch": 6},
    ),
    "error": Situation(verdict=(Code.INTERNAL_ERROR, "the cycle failed unexpectedly; see the log")),
}  # fmt: skip
