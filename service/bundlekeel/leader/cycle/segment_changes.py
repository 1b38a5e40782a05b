"""Splits and merges of segments of scalable topics (Pulsar 5.0), which move load between bundles without a move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from bundlekeel.model.errors import StoreError
from bundlekeel.model.scalable import changed_bundles
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.ports import Metadata

_log = structlog.get_logger(__name__)

# Reports show the effect of a move within this time, so that older splits and merges do not matter.
KEPT_MS: Final = 600_000


class SegmentChanges:
    """The bundles whose segments Pulsar split or merged recently, at the leader."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.by_bundle: Mapping[str, int] = {}
        """Time of the last split or merge by bundle, by the brokers' clocks (Unix ms)."""

    async def read(self, snapshot: Snapshot) -> None:
        """Read the layouts of scalable topics. Never raises StoreError: the last result remains."""
        since_ms = snapshot.wall_ms - KEPT_MS
        try:
            changed = changed_bundles(await self._metadata.layouts(), snapshot.bundles.names, since_ms)
        except StoreError:
            return
        for bundle in sorted(changed.keys() - self.by_bundle.keys()):
            _log.info("Pulsar split or merged segments of a scalable topic", bundle=bundle)
        self.by_bundle = changed
