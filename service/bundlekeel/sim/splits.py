"""Carrying out splits on a virtual cluster: where to cut, and what is known of the children until they are reported."""

from __future__ import annotations

from dataclasses import dataclass, field

from bundlekeel.core.guard.state import SplitFailed
from bundlekeel.core.model.averages import Averages
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import BrokerReport, BundleAverages, TopicLoad
from bundlekeel.core.model.plan import Split
from bundlekeel.core.splitting.children import Family, family, inherited, with_children
from bundlekeel.core.splitting.positions import Cut, split_bundle
from bundlekeel.sim.bundles import VirtualBundles
from bundlekeel.sim.cluster import VirtualCluster


@dataclass(slots=True)
class SimulatedSplitter:
    """Executes planned splits.

    `families`: parents that a broker's report may still name. `failed`: what came to nothing.
    """

    families: dict[str, Family] = field(default_factory=dict)
    failed: dict[str, SplitFailed] = field(default_factory=dict)

    def carry_out(self, cluster: VirtualCluster, split: Split, averages: Averages) -> None:
        """Divide a bundle where its topics' loads are halved; its children inherit its averages in that proportion."""
        bundles = cluster.bundles
        row = bundles.index[split.bundle]
        topics = bundles.topic_rows(row)
        hashes = bundles.topic_hash[topics].tolist()
        loads = cluster.topic_loads()[topics]
        cut = split_bundle(hashes, loads.tolist(), int(bundles.lower[row]), int(bundles.upper[row]))
        if not isinstance(cut, Cut) or bundles.owner[row] < 0:
            code = Code.UNOWNED if isinstance(cut, Cut) else cut.code
            self.failed[split.bundle] = SplitFailed(at_ms=cluster.wall_ms, code=code.value)
            return
        made = family(split.bundle, cut.positions, _topic_loads(bundles, row, hashes, loads.tolist()))
        short, long, samples = averages.columns(averages.rows([split.bundle]))
        parent = BundleAverages(
            bundle=split.bundle,
            short=_four(short[0].tolist()),
            long=_four(long[0].tolist()),
            short_samples=int(samples[0, 0]),
            long_samples=int(samples[0, 1]),
            topics=len(topics),
        )
        cluster.split(split.bundle, cut.positions, by="bundlekeel")
        averages.seed(inherited(parent, made))
        self.families[split.bundle] = made

    def updated(self, report: BrokerReport) -> BrokerReport:
        """A report as it reads with the children in their parents' places."""
        return with_children(report, self.families) if self.families else report


def _topic_loads(bundles: VirtualBundles, row: int, hashes: list[int], loads: list[float]) -> list[TopicLoad]:
    unit = bundles.unit[row].tolist()
    return [
        TopicLoad(topic=str(place), hash=at, traffic=_four([load * value for value in unit]))
        for place, (at, load) in enumerate(zip(hashes, loads, strict=True))
    ]


def _four(values: list[float]) -> tuple[float, float, float, float]:
    a, b, c, d = values
    return a, b, c, d
