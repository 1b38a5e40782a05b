"""Measure the cost of reading topic counters from brokers: `python -m evidence.counters_cost`.

One real broker has 10,000 topics with a subscription each. The sidecar's client reads its metrics page: bytes and
seconds of a response, and CPU seconds of the broker and of the client. Then the sidecar's reader runs on a faster clock
with simulated brokers that respond as slowly as the real one. `--write` writes docs/reference/counters-cost.md.

`--signals` measures other requests instead, at a broker with 0.3 cores: those that could show a change of load at a
lower cost than the metrics page.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import httpx
import numpy as np

from bundlekeel.model.counters import CounterReading
from bundlekeel.model.load import BrokerEndpoint, BrokerReport
from bundlekeel.ports import RawClusterView, TopicCounters
from bundlekeel.pulsar.admin.client import HttpBrokerAdmin
from bundlekeel.pulsar.admin.transport import AdminOptions
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.pulsar.counters.demand import CounterDemand, CounterOptions
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.wiring.clock import SystemClock
from dev.cluster import ClusterSpec, open_cluster
from dev.markdown import table
from dev.traffic import Traffic, TrafficSpec

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "counters-cost.md"
READINGS = 5
# Number of topics created in parallel, and attempts per request.
AT_ONCE = 16
ATTEMPTS = 5
READ_SECONDS = 120.0
BUNDLES = 64
# Heap and direct memory of conf/pulsar_env.sh.
PULSARS_MEMORY_MB: Final = (2_048, 4_096)
NAMESPACE = "cost/topics"
# Brokers and topics of each.
CLUSTERS: Final = ((3, 1_000), (30, 1_000), (100, 1_000), (30, 10_000), (1_000, 300), (1_000, 10_000))
# Speed of the simulated clock relative to ours, and seconds to watch after it has settled.
FASTER = 8.0
WATCHED_SECONDS = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of reading the counters of one broker once: bytes of the page, bytes received (with gzip), seconds of the
    request, and CPU seconds of the broker and of the sidecar."""

    topics: int
    nbytes: int
    received: int
    seconds: float
    broker_cpu: float
    our_cpu: float


# Cost of one request for the CPU time of a broker, measured by `--signals`.
PROBE: Final = Cost(topics=1, nbytes=100_110, received=9_450, seconds=0.09, broker_cpu=0.024, our_cpu=0.003)


async def _make_topics(url: str, count: int) -> None:
    """Create `count` topics. Each has a subscription, so that the broker does not unload it. Raises TimeoutError only
    after one request has failed `ATTEMPTS` times, because the machine can be busy."""
    async with httpx.AsyncClient(base_url=f"{url}/admin/v2", timeout=120.0, trust_env=False) as http:

        async def put(path: str) -> None:
            """Create the topic or subscription. A 409 is accepted: an earlier attempt created it."""
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    answer = await http.put(path)
                except httpx.TransportError as error:
                    print(f"{path}: {type(error).__name__}, attempt {attempt} of {ATTEMPTS}", flush=True)
                    continue
                if answer.status_code == 409:
                    return
                if answer.status_code < 500 or attempt == ATTEMPTS:
                    answer.raise_for_status()
                    return
                await asyncio.sleep(attempt)
            raise TimeoutError(f"{path}: no answer in {ATTEMPTS} attempts")

        await http.put("/tenants/cost", json={"allowedClusters": ["local"]})
        await http.put(f"/namespaces/{NAMESPACE}", json={"bundles": {"numBundles": BUNDLES}})

        async def one(number: int) -> None:
            for path in ("", "/subscription/reader"):
                await put(f"/persistent/{NAMESPACE}/events-{number:06d}{path}")

        for begin in range(0, count, AT_ONCE):
            await asyncio.gather(*(one(number) for number in range(begin, min(count, begin + AT_ONCE))))
            if (done := min(count, begin + AT_ONCE)) % (20 * AT_ONCE) == 0 or done == count:
                print(f"{done:,} of {count:,} topics", flush=True)


async def _read(url: str) -> Cost:
    endpoint = BrokerEndpoint(broker_id=url.partition("://")[2], web_url=url)
    # A long time limit: the machine can be busy, and the sidecar's own limit is not measured here.
    admin = HttpBrokerAdmin(
        telemetry=PrometheusTelemetry(), clock=SystemClock(), options=AdminOptions(query_timeout=READ_SECONDS)
    )
    admin.set_endpoints({endpoint.broker_id: endpoint})
    first = (await admin.counters(endpoint))[0]
    await asyncio.sleep(20.0)
    idle = (await admin.counters(endpoint))[0]
    # The broker's CPU per second without readings. The equations below account for the reading that ends this period.
    seconds, ours, last = [], [], idle
    for number in range(READINGS):
        print(f"reading {number + 1} of {READINGS}", flush=True)
        began, cpu = time.monotonic(), time.process_time()
        last = (await admin.counters(endpoint))[0]
        seconds.append(time.monotonic() - began)
        ours.append(time.process_time() - cpu)
    async with httpx.AsyncClient(timeout=60.0, trust_env=False) as http:
        answer = await http.get(f"{url}/metrics/", headers={"Accept-Encoding": "gzip"})
    await admin.close()
    used = [item.cpu_seconds or 0.0 for item in (first, idle, last)]
    apart = [(b.to_ms - a.to_ms) / 1000 for a, b in ((first, idle), (idle, last))]
    # Solve for the idle CPU per second and the CPU per reading: one period has one reading, the other has READINGS.
    factors = np.array([[apart[0], 1.0], [apart[1], float(READINGS)]])
    _, broker_cpu = np.linalg.solve(factors, np.diff(used)).tolist()
    return Cost(
        topics=int(last.topic.sum()),
        nbytes=len(answer.content),
        received=answer.num_bytes_downloaded,
        seconds=statistics.median(seconds),
        broker_cpu=broker_cpu,
        our_cpu=statistics.median(ours),
    )


def real(topics: int) -> Cost:
    """Start a broker with `topics` topics, and measure how the sidecar's client reads its counters."""
    spec = ClusterSpec(
        brokers=1,
        fast_stats=False,
        broker_memory_mb=PULSARS_MEMORY_MB,
        broker_settings={"brokerDeleteInactiveTopicsEnabled": "false"},
    )
    with open_cluster(spec) as cluster:
        url = cluster.brokers[0].web_url
        asyncio.run(_make_topics(url, topics))
        return asyncio.run(_read(url))


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Requests that could show a change of load. `value`: extracts a number from a response. `counts`: whether that
    number is a counter, which grows, and not a rate."""

    paths: Sequence[str]
    value: Callable[[Sequence[str]], float]
    encoding: str = "identity"
    counts: bool = True

    def ask(self, http: httpx.Client) -> tuple[int, float]:
        """Send the requests. Return the received bytes, and the number in the responses."""
        nbytes, bodies = 0, []
        for path in self.paths:
            answer = http.get(path, headers={"Accept-Encoding": self.encoding}).raise_for_status()
            nbytes += answer.num_bytes_downloaded
            bodies.append(answer.text)
        return nbytes, self.value(bodies)


def _sum(pattern: str) -> Callable[[Sequence[str]], float]:
    return lambda bodies: sum(float(number) for body in bodies for number in re.findall(pattern, body))


def _signals(topics: Sequence[str]) -> dict[str, Signal]:
    """Return the signals (requests that could show a change of load) to compare, by name. `topics`: largest traffic
    first.
    """
    stats = [f"/admin/v2/{topic.replace('://', '/')}/stats?subscriptionBacklogSize=false" for topic in topics]
    counter, cpu = _sum(r'"bytesInCounter":(\d+)'), _sum(r'"ProcessCpuTime":(\d+)')
    page = _sum(r"(?m)^pulsar_in_bytes_total\{.*topic=.*\} (\S+)")
    beans, metrics = ["/admin/v2/broker-stats/mbeans"], ["/admin/v2/broker-stats/metrics"]
    return {
        "stats of the largest topic": Signal(paths=stats[:1], value=counter),
        "stats of the 3 largest topics": Signal(paths=stats[:3], value=counter),
        "mbeans, CPU time": Signal(paths=beans, value=cpu),
        "mbeans, CPU time, gzip": Signal(paths=beans, value=cpu, encoding="gzip"),
        "brk_bundle_* (broker-stats/metrics)": Signal(
            paths=metrics, value=_sum(r'"brk_bundle_msg_rate_in":([\d.]+)'), counts=False
        ),
        "page": Signal(paths=["/metrics/"], value=page),
        "page, gzip": Signal(paths=["/metrics/"], value=page, encoding="gzip"),
    }


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _signal_cost(signal: Signal, http: httpx.Client, pid: int, readings: int) -> list[str]:
    """Return the received bytes, the ms and the broker's CPU ms of one reading, without the CPU that an idle broker
    uses.
    """
    for _ in range(3):
        signal.ask(http)
    idle, began = _cpu_seconds(pid), time.monotonic()
    time.sleep(10.0)
    idle = (_cpu_seconds(pid) - idle) / (time.monotonic() - began)
    nbytes, seconds, cpu, since = [], [], _cpu_seconds(pid), time.monotonic()
    for _ in range(readings):
        began = time.monotonic()
        nbytes.append(signal.ask(http)[0])
        seconds.append(time.monotonic() - began)
    cpu = (_cpu_seconds(pid) - cpu - idle * (time.monotonic() - since)) / readings
    return [f"{statistics.median(nbytes):,.0f}", f"{1000 * statistics.median(seconds):.0f}", f"{1000 * cpu:.0f}"]


def _signal_delay(signals: dict[str, Signal], http: httpx.Client, stop: Callable[[], object]) -> list[list[str]]:
    """Return one row per signal: its relative deviation at a steady load (one value every 2 s), and the seconds from
    the end of the load (`stop`) until the signal falls below half.
    """
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in signals}

    def poll(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name, signal in signals.items():
                samples[name].append((time.monotonic(), signal.ask(http)[1]))
            time.sleep(max(0.0, 2.0 - time.monotonic() % 2.0))

    poll(60.0)
    ended = time.monotonic()
    stop()
    poll(90.0)
    rows = []
    for name, signal in signals.items():
        rates = [
            (after[0], (after[1] - before[1]) / (after[0] - before[0]) if signal.counts else after[1])
            for before, after in pairwise(samples[name])
        ]
        steady = [rate for at, rate in rates if at < ended]
        usual = statistics.mean(steady) or 1.0
        delays = [at - ended for at, rate in rates if at > ended and rate < 0.5 * usual]
        rows.append(
            [name, f"{statistics.pstdev(steady) / usual:.0%}", f"{delays[0]:.0f} s" if delays else "not in 90 s"]
        )
    return rows


def signals() -> str:
    """Measure all signals at a broker with 0.3 cores. Return tables of their cost with 24 and with 1,000 topics, and of
    their delay at 240 messages per second.
    """
    settings = {"brokerDeleteInactiveTopicsEnabled": "false", "exposeBundlesMetricsInPrometheus": "true"}
    spec = ClusterSpec(brokers=1, fast_stats=False, cpu_quota_cores=0.3, broker_settings=settings)
    spec = dataclasses.replace(spec, broker_memory_mb=(768, 512))
    header, parts = ["signal", "bytes", "ms", "broker's CPU, ms"], []
    with open_cluster(spec) as cluster:
        broker, pid = cluster.brokers[0], cluster.pid("broker-1")
        http = httpx.Client(base_url=broker.web_url, timeout=120.0, trust_env=False)
        for count, readings in ((24, 100), (1_000, 20)):
            asyncio.run(_make_topics(broker.web_url, count))
            topics = _signals([f"persistent://{NAMESPACE}/events-{number:06d}" for number in range(3)])
            rows = [[name, *_signal_cost(signal, http, pid, readings)] for name, signal in topics.items()]
            parts += [f"{count:,} topics", *table(header, rows)]
            print(*parts, sep="\n", flush=True)
        traffic = Traffic(
            TrafficSpec(
                service_url=broker.service_url,
                admin_url=broker.web_url,
                bundles=24,
                rate_total_msgs=240.0,
                start_seconds=180.0,
                batching=True,
            )
        )
        plans = sorted(traffic.prepare(), key=lambda plan: -plan.rate)
        with traffic:
            time.sleep(60.0)
            cheap = {name: item for name, item in _signals([p.topic for p in plans]).items() if "page" not in name}
            parts += ["", *table(["signal", "swing", "shows a stop after"], _signal_delay(cheap, http, traffic.stop))]
    return "\n".join(parts)


class _Faster:
    """A `ports.Clock` that is faster than the real time."""

    def boot(self) -> float:
        return time.monotonic() * FASTER

    def wall_ms(self) -> int:
        return int(time.time() * 1000 * FASTER)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / FASTER)


class _Slow:
    """`ports.TopicCounters` of simulated brokers with many topics, which take as long per topic as the real broker."""

    def __init__(self, clock: _Faster, topics: int, cost: Cost) -> None:
        self.readings = self.probes = 0
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
        began = self._clock.wall_ms()
        await self._clock.sleep(self._seconds)
        self.readings += 1
        return [dataclasses.replace(self._one, from_ms=began, to_ms=self._clock.wall_ms())]

    async def cpu_seconds(self, _broker: str) -> float:
        """Return the CPU seconds of a broker that uses a tenth of a core (see `ports.BrokerAdmin`)."""
        await self._clock.sleep(PROBE.seconds)
        self.probes += 1
        return self._clock.boot() / 10


async def _simulate(brokers: int, topics: int, cost: Cost) -> list[str]:
    clock = _Faster()
    slow = _Slow(clock, topics, cost)
    edges = np.linspace(0, 2**32 - 1, BUNDLES + 1).astype(np.int64).tolist()

    async def boundaries(_namespace: str) -> list[int]:
        return cast("list[int]", edges)

    metadata = cast("Any", SimpleNamespace(boundaries=boundaries))
    options = CounterOptions()
    counters, demand = cast("TopicCounters", slow), CounterDemand(wanted=lambda: True)
    live = LiveLoads(counters, metadata, clock, options, cpu_seconds=slow.cpu_seconds, demand=demand)
    endpoints = {
        f"b{n}:8080": BrokerEndpoint(broker_id=f"b{n}:8080", web_url=f"http://b{n}:8080") for n in range(brokers)
    }
    live.register(endpoints)
    live.fused(_picture(endpoints, topics, clock))
    task = asyncio.create_task(live.run())
    await clock.sleep(60.0)
    before, probed = slow.readings, slow.probes
    await clock.sleep(WATCHED_SECONDS)
    readings, probes = (slow.readings - before) / WATCHED_SECONDS, (slow.probes - probed) / WATCHED_SECONDS
    task.cancel()
    await live.close()
    name = f"{brokers:,} x {topics:,}"
    print(f"{name}: {slow.readings} readings", flush=True)
    if not readings:
        return [name, "not read: reports stay in charge", *["-"] * 5]
    share = topics / cost.topics
    return [
        name,
        f"{brokers / readings:.0f} s",
        f"{brokers / probes:.0f} s",
        f"{readings * cost.our_cpu * share + probes * PROBE.our_cpu:.1%}",
        f"{(readings * cost.broker_cpu * share + probes * PROBE.broker_cpu) / brokers:.2%}",
        f"{(readings * cost.received * share + probes * PROBE.received) / 2**20:.1f} MiB/s",
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
        "and probed every",
        "our CPU, of a core",
        "a broker's CPU, of a core",
        "received",
        "kept",
    ]
    return f"""# What reading counters costs

Written by `python -m evidence.counters_cost --write`; do not edit. What is read, and when:
[How loads are known within seconds](../concepts/live-loads.md).

One real broker with {cost.topics:,} loaded topics, each with a subscription, and no traffic, read by Bundlekeel's own
client (median of {READINGS} readings):

| what | measured |
| --- | --- |
| bytes of the page | {cost.nbytes / 2**20:.0f} MiB, {cost.nbytes / cost.topics / 1000:.1f} KB a topic |
| of them received, with gzip | {cost.received / 2**20:.1f} MiB; with traffic about 0.5 KB a topic |
| seconds until it was read | {cost.seconds:.2f} |
| CPU seconds of the broker | {cost.broker_cpu:.2f} |
| CPU seconds of the sidecar | {cost.our_cpu:.2f} |

Many brokers that answer as slowly, topic by topic, simulated for {WATCHED_SECONDS:.0f} s while nothing changes, on the
shipped settings (`counters.interval`, `counters.max_topics`). `kept`: the two newest readings of each broker. A probe
of the CPU time counts with {PROBE.received / 1000:.1f} KB, {1000 * PROBE.broker_cpu:.0f} ms of the broker's CPU and
{1000 * PROBE.our_cpu:.0f} ms of ours (`--signals`, a broker with 0.3 cores).

{chr(10).join(table(header, rows))}

With `counters.source: prometheus` nothing is asked of a broker.
"""


def main() -> None:
    """Measure the costs and print. With `--write`, also write docs/reference/counters-cost.md."""
    parser = argparse.ArgumentParser(prog="python -m evidence.counters_cost", description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000, help="of the real broker (default 10,000)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--signals", action="store_true", help="compare signals of a changed load instead")
    options = parser.parse_args()
    if options.signals:
        print(signals())
        return
    cost = real(options.topics)
    rows = [asyncio.run(_simulate(brokers, topics, cost)) for brokers, topics in CLUSTERS]
    text = _page(cost, rows)
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
