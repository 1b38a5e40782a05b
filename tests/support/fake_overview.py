"""Answers for the web page, for API tests: the cluster in few rows, and marks that a test may change."""

from __future__ import annotations

from typing import Any

from tests.support.fake_places import BROKERS

Json = dict[str, Any]


class FakeDrawing:
    """One bundle a broker is drawn, three are not. `cycle`: a test counts it up."""

    cycle = 4711

    def overview(self, largest: int) -> Json:
        """A row a broker."""
        rows = [
            {
                "broker": broker,
                "bundles": [{"bundle": f"shop/orders/{index}", "namespace": 0, "throughput": 2e6}][:largest],
                "other_bundles": 3,
                "other_throughput": 1e6,
            }
            for index, broker in enumerate(BROKERS)
        ]
        named = [{"namespace": "shop/orders", "throughput": 9e6}]
        return {"wall_ms": 1_790_000_000_000, "namespaces": named, "brokers": rows}

    def changes(self) -> Json:
        """One mark."""
        return {"cycle": str(self.cycle)}
