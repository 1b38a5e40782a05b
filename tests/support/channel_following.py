"""The sidecar's view of ownership over a real extensible cluster: channel by variant, ownership by mode, the watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from bundlekeel.settings.load import load_settings
from bundlekeel.wiring.outside import Outside, connected, watch
from dev.cluster import Cluster
from tests.support.contracts.coordination import eventually


class Following:
    """One sidecar's parts that read ownership. `lines`: what it wrote into its journal."""

    def __init__(self, out: Outside) -> None:
        self.source, self.channel, self.ownership = out.source, out.channel, out.ownership
        self.lines: list[Mapping[str, Any]] = []
        self.watch = watch(out, self.lines.append, lambda: True)


@asynccontextmanager
async def outside(cluster: Cluster, **settings: Any) -> AsyncIterator[Outside]:
    """The product's adapters over a cluster, connected; closed at the end."""
    stores = {"metadata_store": cluster.metadata_url, "configuration_store": cluster.configuration_url}
    settings_all = {"cluster": cluster.spec.cluster_name, **stores, **settings}
    async with connected(load_settings(None, settings_all, environ={})) as out:
        await out.source.start()
        yield out


@asynccontextmanager
async def following(cluster: Cluster) -> AsyncIterator[Following]:
    """Started, and followed; ended again."""
    async with outside(cluster) as out:
        value = Following(out)
        watching = asyncio.create_task(value.watch.run())
        try:
            await eventually(lambda: value.watch.followed, within=90)
            yield value
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
