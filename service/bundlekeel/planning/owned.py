"""Add bundles that a broker owns but does not report: load reports contain no bundles without a loaded topic.

A load report (`LocalBrokerData.lastStats`) lists only bundles with topics, and may be 15 minutes old. Whether a broker
is empty depends on the list of its bundles (`/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from bundlekeel.model.names import is_system_bundle, namespace_of
from bundlekeel.model.snapshot import BundleTable, Snapshot, freeze, grouped


def with_owned(snapshot: Snapshot, owned: Mapping[str, Collection[str]]) -> Snapshot:
    """Return the snapshot with each bundle of `owned` (broker -> bundles) at the broker that owns it.

    Unreported bundles are added without traffic. Bundles that an older report lists elsewhere change their owner.
    Brokers that are not in the snapshot are ignored. Returns the same object if nothing changes.
    """
    index = snapshot.brokers.rows
    at = {name: index[broker] for broker, names in owned.items() if broker in index for name in names}
    bundles = snapshot.bundles
    moved = {row: at[bundles.names[row]] for row in bundles.rows_named(at)}
    moved = {row: owner for row, owner in moved.items() if int(bundles.owner[row]) != owner}
    reported = {bundles.names[row] for row in bundles.rows_named(at)}
    added = sorted(name for name in at if name not in reported)
    if not moved and not added:
        return snapshot
    owner = bundles.owner.copy()
    for row, broker in moved.items():
        owner[row] = broker
    changes = ",".join([*(f"{bundles.names[row]}@{broker}" for row, broker in sorted(moved.items())), *added])
    return replace(
        snapshot,
        digest=f"{snapshot.digest}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}",
        bundles=_with_idle(replace(bundles, owner=owner), {name: at[name] for name in added}, len(snapshot.brokers)),
    )


def _with_idle(bundles: BundleTable, added: Mapping[str, int], brokers: int) -> BundleTable:
    """Return the table with these bundles without traffic added, grouped by owner.

    `added`: owner (row) by bundle. `brokers`: number of brokers.
    """
    namespaces = dict.fromkeys((*bundles.namespaces, *map(namespace_of, added)))
    number = {name: row for row, name in enumerate(namespaces)}
    columns: dict[str, Any] = {
        item.name: np.concatenate([value, np.zeros((len(added), *value.shape[1:]), value.dtype)])
        for item in fields(bundles)
        if isinstance(value := getattr(bundles, item.name), np.ndarray)
    }
    columns["owner"][len(bundles) :] = list(added.values())
    columns["namespace"][len(bundles) :] = [number[namespace_of(name)] for name in added]
    columns["system"][len(bundles) :] = [is_system_bundle(name) for name in added]
    whole = replace(bundles, names=(*bundles.names, *added), namespaces=tuple(namespaces), **columns)
    table = grouped(whole, whole.owner, brokers)
    freeze(table)
    return table
