"""Splits on a virtual cluster: the positions, and the children's averages until their broker reports them."""

from __future__ import annotations

from dataclasses import dataclass, field

from bundlekeel.model.averages import Averages
from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport, BundleAverages, TopicLoad
from bundlekeel.model.plan import Split
from bundlekeel.planning.guard.state import SplitFailed
from bundlekeel.planning.splitting.children import SplitChildren, inherited, split_children, with_children
from bundlekeel.planning.splitting.positions import Cut, split_bundle
from bundlekeel.simulator.bundles import VirtualBundles
from bundlekeel.simulator.cluster import VirtualCluster


@dataclass(slots=True)
class SimulatedSplitter:
    """Executes planned splits. `splits`: the children of each parent that a broker's report may still contain."""

    splits: dict[str, SplitChildren] = field(default_factory=dict)

    def split(self, cluster: VirtualCluster, split: Split, averages: Averages) -> SplitFailed | None:
        """Split a bundle where its load divides, or return why that is not possible.

        The children inherit its averages in that proportion.
        """
        bundles = cluster.bundles
        row = bundles.index[split.bundle]
        topics = bundles.topic_rows(row)
        hashes = bundles.topic_hash[topics].tolist()
        loads = cluster.topic_loads()[topics]
        cut = split_bundle(hashes, loads.tolist(), int(bundles.lower[row]), int(bundles.upper[row]))
        if not isinstance(cut, Cut) or bundles.owner[row] < 0:
            code = Code.UNOWNED if isinstance(cut, Cut) else cut.code
            return SplitFailed(at_ms=cluster.wall_ms, code=code.value)
        children = split_children(split.bundle, cut.positions, _topic_loads(bundles, row, hashes, loads.tolist()))
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
        averages.seed(inherited(parent, children))
        self.splits[split.bundle] = children
        return None

    def updated(self, report: BrokerReport) -> BrokerReport:
        """Return a report with the children in the places of their parents."""
        return with_children(report, self.splits) if self.splits else report


def _topic_loads(bundles: VirtualBundles, row: int, hashes: list[int], loads: list[float]) -> list[TopicLoad]:
    unit = bundles.unit[row].tolist()
    return [
        TopicLoad(topic=str(place), hash=at, traffic=_four([load * value for value in unit]))
        for place, (at, load) in enumerate(zip(hashes, loads, strict=True))
    ]


def _four(values: list[float]) -> tuple[float, float, float, float]:
    a, b, c, d = values
    return a, b, c, d
