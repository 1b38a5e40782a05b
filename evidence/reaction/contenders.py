"""The balancers that are compared, and their settings. All other settings have default values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dev.cluster.spec import Mode

Counters = Literal["brokers", "prometheus", "off"]
_IMPL = "org.apache.pulsar.broker.loadbalance.impl"
AVG_SHEDDER = f"{_IMPL}.AvgShedder"

# PIP-364 requires both names, and recommends 0.5 instead of 0.2.
AVG = {
    "loadBalancerLoadSheddingStrategy": AVG_SHEDDER,
    "loadBalancerLoadPlacementStrategy": AVG_SHEDDER,
    "maxUnloadPercentage": "0.5",
}
# ThresholdShedder moves at least 10 MB/s from a broker by default. Brokers of this size have less, so it moves nothing.
THRESHOLD = {
    # The default before 5.0; a placement by AvgShedder, the default of 5.0, does not apply then.
    "loadBalancerLoadSheddingStrategy": f"{_IMPL}.ThresholdShedder",
    "loadBalancerBundleUnloadMinThroughputThreshold": "0.0",
}
# The interval is an integer of minutes, so 1 is the shortest. That is the default; it limits how fast shedders react.
SHORTEST_INTERVALS = {"loadBalancerSheddingIntervalMinutes": "1", "loadBalancerHostUsageCheckIntervalMinutes": "1"}
FASTEST_AVG = {
    **SHORTEST_INTERVALS,
    "loadBalancerAvgShedderHitCountHighThreshold": "1",
    "loadBalancerAvgShedderHitCountLowThreshold": "1",
}
FASTEST_TRANSFER = {
    **SHORTEST_INTERVALS,
    # AvgShedder acts when its count of hits exceeds this value.
    "loadBalancerSheddingConditionHitCountThreshold": "0",
    # Pulsar's key has this spelling.
    "loadBalanceSheddingDelayInSeconds": "0",
    # No average over time: the score is that of the newest report.
    "loadBalancerHistoryResourcePercentage": "0.0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One balancer with its settings: a row of the comparison.

    ours: Bundlekeel balances, with its default settings; otherwise the brokers' own shedder.
    fast: brokers measure traffic every second (dev/cluster); otherwise every minute, Pulsar's default.
    counters: where Bundlekeel reads topic counters; "brokers" is the default.
    sensor: each broker has a sidecar that reads the byte counters of its network interface; otherwise one sidecar.
    broker_settings: other changed keys of broker.conf; `changed` describes them in few words.
    """

    name: str
    title: str
    mode: Mode
    ours: bool
    fast: bool
    counters: Counters = "brokers"
    sensor: bool = False
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    changed: str = "stock"

    @property
    def statistics(self) -> str:
        """Return the text of the column "settings" in the tables."""
        if self.ours:
            stock = {"brokers": "stock", "prometheus": "stock, counters of Prometheus", "off": "stock, reports only"}
            text = "fast statistics" if self.fast else stock[self.counters]
            return f"{text}, local sensors" if self.sensor else text
        return "fastest they allow" if self.fast else self.changed


def _ours(mode: Mode) -> list[Contender]:
    def one(name: str, *, fast: bool = False, counters: Counters = "brokers", sensor: bool = False) -> Contender:
        full = f"ours-{mode}-{name}"
        return Contender(
            name=full, title="Bundlekeel", mode=mode, ours=True, fast=fast, counters=counters, sensor=sensor
        )

    return [
        one("stock"),
        one("sensor", sensor=True),
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
