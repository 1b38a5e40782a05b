"""Segments of scalable topics (Pulsar 5.0), and which bundles recent splits and merges of segments concern.

Pulsar splits a segment with much traffic, and merges segments with little. The new segments are in other bundles. So
load moves between bundles, and often between brokers, without a move of a bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bundlekeel.model.names import TopicName, namespace_of, parse_bundle, parse_topic
from bundlekeel.model.snapshot import Snapshot

# Older splits and merges do not matter. Reports show a move within 18 minutes (`ledger.timeout_ms`).
# A split or merge in the 10 minutes before the move can make its prediction wrong (`planning.effects`).
KEPT_MS: Final = 1_800_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment of a scalable topic.

    `topic`: the scalable topic. `number`: number of the segment in it. `active`: it takes messages (not sealed).
    `name`: full name of the topic with its messages; a migrated topic keeps its old name. `changed_ms`: time at which a
    split or merge created or sealed it, by the broker's clock (Unix ms); 0: it has existed since the topic was created.
    """

    topic: TopicName
    number: int
    name: str
    active: bool = True
    changed_ms: int = 0


def changed_bundles(segments: Iterable[Segment], bundles: Iterable[str], since_ms: int) -> dict[str, int]:
    """Return those of `bundles` with segments that were split or merged after `since_ms`, and the latest time.

    Raises ValueError if a name is not valid.
    """
    changed: dict[str, list[tuple[int, int]]] = {}
    for segment in segments:
        if segment.changed_ms > since_ms:
            topic = parse_topic(segment.name)
            changed.setdefault(topic.namespace, []).append((topic.hash, segment.changed_ms))
    result = {}
    for bundle in bundles if changed else ():
        hashes = changed.get(namespace_of(bundle))
        if hashes:
            name = parse_bundle(bundle)
            if times := [at_ms for hash_, at_ms in hashes if name.covers(hash_)]:
                result[bundle] = max(times)
    return result


def recently_removed(before: Iterable[Segment], now: Sequence[Segment]) -> list[Segment]:
    """Return the segments of an earlier layout that Pulsar has removed from the layout `now`, sealed within `KEPT_MS`.

    Pulsar removes a sealed segment without messages within a minute, often before a cycle reads the seal. It then
    counts as sealed at the last split or merge.
    """
    numbers, latest_ms = {segment.number for segment in now}, max((segment.changed_ms for segment in now), default=0)
    removed = [segment for segment in before if segment.number not in numbers]
    sealed = [replace(item, active=False, changed_ms=latest_ms) if item.active else item for item in removed]
    return [segment for segment in sealed if latest_ms - segment.changed_ms < KEPT_MS]


def changed_brokers(snapshot: Snapshot, changed: Mapping[str, int]) -> dict[str, int]:
    """Return the time of the last split or merge by broker. `changed`: by bundle (result of `changed_bundles`)."""
    latest: dict[str, int] = {}
    for row in snapshot.bundles.rows_named(changed) if changed else ():
        broker = snapshot.brokers.ids[snapshot.bundles.owner[row]]
        latest[broker] = max(latest.get(broker, 0), changed[snapshot.bundles.names[row]])
    return latest
