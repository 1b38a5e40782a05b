"""Limits that people change, and many new topics, under full load: how soon all is within a tenth again, and whether
rates swing. In bytes, whose rates are fine enough for small shares. With both load managers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dev.cluster import Cluster, ClusterSpec, open_cluster
from dev.sidecar import Sidecar
from tests.quotas.sidecars import WHO, cycles, quota_sidecar, view
from tests.quotas.stage import PUBLISH, STATISTICS, Clients, demands, make_topics, publishers
from tests.quotas.telling import tell

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200)]

# With so large a payload what a broker adds to each message is below 2 % of it.
SIZE = 4096
LIMIT = PUBLISH * SIZE
SETTLED = 5
MORE = 3
NEW = {f"persistent://acme/orders/new{number}": 1.0 for number in range(100)}
# A rate change too small for a write does not count as a change of direction.
SWING = 0.05


@pytest.fixture(scope="module", params=["modular", "extensible"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers with the topics of the stage."""
    with open_cluster(ClusterSpec(brokers=3, mode=request.param, broker_settings=STATISTICS)) as running:
        make_topics(running)
        yield running


class Watch:
    """Traffic and current rates, cycle by cycle from now on."""

    def __init__(self, sidecar: Sidecar, loads: list[Clients]) -> None:
        self.made, self.loads = sidecar, loads
        self.edges = [time.monotonic()]
        self.rates = [self._rates()]

    def follow(self, count: int) -> None:
        """Follow `count` cycles."""
        for _ in range(count):
            cycles(self.made, 1)
            self.edges.append(time.monotonic())
            self.rates.append(self._rates())

    def passed(self) -> list[float]:
        """Messages/s published in each cycle, all clients together."""
        rates = []
        for start, end in pairwise(self.edges):
            rates.append(sum(load.windows(start, end - start, 1)[0].totals[0] for load in self.loads))
        return rates

    def turns(self) -> int:
        """Return how often the rate of one topic changed its direction, at most."""
        return max(_turns([row[topic] for row in self.rates if topic in row]) for topic in demands())

    def _rates(self) -> dict[str, float]:
        group = self.made.get("/api/v1/quotas/acme") or {"rows": []}
        rates = {row["topic"]: row["partition_rate"]["publish_bytes"] for row in group["rows"]}
        return {topic: rate for topic, rate in rates.items() if rate is not None}


def _turns(rates: list[float]) -> int:
    turns, way, mark = 0, 0, rates[0]
    for rate in rates[1:]:
        if abs(rate - mark) > SWING * mark:
            now = 1 if rate > mark else -1
            turns, way, mark = turns + (way not in (0, now)), now, rate
    return turns


def settled_after(passed: list[float], limit: float) -> int:
    """Cycles until what passes is within a tenth of the limit and stays so."""
    off = [row for row, rate in enumerate(passed) if abs(rate - limit) > 0.1 * limit]
    return off[-1] + 1 if off else 0


def judge(watch: Watch, story: str, mode: str, limit: float) -> tuple[int, int]:
    """Print and return after how many cycles the rates had settled, and the turns."""
    watch.follow(SETTLED + MORE)
    passed = watch.passed()
    after, turns = settled_after(passed, limit), watch.turns()
    last = sum(passed[-MORE:]) / MORE
    figures: dict[str, Any] = {"cycles until within 10 %": after, "turns": turns, "published": f"{last / limit:.0%}"}
    tell(story, mode, figures)
    return after, turns


def test_changes_under_full_load(cluster: Cluster, tmp_path: Path) -> None:
    """Back within a tenth in five cycles, and no rate changes its direction more than once: after a limit is raised,
    lowered, and after a hundred new topics."""
    mode = cluster.spec.mode
    group = {"members": ["t:acme"], "publish_bytes": LIMIT}
    with (
        publishers(cluster, tmp_path, demands(), SIZE) as load,
        quota_sidecar(cluster, tmp_path, enforcer="policies", groups={"acme": group}) as sidecar,
    ):
        cycles(sidecar, 6)
        results = {}
        for story, factor in (("limit raised", 1.5), ("limit lowered", 1.0)):
            answer = sidecar.put("/api/v1/quotas/acme", WHO | group | {"publish_bytes": factor * LIMIT})
            assert answer.status_code == 200, answer.text
            results[story] = judge(Watch(sidecar, [load]), story, mode, factor * PUBLISH)
        more = tmp_path / "more"
        more.mkdir()
        with publishers(cluster, more, NEW, SIZE) as added:
            results["100 new topics"] = judge(Watch(sidecar, [load, added]), "100 new topics", mode, PUBLISH)
        assert view(sidecar)["problems"] == []
    assert all(after <= SETTLED and turns <= 1 for after, turns in results.values()), results
