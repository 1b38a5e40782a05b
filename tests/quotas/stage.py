"""One tenant over its limit on a real cluster: topics, clients, figures measured at the clients."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from dev.cluster import Cluster
from dev.traffic.admin import ensure_namespace, place_all_on, request

NAMESPACES = ("acme/orders", "acme/events")
TOPICS = 8
PARTITIONS = 4
PUBLISH, DISPATCH = 240.0, 200.0
OFFERED = 4 * PUBLISH
SKEW = 1.5
CYCLE_SECONDS = 10.0
# How often the clients say what has passed.
EVERY_SECONDS = 0.5
# One second would show whole messages of slow topics; twice this is still below a cycle.
STATISTICS = {"statsUpdateFrequencyInSecs": "4"}
GROUP = {"acme": {"members": ["t:acme"], "publish_messages": PUBLISH, "dispatch_messages": DISPATCH}}


class Figures(NamedTuple):
    """Rates over a while, messages/s: by topic, and all together."""

    published: dict[str, float]
    delivered: dict[str, float]

    @property
    def totals(self) -> tuple[float, float]:
        """Published and delivered."""
        return sum(self.published.values()), sum(self.delivered.values())


def demands() -> dict[str, float]:
    """Messages/s that each topic's clients want: skewed, in both namespaces; the first one is partitioned."""
    names = [f"persistent://{space}/t{number}" for number in range(TOPICS) for space in NAMESPACES]
    weights = [1 / (rank + 1) ** SKEW for rank in range(len(names))]
    return {name: OFFERED * weight / sum(weights) for name, weight in zip(names, weights, strict=True)}


def fair_shares(demands: Mapping[str, float], limit: float) -> dict[str, float]:
    """Max-min shares of a limit."""
    left, rest = limit, sorted(demands.values())
    while rest and rest[0] <= left / len(rest):
        left -= rest.pop(0)
    level = left / len(rest) if rest else math.inf
    return {name: min(rate, level) for name, rate in demands.items()}


def fair_parts(figures: Figures) -> tuple[dict[str, float], dict[str, float]]:
    """Return each topic's part of its fair share: published, and delivered (at most the published part)."""
    publish = fair_shares(demands(), PUBLISH)
    dispatch = fair_shares(publish, DISPATCH)
    return (
        {name: figures.published.get(name, 0.0) / share for name, share in publish.items()},
        {name: figures.delivered.get(name, 0.0) / share for name, share in dispatch.items()},
    )


class Clients:
    """The process of the clients, and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self._process = process
        self._out = out

    def counts(self) -> list[dict[str, Any]]:
        """All lines so far."""
        lines = self._out.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def measure(self, seconds: float) -> Figures:
        """Rates over the next while."""
        return self.windows(time.monotonic(), seconds, 1)[0]

    def windows(self, since: float, seconds: float, count: int) -> list[Figures]:
        """Wait for `count` successive periods of `seconds` from `since` (monotonic clock), and return the rates in
        each.
        """
        edges = [since + number * seconds for number in range(count + 1)]
        while (rows := self.counts())[-1]["at"] < edges[-1]:
            assert self._process.poll() is None, "the clients have ended"
            time.sleep(EVERY_SECONDS)
        marks = [next(row for row in rows if row["at"] >= edge) for edge in edges]
        return [Figures(_rates(a, b, "acked"), _rates(a, b, "received")) for a, b in pairwise(marks)]


def _rates(first: Mapping[str, Any], last: Mapping[str, Any], kind: str) -> dict[str, float]:
    span = last["at"] - first["at"]
    return {name: (count - first[kind].get(name, 0)) / span for name, count in last[kind].items()}


def make_topics(cluster: Cluster) -> None:
    """Both namespaces with their topics; the first topic is partitioned. Spread over the brokers, without rates: a test
    that failed may have left some."""
    web = cluster.brokers[0].web_url
    for space in NAMESPACES:
        ensure_namespace(web, space, 8)
    for number, topic in enumerate(demands()):
        path = topic.replace("://", "/")
        partitioned = number == 0
        verb, body = ("partitions", PARTITIONS) if partitioned else ("", None)
        status, answer = request("PUT", f"{web}/admin/v2/{path}/{verb}".rstrip("/"), body)
        assert status in (204, 409), answer
        names = [f"{topic}-partition-{index}" for index in range(PARTITIONS)] if partitioned else [topic]
        for index, name in enumerate(names):
            broker = cluster.brokers[(number + index) % len(cluster.brokers)]
            place_all_on(broker.broker_id, broker.web_url, [name])
        for rate in ("publishRate", "dispatchRate"):
            status, answer = request("DELETE", f"{web}/admin/v2/{path}/{rate}")
            assert status in (204, 404), answer


@contextmanager
def clients(cluster: Cluster, directory: Path) -> Iterator[Clients]:
    """Clients of all topics, publishing and consuming."""
    with _load(cluster, directory, {"topics": demands(), "payload": 256, "consume": True}) as clients_running:
        yield clients_running


@contextmanager
def publishers(cluster: Cluster, directory: Path, topics: Mapping[str, float], payload: int) -> Iterator[Clients]:
    """Start clients that only publish, messages of `payload` bytes."""
    with _load(cluster, directory, {"topics": dict(topics), "payload": payload, "consume": False}) as clients_running:
        yield clients_running


@contextmanager
def _load(cluster: Cluster, directory: Path, job: Mapping[str, Any]) -> Iterator[Clients]:
    out, kind = directory / "counts.jsonl", "received" if job["consume"] else "acked"
    with out.open("wb") as sink, (directory / "clients.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.quotas.load"], stdin=subprocess.PIPE, stdout=sink, stderr=log
        )
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps({**job, "service_url": cluster.service_url}).encode() + b"\n")
            process.stdin.flush()
            value = Clients(process, out)
            deadline = time.monotonic() + 120
            while len((value.counts() or [{kind: {}}])[-1][kind]) < len(job["topics"]):
                assert time.monotonic() < deadline and process.poll() is None, "not every topic has traffic"
                time.sleep(0.5)
            yield value
        finally:
            process.kill()
            process.wait(10)
            if process.stdin is not None:
                process.stdin.close()


def topic_rates(cluster: Cluster) -> dict[str, tuple[int, str]]:
    """Topics' own publish and dispatch rates: status and body."""
    web = cluster.brokers[0].web_url
    rates = {}
    for topic in demands():
        for rate in ("publishRate", "dispatchRate"):
            status, body = request("GET", f"{web}/admin/v2/{topic.replace('://', '/')}/{rate}")
            rates[f"{topic} {rate}"] = status, body.decode()
    return rates
