"""Answers for the web page, for API tests: the cluster in few rows, and marks that a test may change."""

from __future__ import annotations

from typing import Any

from bundlekeel.views.picture import Marks, OverviewBroker, OverviewBundle, OverviewNamespace, OverviewView
from tests.support.fake_places import BROKERS, NAMESPACES, OWNERS

Json = dict[str, Any]


class FakeOverview:
    """One bundle a broker is drawn, three are not. `cycle`: a test counts it up."""

    cycle = 4711

    def overview(self, largest: int) -> OverviewView:
        """Return one row per broker."""
        first = {broker: bundle for bundle, broker in reversed(OWNERS.items())}
        rows = [
            OverviewBroker(
                broker=broker,
                bundles=[
                    OverviewBundle(
                        bundle=first[broker],
                        namespace=NAMESPACES.index(first[broker].rpartition("/")[0]),
                        throughput=2e6,
                    )
                ][:largest],
                other_bundles=3,
                other_throughput=1e6,
            )
            for broker in BROKERS
        ]
        named = [OverviewNamespace(namespace=name, throughput=3e6) for name in NAMESPACES]
        return OverviewView(wall_ms=1_790_000_000_000, namespaces=named, brokers=rows)

    def changes(self) -> Marks:
        """One mark."""
        cycle = str(self.cycle)
        return Marks(picture=0, cycle=cycle, leader="pod-a 7", store=True, moves=0, tasks="", requests="")
