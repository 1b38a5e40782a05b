"""Measure the quota engine with 100 brokers and 100,000 namespaces, each with traffic at five brokers.

This is the size that the mailing list thread on PIP-82 discusses. `python -m evidence.quota_scale` prints CPU time and
memory of each cycle, and the thread's estimates of the messages that brokers would exchange. `--brokers`,
`--namespaces` and `--cycles` make the measurement smaller.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.quotas.rules.groups import KINDS, Membership, QuotaGroup, QuotaLimits
from bundlekeel.quotas.rules.lines import Lines, latest, lines_of
from bundlekeel.quotas.rules.shares import ShareMemory, ShareTuning, claims_of, share_out
from bundlekeel.quotas.rules.usage import Catalogue, TopicRates
from dev.markdown import table

SPREAD = 5  # brokers of a namespace, as in the thread
OFFERED = 4.0
CHURN = 0.002  # topics with a partition that moves in a cycle
# Estimate of the thread: 16 bytes for the messages and bytes of one direction, and names of 80 and 40 bytes.
THREAD_SECONDS = 60.0
USAGE_BYTES = 32
KEY_BYTES = 80
PARTICIPANT_BYTES = 40


@dataclass(slots=True)
class World:
    """Namespaces, each with one topic of `SPREAD` partitions. `owner`: the broker of each partition."""

    brokers: tuple[str, ...]
    topics: tuple[str, ...]
    owner: Ints
    demand: Floats
    random: np.random.Generator

    @staticmethod
    def of(brokers: int, namespaces: int, tenants: int, seed: int = 7) -> World:
        """Return a world with lognormal demands and random owners."""
        random = np.random.default_rng(seed)
        return World(
            brokers=tuple(f"broker-{row:03}.example.com:8080" for row in range(brokers)),
            topics=tuple(f"persistent://tenant-{row % tenants:05}/space-{row:06}/events" for row in range(namespaces)),
            owner=(random.integers(0, brokers, (namespaces, 1)) + np.arange(SPREAD)) % brokers,
            demand=random.lognormal(3.0, 1.0, namespaces),
            random=random,
        )

    def step(self, passing: Floats) -> list[TopicRates]:
        """Advance by one cycle: demands vary by up to 5 %, and some partitions move. Return the rates that brokers
        report. `passing`: the limit of each partition.
        """
        moved = np.flatnonzero(self.random.random(len(self.topics)) < CHURN)
        self.owner[moved, 0] = self.random.integers(0, len(self.brokers), len(moved))
        demand = self.demand[:, None] * self.random.uniform(0.95, 1.05, self.owner.shape) / SPREAD
        rate = np.minimum(demand, passing[:, None])
        order = np.argsort(self.owner.ravel(), kind="stable")
        bounds = np.searchsorted(self.owner.ravel()[order], np.arange(len(self.brokers) + 1)).tolist()
        reports = []
        for number, broker in enumerate(self.brokers):
            rows = order[bounds[number] : bounds[number + 1]]
            names = tuple(f"{self.topics[row // SPREAD]}-partition-{row % SPREAD}" for row in rows.tolist())
            column = rate.ravel()[rows]
            reports.append(TopicRates(broker, names, np.stack([column, column * 256, column, column * 256], axis=1)))
        return reports


def membership(world: World, tenants: int) -> Membership:
    """Return one quota group per tenant, with a limit of a quarter of the tenant's demand. With as many tenants as
    namespaces, each namespace has its own group.
    """
    row = np.arange(len(world.topics)) % tenants
    limit = np.bincount(row, world.demand, minlength=tenants) / OFFERED
    groups = tuple(
        QuotaGroup(name=f"g{number:05}", limits=QuotaLimits(publish_messages=most), members=(f"t:tenant-{number:05}",))
        for number, most in enumerate(limit.tolist())
    )
    spaces = ("/".join(topic.partition("://")[2].split("/")[:2]) for topic in world.topics)
    return Membership(groups=groups, group_of=dict(zip(spaces, row.tolist(), strict=True)))


class Leader:
    """The work of the leader in a quota cycle. `seconds`: CPU seconds of the last cycle, by step."""

    def __init__(self, members: Membership) -> None:
        self.members = members
        self.names = [group.name for group in members.groups]
        self.limits = members.limits()
        self.catalogue, self.lines, self.memory = Catalogue(), Lines(), ShareMemory()
        self.last: tuple[tuple[tuple[str, str], ...], Floats] = ((), np.zeros((0, len(KINDS))))
        self.seconds: dict[str, float] = {}

    def cycle(self, reports: Sequence[TopicRates]) -> Floats:
        """Run one cycle with the brokers' reports. Return the limit of each topic's partitions for the next cycle."""
        self.seconds = {}
        mark = time.process_time()
        table = self.catalogue.table(reports, self.members)
        mark = self._took("usage", mark)
        keys, share = self.last
        passing = share if keys is table.keys else np.full((len(table.keys), len(KINDS)), np.inf)
        now = lines_of(table, dict.fromkeys(table.seen, SPREAD), passing)
        self.lines = latest(self.lines, now, table.brokers)
        claims = claims_of(self.lines, self.names)
        mark = self._took("claims", mark)
        shares, self.memory = share_out(self.limits, self.names, claims, self.memory, ShareTuning(overcommit=0.1))
        self._took("shares", mark)
        self.last = table.keys, shares.share / SPREAD
        return self.last[1]

    def _took(self, step: str, since: float) -> float:
        now = time.process_time()
        self.seconds[step] = now - since
        return now


def run(brokers: int, namespaces: int, tenants: int, cycles: int) -> list[Mapping[str, float]]:
    """Run `cycles` cycles. Return one row of measurements per cycle."""
    world = World.of(brokers, namespaces, tenants)
    members = membership(world, tenants)
    before = _resident()
    leader = Leader(members)
    # Topics are sorted by group in the engine; the world numbers them by namespace.
    order = np.array(sorted(range(namespaces), key=lambda row: (row % tenants, world.topics[row])))
    passing = np.full(namespaces, np.inf)
    rows: list[Mapping[str, float]] = []
    fair = float(world.demand.sum()) / OFFERED
    for _ in range(cycles):
        reports = world.step(passing)
        passed = sum(float(item.rates[:, 0].sum()) for item in reports)
        passing[order] = leader.cycle(reports)[:, 0]
        rows.append(
            {
                **leader.seconds,
                "cycle": sum(leader.seconds.values()),
                "accuracy": passed / fair,
                "megabytes": _resident() - before,
            }
        )
    return rows


def _resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def estimates(brokers: int, namespaces: int) -> tuple[float, float]:
    """Return two estimates of the mailing list thread, in bytes per reporting period: what all brokers publish, and
    what all brokers receive.
    """
    each = namespaces * SPREAD // brokers
    published = brokers * (each * (KEY_BYTES + USAGE_BYTES) + PARTICIPANT_BYTES)
    return published, published * brokers


def cycle_table(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a Markdown table with one line per cycle."""
    form = {"cycle": ".2f", "usage": ".2f", "claims": ".2f", "shares": ".2f", "accuracy": ".0%", "megabytes": ",.0f"}
    head = ["cycle", "CPU s", "usage", "claims", "shares", "passed of limit", "MB more"]
    return table(head, ([number, *(f"{row[key]:{form[key]}}" for key in form)] for number, row in enumerate(rows, 1)))


def report_lines(brokers: int, namespaces: int, tenants: int, cycles: int) -> list[str]:
    """Return the table for one size of cluster, and the estimates of the mailing list thread for it, as lines
    of text.
    """
    published, received = estimates(brokers, namespaces)
    return [
        *cycle_table(run(brokers, namespaces, tenants, cycles)),
        "",
        f"The thread's own estimates for this size: {published / 1e6:.0f} MB published in each period of a minute "
        f"({published / THREAD_SECONDS / 1000:,.0f} kB/s), {received / 1e9:.1f} GB with what all brokers receive "
        f"({received / THREAD_SECONDS / 1e6:,.0f} MB/s), 1 MB of memory in each broker.",
    ]


def main() -> None:
    """Measure the quota engine and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--namespaces", type=int, default=100_000)
    parser.add_argument("--tenants", type=int, default=1000, help="groups; as many as namespaces: one for each")
    parser.add_argument("--cycles", type=int, default=12)
    options = parser.parse_args()
    print("\n".join(report_lines(options.brokers, options.namespaces, options.tenants, options.cycles)))


if __name__ == "__main__":
    main()
