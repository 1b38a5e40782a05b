"""`python -m dev.counters_cost`: what reading counters costs, at one real broker and at many simulated ones.

Real: a broker with 10,000 topics, each with a subscription, is read by the product's own client: bytes and seconds of
an answer, CPU seconds of the broker and ours. Simulated: the product's own reader, on a clock that goes faster, with
brokers that answer as slowly as that one. Renews docs/reference/counters-cost.md with `--write`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import httpx
import numpy as np

from bundlekeel.adapters.admin.client import HttpBrokerAdmin
from bundlekeel.adapters.admin.transport import AdminOptions
from bundlekeel.adapters.clock import SystemClock
from bundlekeel.adapters.metrics import PrometheusTelemetry
from bundlekeel.core.model.counters import CounterReading
from bundlekeel.core.model.load import BrokerEndpoint, BrokerReport
from bundlekeel.daemon.sources.counters import CounterOptions, LiveLoads
from bundlekeel.ports import RawClusterView, TopicCounters
from dev.cluster import ClusterSpec, open_cluster
from dev.markdown import table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "counters-cost.md"
READINGS = 5
# So many topics are made at the same time, and so often each request is tried.
AT_ONCE = 16
ATTEMPTS = 5
READ_SECONDS = 120.0
BUNDLES = 64
# Heap and direct memory of conf/pulsar_env.sh.
PULSARS_MEMORY_MB: Final = (2_048, 4_096)
NAMESPACE = "cost/topics"
# Brokers and topics of each.
CLUSTERS: Final = ((3, 1_000), (30, 1_000), (100, 1_000), (30, 10_000), (1_000, 300), (1_000, 10_000))
# So many times as fast as ours the simulated clock goes, and so long it is watched after it has settled.
FASTER = 8.0
WATCHED_SECONDS = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One reading of one broker: bytes, seconds until it was there, CPU seconds of the broker and ours."""

    topics: int
    nbytes: int
    seconds: float
    broker_cpu: float
    our_cpu: float


async def _make_topics(url: str, count: int) -> None:
    """Topics that the broker has loaded, each with a subscription, so that it keeps them. However busy the machine is,
    it ends only when one request has failed `ATTEMPTS` times."""
    async with httpx.AsyncClient(base_url=f"{url}/admin/v2", timeout=120.0, trust_env=False) as http:

        async def put(path: str) -> None:
            """What was made by an attempt whose answer did not come is a conflict at the next one."""
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    answer = await http.put(path)
                except httpx.TransportError as error:
                    print(f"{path}: {type(error).__name__}, attempt {attempt} of {ATTEMPTS}", flush=True)
                    continue
                if answer.status_code == 409 and attempt > 1:
                    return
                if answer.status_code < 500 or attempt == ATTEMPTS:
                    answer.raise_for_status()
                    return
                await asyncio.sleep(attempt)
            raise TimeoutError(f"{path}: no answer in {ATTEMPTS} attempts")

        (await http.put("/tenants/cost", json={"allowedClusters": ["local"]})).raise_for_status()
        (await http.put(f"/namespaces/{NAMESPACE}", json={"bundles": {"numBundles": BUNDLES}})).raise_for_status()

        async def one(number: int) -> None:
            for path in ("", "/subscription/reader"):
                await put(f"/persistent/{NAMESPACE}/events-{number:06d}{path}")

        for begin in range(0, count, AT_ONCE):
            await asyncio.gather(*(one(number) for number in range(begin, min(count, begin + AT_ONCE))))
            if (done := min(count, begin + AT_ONCE)) % (20 * AT_ONCE) == 0 or done == count:
                print(f"{done:,} of {count:,} topics", flush=True)


async def _read(url: str, topics: int) -> Cost:
    endpoint = BrokerEndpoint(broker_id=url.partition("://")[2], web_url=url)
    # A busy machine makes it slow, not wrong: the product's own limit is not what is measured.
    admin = HttpBrokerAdmin(
        telemetry=PrometheusTelemetry(), clock=SystemClock(), options=AdminOptions(query_timeout=READ_SECONDS)
    )
    admin.set_endpoints({endpoint.broker_id: endpoint})
    first = (await admin.counters(endpoint))[0]
    await asyncio.sleep(20.0)
    idle = (await admin.counters(endpoint))[0]
    # What it uses while it is not read, a second; the reading in between is counted as one of theirs below.
    seconds, ours, last = [], [], idle
    for number in range(READINGS):
        print(f"reading {number + 1} of {READINGS}", flush=True)
        began, cpu = time.monotonic(), time.process_time()
        last = (await admin.counters(endpoint))[0]
        seconds.append(time.monotonic() - began)
        ours.append(time.process_time() - cpu)
    async with httpx.AsyncClient(timeout=60.0, trust_env=False) as http:
        nbytes = len((await http.get(f"{url}/metrics/")).content)
    await admin.close()
    used = [item.cpu_seconds or 0.0 for item in (first, idle, last)]
    apart = [(b.to_ms - a.to_ms) / 1000 for a, b in ((first, idle), (idle, last))]
    # Two equations: idle CPU a second and CPU a reading, of a stretch with one reading and one with READINGS.
    factors = np.array([[apart[0], 1.0], [apart[1], float(READINGS)]])
    _, broker_cpu = np.linalg.solve(factors, np.diff(used)).tolist()
    return Cost(
        topics=int(last.topic.sum()),
        nbytes=nbytes,
        seconds=statistics.median(seconds),
        broker_cpu=broker_cpu,
        our_cpu=statistics.median(ours),
    )


def real(topics: int) -> Cost:
    """One stock broker with that many topics, read by the product's own client."""
    spec = ClusterSpec(
        brokers=1,
        fast_stats=False,
        broker_memory_mb=PULSARS_MEMORY_MB,
        broker_settings={"brokerDeleteInactiveTopicsEnabled": "false"},
    )
    with open_cluster(spec) as cluster:
        url = cluster.brokers[0].web_url
        asyncio.run(_make_topics(url, topics))
        return asyncio.run(_read(url, topics))


class _Faster:
    """`ports.Clock`, faster than ours."""

    def boot(self) -> float:
        return time.monotonic() * FASTER

    def wall_ms(self) -> int:
        return int(time.time() * 1000 * FASTER)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / FASTER)


class _Slow:
    """`ports.TopicCounters`: brokers with so many topics, that answer as slowly as the real one, topic by topic."""

    def __init__(self, clock: _Faster, topics: int, cost: Cost) -> None:
        self.readings = 0
        self._clock = clock
        self._seconds = cost.seconds * topics / cost.topics
        hashes = np.random.default_rng(7).integers(0, 2**32 - 1, topics)
        self._one = CounterReading(
            from_ms=0,
            to_ms=0,
            namespaces=(NAMESPACE,),
            namespace=np.zeros(topics, dtype=np.int64),
            keys=np.arange(topics, dtype=np.uint64),
            topic=np.ones(topics, dtype=bool),
            hashes=hashes,
            counters=np.ones((topics, 4)),
            sessions=np.ones((topics, 2), dtype=np.int64),
            cpu_seconds=1.0,
        )

    async def counters(self, broker: BrokerEndpoint) -> Sequence[CounterReading]:
        """See the port."""
        began = self._clock.wall_ms()
        await self._clock.sleep(self._seconds)
        self.readings += 1
        return [dataclasses.replace(self._one, from_ms=began, to_ms=self._clock.wall_ms())]


async def _simulate(brokers: int, topics: int, cost: Cost) -> list[str]:
    clock = _Faster()
    slow = _Slow(clock, topics, cost)
    edges = np.linspace(0, 2**32 - 1, BUNDLES + 1).astype(np.int64).tolist()

    async def boundaries(_namespace: str) -> list[int]:
        return cast("list[int]", edges)

    live = LiveLoads(
        cast("TopicCounters", slow), cast("Any", SimpleNamespace(boundaries=boundaries)), clock, CounterOptions()
    )
    live.wanted = lambda: True
    endpoints = {
        f"b{n}:8080": BrokerEndpoint(broker_id=f"b{n}:8080", web_url=f"http://b{n}:8080") for n in range(brokers)
    }
    live.register(endpoints)
    live.fused(_picture(endpoints, topics, clock))
    task = asyncio.create_task(live.run())
    await clock.sleep(60.0)
    before = slow.readings
    await clock.sleep(WATCHED_SECONDS)
    made = (slow.readings - before) / WATCHED_SECONDS
    task.cancel()
    await live.close()
    name = f"{brokers:,} x {topics:,}"
    print(f"{name}: {slow.readings} readings", flush=True)
    if not made:
        return [name, "not read: reports stay in charge", "-", "-", "-", "-"]
    share = topics / cost.topics
    return [
        name,
        f"{brokers / made:.0f} s",
        f"{made * cost.our_cpu * share:.1%}",
        f"{made / brokers * cost.broker_cpu * share:.2%}",
        f"{made * cost.nbytes * share / 2**20:.0f} MiB/s",
        f"{2 * brokers * topics * 64 / 2**20:.0f} MiB",
    ]


def _picture(endpoints: dict[str, BrokerEndpoint], topics: int, clock: _Faster) -> RawClusterView:
    reports = tuple(
        BrokerReport(
            broker_id=name,
            usage=np.zeros(4),
            limit=np.ones(4),
            traffic=np.zeros(4),
            last_update=clock.wall_ms(),
            bundle_names=(),
            bundle_traffic=np.zeros((0, 4)),
            bundle_counts=np.zeros((0, 3), dtype=np.int64),
            num_topics=topics,
        )
        for name in endpoints
    )
    return RawClusterView(
        wall_ms=clock.wall_ms(), boot=clock.boot(), generation=1, mode="modular", reports=reports, endpoints=endpoints
    )


def _page(cost: Cost, rows: list[list[str]]) -> str:
    header = [
        "brokers x topics",
        "each is read every",
        "our CPU, of a core",
        "a broker's CPU, of a core",
        "received",
        "kept",
    ]
    return f"""# What reading counters costs

Written by `python -m dev.counters_cost --write`; do not edit. What is read, and when:
[How loads are known within seconds](../concepts/live-loads.md).

One real broker with {cost.topics:,} loaded topics, each with a subscription, and no traffic, read by Bundlekeel's own
client (median of {READINGS} readings):

| what | measured |
| --- | --- |
| bytes of the page | {cost.nbytes / 2**20:.0f} MiB, {cost.nbytes / cost.topics / 1000:.1f} KB a topic |
| seconds until it was read | {cost.seconds:.2f} |
| CPU seconds of the broker | {cost.broker_cpu:.2f} |
| CPU seconds of the sidecar | {cost.our_cpu:.2f} |

Many brokers that answer as slowly, topic by topic, simulated for {WATCHED_SECONDS:.0f} s while nothing changes, on the
shipped settings (`counters.interval`, `counters.max_topics`). `kept`: the two newest readings of each broker.

{chr(10).join(table(header, rows))}

With `counters.source: prometheus` nothing is asked of a broker.
"""


def main() -> None:
    """Measure, print, and write when asked to."""
    parser = argparse.ArgumentParser(prog="python -m dev.counters_cost", description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000, help="of the real broker (default 10,000)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args()
    cost = real(given.topics)
    rows = [asyncio.run(_simulate(brokers, topics, cost)) for brokers, topics in CLUSTERS]
    text = _page(cost, rows)
    print(text)
    if given.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
