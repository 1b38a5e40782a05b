"""One tenant over its limit on a real cluster: topics, clients, figures measured at the clients."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


def fair_shares(wanted: Mapping[str, float], limit: float) -> dict[str, float]:
    """Max-min shares of a limit."""
    left, rest = limit, sorted(wanted.values())
    while rest and rest[0] <= left / len(rest):
        left -= rest.pop(0)
    level = left / len(rest) if rest else math.inf
    return {name: min(rate, level) for name, rate in wanted.items()}


def least_part(figures: Figures) -> float:
    """The worst topic's published part of its fair share."""
    fair = fair_shares(demands(), PUBLISH)
    return min(figures.published.get(name, 0.0) / share for name, share in fair.items())


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
        assert self._process.poll() is None, "the clients have ended"
        time.sleep(seconds + EVERY_SECONDS)
        rows = self.counts()
        last = rows[-1]
        first = next(row for row in reversed(rows) if row["at"] <= last["at"] - seconds)
        return Figures(_rates(first, last, "acked"), _rates(first, last, "received"))


def _rates(first: Mapping[str, Any], last: Mapping[str, Any], kind: str) -> dict[str, float]:
    span = last["at"] - first["at"]
    return {name: (count - first[kind].get(name, 0)) / span for name, count in last[kind].items()}


def make_topics(cluster: Cluster) -> None:
    """Both namespaces with their topics; the first topic is partitioned. Spread over the brokers."""
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


@contextmanager
def clients(cluster: Cluster, directory: Path) -> Iterator[Clients]:
    """Clients of all topics, publishing and consuming."""
    out = directory / "counts.jsonl"
    job = {"service_url": cluster.service_url, "topics": demands()}
    with out.open("wb") as sink, (directory / "clients.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.quotas.load"], stdin=subprocess.PIPE, stdout=sink, stderr=log
        )
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
            made = Clients(process, out)
            deadline = time.monotonic() + 60
            while len((made.counts() or [{"received": {}}])[-1]["received"]) < len(demands()):
                assert time.monotonic() < deadline and process.poll() is None, "not every topic has traffic"
                time.sleep(0.5)
            yield made
        finally:
            process.kill()
            process.wait(10)
            if process.stdin is not None:
                process.stdin.close()


def topic_rates(cluster: Cluster) -> dict[str, tuple[int, str]]:
    """Topics' own publish and dispatch rates: status and body."""
    web = cluster.brokers[0].web_url
    found = {}
    for topic in demands():
        for rate in ("publishRate", "dispatchRate"):
            status, body = request("GET", f"{web}/admin/v2/{topic.replace('://', '/')}/{rate}")
            found[f"{topic} {rate}"] = status, body.decode()
    return found
