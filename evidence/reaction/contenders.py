"""The balancers that are compared, and the settings that each of them gets: only those in its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dev.cluster.spec import Mode

Counters = Literal["brokers", "prometheus", "off"]
AVG_SHEDDER = "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"

# PIP-364 asks for both names, and recommends a half instead of 0.2.
AVG = {
    "loadBalancerLoadSheddingStrategy": AVG_SHEDDER,
    "loadBalancerLoadPlacementStrategy": AVG_SHEDDER,
    "maxUnloadPercentage": "0.5",
}
# Brokers of this size carry less than the 10 MB/s that it wants to take off a broker at least: stock, it moves nothing.
THRESHOLD = {"loadBalancerBundleUnloadMinThroughputThreshold": "0.0"}
# Whole minutes, so 1 is the shortest; it is stock, and named here because it bounds what native shedders can do.
SHORTEST_INTERVALS = {"loadBalancerSheddingIntervalMinutes": "1", "loadBalancerHostUsageCheckIntervalMinutes": "1"}
FASTEST_AVG = {
    **SHORTEST_INTERVALS,
    "loadBalancerAvgShedderHitCountHighThreshold": "1",
    "loadBalancerAvgShedderHitCountLowThreshold": "1",
}
FASTEST_TRANSFER = {
    **SHORTEST_INTERVALS,
    # It acts when the count is above this.
    "loadBalancerSheddingConditionHitCountThreshold": "0",
    # Pulsar's own spelling.
    "loadBalanceSheddingDelayInSeconds": "0",
    # No smoothing: the score is the newest one.
    "loadBalancerHistoryResourcePercentage": "0.0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of the comparison.

    ours: Bundlekeel sheds, on its shipped settings; otherwise the brokers do.
    fast: the brokers count traffic every second (dev/cluster); otherwise every minute, as Pulsar ships.
    counters: where Bundlekeel reads counters; "brokers" is what it ships with.
    broker_settings: what differs from stock in broker.conf besides that; `changed` says it in few words.
    """

    name: str
    title: str
    mode: Mode
    ours: bool
    fast: bool
    counters: Counters = "brokers"
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    changed: str = "stock"

    @property
    def statistics(self) -> str:
        """The row's name in tables."""
        if self.ours:
            stock = {"brokers": "stock", "prometheus": "stock, counters of Prometheus", "off": "stock, reports only"}
            return "fast statistics" if self.fast else stock[self.counters]
        return "fastest they allow" if self.fast else self.changed


def _ours(mode: Mode) -> list[Contender]:
    def one(name: str, *, fast: bool = False, counters: Counters = "brokers") -> Contender:
        full = f"ours-{mode}-{name}"
        return Contender(name=full, title="Bundlekeel", mode=mode, ours=True, fast=fast, counters=counters)

    return [
        one("stock"),
        one("prometheus", counters="prometheus"),
        one("reports", counters="off"),
        one("fast", fast=True),
    ]


CONTENDERS: tuple[Contender, ...] = (
    *_ours("modular"),
    *_ours("extensible"),
    Contender(
        name="native-threshold",
        title="ThresholdShedder",
        mode="modular",
        ours=False,
        fast=False,
        broker_settings=THRESHOLD,
        changed="stock, without its 10 MB/s",
    ),
    Contender(
        name="native-avg-stock",
        title="AvgShedder",
        mode="modular",
        ours=False,
        fast=False,
        broker_settings=AVG,
        changed="as its authors set it",
    ),
    Contender(
        name="native-avg-fast",
        title="AvgShedder",
        mode="modular",
        ours=False,
        fast=True,
        broker_settings={**AVG, **FASTEST_AVG},
    ),
    Contender(name="native-transfer-stock", title="TransferShedder", mode="extensible", ours=False, fast=False),
    Contender(
        name="native-transfer-fast",
        title="TransferShedder",
        mode="extensible",
        ours=False,
        fast=True,
        broker_settings=FASTEST_TRANSFER,
    ),
)
