"""A sidecar with in-memory adapters and the three brokers of a shop, for tests of the API, commands, page and
samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from bundlekeel.leader.cycle.plan_responses import PlanRequest, PlanView
from bundlekeel.leader.gate.responses import Mode
from bundlekeel.model.channel_states import ServiceUnit, UnitState
from bundlekeel.model.load import TopicLoad
from bundlekeel.model.names import FULL_LOWER, FULL_UPPER
from bundlekeel.model.parameters import Parameters
from bundlekeel.ports import ChannelView
from bundlekeel.pulsar.channel.findings import Deadlines, findings
from tests.support.builders import traffic
from tests.support.page_world import PageCluster, PageSidecar
from tests.support.world import INSTALLED, PATIENT, TestClock

NOW_MS: Final = 1_790_000_000_000
BROKERS: Final = ("broker-0.pulsar:8080", "broker-1.pulsar:8080", "broker-2.pulsar:8080")
NAMESPACES: Final = ("shop/orders", "shop/payments", "telemetry/devices-europe-west")
# By bundle: two are of the second broker, two of the third, all others of the first.
OWNERS: Final = {
    f"{NAMESPACES[index % 3]}/0x{index * 0x10000000:08x}_0x{(index + 1) * 0x10000000:08x}": BROKERS[
        min(index // 2, 2) if index < 6 else 0
    ]
    for index in range(12)
}
BUNDLES: Final = tuple(OWNERS)
BUNDLE: Final = BUNDLES[0]
# Of a broker's capacity: 82 % of the first broker, 41 % of the second, 7 % of the third.
SHARES: Final = dict(zip(BUNDLES, (0.2, 0.15, 0.22, 0.19, 0.04, 0.03, 0.13, 0.1, 0.09, 0.07, 0.05, 0.03), strict=True))
TOPIC: Final = "persistent://shop/orders/created"
# Its hash is in the range of `BUNDLE`.
IN_BUNDLE: Final = "persistent://shop/orders/c?b#c"
GROUP: Final = "acme"
QUOTA_TOPIC: Final = "persistent://acme/orders/new"
GROUPS: Final = {GROUP: {"members": ("t:acme",), "publish_messages": 500, "publish_bytes": "10MB"}}
_ACME: Final = ("acme/orders/0x00000000_0xffffffff", 0.0)


class StillClock(TestClock):
    """Boot and wall clock that stand still until a test changes `offset`."""

    def boot(self) -> float:
        """Return seconds on the boot clock."""
        return 10_000.0 + self.offset

    def wall_ms(self) -> int:
        """Return Unix time in ms."""
        return NOW_MS + int(self.offset * 1000)


class Shop(PageSidecar):
    """The sidecar `pod-a`. It leads after `open`; `settings` are those of the settings file."""

    def __init__(
        self,
        *,
        mode: Mode = "act",
        params: Parameters = PATIENT,
        review: bool = False,
        clock: TestClock | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.settings = dict(settings or {})  # type: ignore[misc]
        loads = {broker: [(name, SHARES[name]) for name in BUNDLES if OWNERS[name] == broker] for broker in BROKERS}
        loads[BROKERS[1]].append(_ACME)
        cluster = PageCluster(loads, {TOPIC: 40.0, QUOTA_TOPIC: 960.0}, clock=clock or StillClock(), live=True)
        cluster.metadata.add_topics([TOPIC, IN_BUNDLE])
        cluster.metadata.bundle_boundaries["shop/idle"] = [FULL_LOWER, FULL_UPPER]
        cluster.model.add_loads(BUNDLE, *(_part(number) for number in range(4)))
        cluster.publish()
        quotas = {"enforcer": "policies", "groups": GROUPS}
        super().__init__(cluster, name="pod-a", mode=mode, params=params, pace=0.0, review=review, quotas=quotas)
        self.leadership.member = replace(self.leadership.member, url="http://pod-a:8090")

    async def open(self) -> Shop:
        """Lead, run one cycle, and read the proposed thresholds."""
        await self.lead()
        await self.cycle.turn()
        await self.turn()
        if "recalibration" in INSTALLED:
            await self.calibration.check()
        return self

    async def turns(self, count: int = 1) -> None:
        """Run cycles and the tasks that operators requested, 2 s apart."""
        for _ in range(count):
            self.cluster.clock.offset += 2.0
            await self.leadership.turn()
            await self.shared_state.refresh()
            self.cluster.publish()
            await self.turn()
            await self.executions.serve()

    async def plan(self, **request: Any) -> PlanView:
        """Make a plan."""
        return await self.service.make_plan(PlanRequest(**request))

    def follow_channel(self) -> None:
        """Let the sidecar have read the ownership channel `CHANNEL`, as of brokers with the extensible load manager."""
        now, watch = CHANNEL.wall_ms, self.channel
        problems = findings(CHANNEL.units, CHANNEL.seen_ms, (), BROKERS, Deadlines(), now)
        watch.view, watch.fault, watch._mode = CHANNEL, "", "extensible"
        watch._note(problems)


def _part(number: int) -> TopicLoad:
    """Return one of four topics that share the load of `BUNDLE` and its hash range."""
    load = traffic(SHARES[BUNDLE] / 4)
    name = f"persistent://shop/orders/part-{number}"
    return TopicLoad(topic=name, hash=(2 * number + 1) * 0x2000000, traffic=load, sessions=2)


def _range(index: int) -> str:
    return f"shop/orders/0x{index * 0x10000000:08x}_0x{(index + 1) * 0x10000000:08x}"


def _unit(index: int) -> ServiceUnit:
    times: dict[str, Any] = {"timestamp_ms": NOW_MS + index, "version": index + 1}
    if index == 4:
        return ServiceUnit(state=UnitState.RELEASING, source=BROKERS[0], destination=BROKERS[2], **times)
    if index == 5:
        children = {"0x50000000_0x58000000": BROKERS[1], "0x58000000_0x60000000": ""}
        return ServiceUnit(state=UnitState.SPLITTING, source=BROKERS[1], children=children, **times)
    if index == 6:
        return ServiceUnit(state=UnitState.FREE, source=BROKERS[1], **times)
    return ServiceUnit(state=UnitState.OWNED, destination=BROKERS[index % 3], **times)


# Five owned bundles; one is released, one split, and one has no owner.
CHANNEL: Final = ChannelView(
    generation=7,
    variant="system_topic",
    units={_range(index): _unit(index) for index in range(8)},
    seen_ms={_range(index): NOW_MS + index for index in range(8)},
    wall_ms=NOW_MS + 60_000,
)
