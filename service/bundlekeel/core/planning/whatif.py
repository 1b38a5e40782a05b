"""What if? Snapshots altered for a dry run: brokers taken away or added, traffic scaled. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from bundlekeel.core.model.load import CPU, THROUGHPUT_IN, THROUGHPUT_OUT, Ints
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.snapshot import BrokerTable, BundleTable, Snapshot
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.planning.ledger import Ledger


def scaled(snapshot: Snapshot, factor: float) -> Snapshot:
    """All traffic and all usage times `factor`: load is taken to follow traffic."""
    brokers, bundles = snapshot.brokers, snapshot.bundles
    return replace(
        snapshot,
        digest=f"{snapshot.digest}*{factor:g}",
        brokers=replace(brokers, usage=brokers.usage * factor, traffic=brokers.traffic * factor),
        bundles=replace(
            bundles, latest=bundles.latest * factor, short=bundles.short * factor, long=bundles.long * factor
        ),
    )


def without_brokers(snapshot: Snapshot, gone: Collection[str], params: Parameters) -> Snapshot:
    """These brokers are away and their bundles were taken by the others, largest first to the least loaded.

    That is where lookups would roughly put them; the plan on the result says what remains to be evened out.
    """
    draft = Draft(snapshot, Ledger(), params)
    ids, bundles = snapshot.brokers.ids, snapshot.bundles
    stay = np.array([row for row, broker in enumerate(ids) if broker not in gone], dtype=np.int64)
    owner = bundles.owner.copy()
    homeless = np.flatnonzero(~np.isin(bundles.owner, stay))
    size = bundles.short[:, THROUGHPUT_IN] + bundles.short[:, THROUGHPUT_OUT]
    for row in homeless[np.argsort(-size[homeless], kind="stable")].tolist():
        target = int(stay[np.argmin(draft.score[stay])])
        draft.take(row, int(bundles.owner[row]), target, rule="what-if", threshold=0.0)
        owner[row] = target
    return _regrouped(snapshot, draft, stay, owner, ",".join(sorted(gone)))


def with_brokers(snapshot: Snapshot, names: Sequence[str], idle_cpu: float = 0.0) -> Snapshot:
    """These brokers are there too, empty, each as large as the middle one of the others (`middle_broker`).

    `idle_cpu`: what a broker uses without traffic, percent of one core. ValueError without a broker to take after.
    """
    table, count = snapshot.brokers, len(snapshot.brokers)
    ids = (*table.ids, *names)
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    rows = np.concatenate([np.arange(count), np.full(len(names), middle_broker(table))])[order]
    added = order >= count
    brokers = _picked(table, rows)
    for matrix in (brokers.usage, brokers.traffic, brokers.topics):
        matrix[added] = 0
    brokers.usage[added, CPU] = idle_cpu
    # As if started just now: what it uses was not seen, so nothing is to be learnt from it.
    brokers.start_timestamp[added] = snapshot.wall_ms
    place = np.argsort(order)
    return replace(
        snapshot,
        digest=f"{snapshot.digest}+{','.join(sorted(names))}",
        registered=snapshot.registered + len(names),
        brokers=replace(brokers, ids=tuple(ids[number] for number in order.tolist())),
        bundles=_grouped(snapshot.bundles, place[snapshot.bundles.owner], len(ids)),
    )


def middle_broker(brokers: BrokerTable) -> int:
    """The row in the middle by capacity (CPU, then direct memory, then bandwidth); of two the smaller. A whole row, not
    the median of each resource: which limits count depends on the others of the same broker. ValueError without any."""
    if not len(brokers):
        raise ValueError("no broker has a usable report")
    by_size = sorted(range(len(brokers)), key=lambda row: (tuple(brokers.limit[row].tolist()), brokers.ids[row]))
    return by_size[(len(by_size) - 1) // 2]


def _regrouped(snapshot: Snapshot, draft: Draft, stay: Ints, owner: Ints, label: str) -> Snapshot:
    """The snapshot with only the brokers that stay, with the load they have then, and bundles by their new owners."""
    renumbered = np.full(len(snapshot.brokers), -1, dtype=np.int64)
    renumbered[stay] = np.arange(len(stay))
    then = replace(snapshot.brokers, usage=draft.usage, traffic=draft.traffic, topics=draft.topics)
    return replace(
        snapshot,
        digest=f"{snapshot.digest}-{label}",
        registered=snapshot.registered - (len(snapshot.brokers) - len(stay)),
        brokers=_picked(then, stay),
        bundles=_grouped(snapshot.bundles, renumbered[owner], len(stay)),
    )


def _grouped(bundles: BundleTable, owner: Ints, brokers: int) -> BundleTable:
    """The bundles in the order of these owners (rows of as many brokers)."""
    order = np.argsort(owner, kind="stable")
    starts = np.zeros(brokers + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=brokers), out=starts[1:])
    return replace(
        bundles,
        names=tuple(bundles.names[row] for row in order.tolist()),
        starts=starts,
        owner=owner[order],
        namespace=bundles.namespace[order],
        latest=bundles.latest[order],
        short=bundles.short[order],
        long=bundles.long[order],
        samples=bundles.samples[order],
        counts=bundles.counts[order],
        system=bundles.system[order],
    )


def _picked(brokers: BrokerTable, chosen: Ints) -> BrokerTable:
    """These rows, in this order; a copy."""
    rows = chosen.tolist()
    return replace(
        brokers,
        ids=tuple(brokers.ids[row] for row in rows),
        usage=brokers.usage[chosen],
        limit=brokers.limit[chosen],
        from_traffic=brokers.from_traffic[chosen],
        overridden=tuple(brokers.overridden[row] for row in rows),
        traffic=brokers.traffic[chosen],
        last_update=brokers.last_update[chosen],
        start_timestamp=brokers.start_timestamp[chosen],
        topics=brokers.topics[chosen],
        load_managers=tuple(brokers.load_managers[row] for row in rows),
        versions=tuple(brokers.versions[row] for row in rows),
        persistent=tuple(brokers.takes_persistent()[chosen].tolist()),
        non_persistent=tuple(brokers.takes_non_persistent()[chosen].tolist()),
    )
