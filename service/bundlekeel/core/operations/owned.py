"""What a broker really owns, beside what it reports: bundles without a loaded topic are in no load report.

A load report (`LocalBrokerData.lastStats`) lists bundles with topics only, and may be 15 minutes old; a broker that is
to be empty must be judged by the list of what it owns (`/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from bundlekeel.core.model.names import is_system_bundle, namespace_of
from bundlekeel.core.model.snapshot import BundleTable, Snapshot


def with_owned(snapshot: Snapshot, owned: Mapping[str, Collection[str]]) -> Snapshot:
    """The snapshot with every bundle of `owned` (broker -> bundles) at its broker.

    Bundles nobody reports come in without traffic; those that an older report still names elsewhere change their
    owner. A broker that is not in the snapshot is left out. The same snapshot when there is nothing to add.
    """
    index = {broker: row for row, broker in enumerate(snapshot.brokers.ids)}
    at = {name: index[broker] for broker, names in owned.items() if broker in index for name in names}
    bundles = snapshot.bundles
    moved = {row: at[bundles.names[row]] for row in bundles.rows_named(at)}
    moved = {row: owner for row, owner in moved.items() if int(bundles.owner[row]) != owner}
    known = {bundles.names[row] for row in bundles.rows_named(at)}
    added = sorted(name for name in at if name not in known)
    if not moved and not added:
        return snapshot
    owner = bundles.owner.copy()
    for row, broker in moved.items():
        owner[row] = broker
    changes = ",".join([*(f"{bundles.names[row]}@{broker}" for row, broker in sorted(moved.items())), *added])
    return replace(
        snapshot,
        digest=f"{snapshot.digest}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}",
        bundles=_grouped(replace(bundles, owner=owner), {name: at[name] for name in added}, len(snapshot.brokers)),
    )


def _grouped(bundles: BundleTable, added: Mapping[str, int], brokers: int) -> BundleTable:
    """The table with these idle bundles (name -> owner row) added, grouped by owner again."""
    names, count = (*bundles.names, *added), len(added)
    namespaces = dict.fromkeys((*bundles.namespaces, *map(namespace_of, added)))
    number = {name: row for row, name in enumerate(namespaces)}
    owner = np.concatenate([bundles.owner, np.array(list(added.values()), dtype=np.int64)])
    namespace = np.concatenate(
        [bundles.namespace, np.array([number[namespace_of(name)] for name in added], dtype=np.int64)]
    )
    system = np.concatenate([bundles.system, np.array([is_system_bundle(name) for name in added], dtype=bool)])
    order = np.argsort(owner, kind="stable")
    starts = np.zeros(brokers + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=brokers), out=starts[1:])
    made = BundleTable(
        names=tuple(names[row] for row in order.tolist()),
        starts=starts,
        owner=owner[order],
        namespaces=tuple(namespaces),
        namespace=namespace[order],
        latest=np.concatenate([bundles.latest, np.zeros((count, 4))])[order],
        short=np.concatenate([bundles.short, np.zeros((count, 4))])[order],
        long=np.concatenate([bundles.long, np.zeros((count, 4))])[order],
        samples=np.concatenate([bundles.samples, np.zeros((count, *bundles.samples.shape[1:]), np.int64)])[order],
        counts=np.concatenate([bundles.counts, np.zeros((count, 3), np.int64)])[order],
        system=system[order],
    )
    for column in (made.starts, made.owner, made.namespace, made.latest, made.short, made.long, made.samples):
        column.setflags(write=False)
    made.counts.setflags(write=False)
    made.system.setflags(write=False)
    return made
