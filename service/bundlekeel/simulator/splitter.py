"""Split bundles of a virtual cluster, and estimate the children's loads until their broker reports them."""

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
    """Executes planned splits. `splits`: children by parent, as brokers' reports can still contain the parent."""

    splits: dict[str, SplitChildren] = field(default_factory=dict)

    def split(self, cluster: VirtualCluster, split: Split, averages: Averages) -> SplitFailed | None:
        """Split a bundle at the hash that divides its load best. Returns None, or why the split is not possible.

        The children's averages are the parent's, divided in the same proportion as the load.
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
        """Return a copy of the report in which the children replace each bundle that was split."""
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
