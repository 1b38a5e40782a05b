"""What if? Snapshots altered for a dry run: brokers taken away, traffic scaled. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from bundlekeel.core.draft import Draft
from bundlekeel.core.ledger import Ledger
from bundlekeel.core.load import THROUGHPUT_IN, THROUGHPUT_OUT, Ints
from bundlekeel.core.params import Parameters
from bundlekeel.core.snapshot import BrokerTable, Snapshot


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


def _regrouped(snapshot: Snapshot, draft: Draft, stay: Ints, owner: Ints, label: str) -> Snapshot:
    """The snapshot with only the brokers that stay and bundles grouped by their new owners."""
    bundles = snapshot.bundles
    renumbered = np.full(len(snapshot.brokers), -1, dtype=np.int64)
    renumbered[stay] = np.arange(len(stay))
    new_owner = renumbered[owner]
    order = np.argsort(new_owner, kind="stable")
    starts = np.zeros(len(stay) + 1, dtype=np.int64)
    np.cumsum(np.bincount(new_owner, minlength=len(stay)), out=starts[1:])
    return replace(
        snapshot,
        digest=f"{snapshot.digest}-{label}",
        registered=snapshot.registered - (len(snapshot.brokers) - len(stay)),
        brokers=_kept(snapshot.brokers, draft, stay),
        bundles=replace(
            bundles,
            names=tuple(bundles.names[row] for row in order.tolist()),
            starts=starts,
            owner=new_owner[order],
            namespace=bundles.namespace[order],
            latest=bundles.latest[order],
            short=bundles.short[order],
            long=bundles.long[order],
            samples=bundles.samples[order],
            counts=bundles.counts[order],
            system=bundles.system[order],
        ),
    )


def _kept(brokers: BrokerTable, draft: Draft, stay: Ints) -> BrokerTable:
    """The rows of the brokers that stay, with the load they have then."""
    rows = stay.tolist()
    return replace(
        brokers,
        ids=tuple(brokers.ids[row] for row in rows),
        usage=draft.usage[stay],
        limit=brokers.limit[stay],
        from_traffic=brokers.from_traffic[stay],
        overridden=tuple(brokers.overridden[row] for row in rows),
        traffic=draft.traffic[stay],
        last_update=brokers.last_update[stay],
        start_timestamp=brokers.start_timestamp[stay],
        topics=draft.topics[stay],
        load_managers=tuple(brokers.load_managers[row] for row in rows),
        versions=tuple(brokers.versions[row] for row in rows),
        persistent=tuple(brokers.takes_persistent()[stay].tolist()),
        non_persistent=tuple(brokers.takes_non_persistent()[stay].tolist()),
    )
