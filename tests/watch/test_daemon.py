"""A real Prometheus scrapes a real `bundlekeel run`: what the process exposes is what queries and pages speak of."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import yaml

from bundlekeel.records.metrics import PREFIX
from tests.watch.promql import Known, panel_queries
from tests.watch.server import concrete, free_port, prometheus, result_of, unhealthy, until


@contextlib.asynccontextmanager
async def daemon(folder: Path) -> AsyncIterator[str]:
    """`host:port` of a sidecar whose ZooKeeper is away. It ends by SIGTERM, with exit code 0."""
    port = free_port()
    settings = {
        "metadata_store": "zk:127.0.0.1:1",
        "api": {"port": port, "socket": None},
        "journal": {"path": str(folder / "journal.jsonl")},
    }
    file = folder / "daemon.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    with (folder / "daemon.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bundlekeel", "run", "-c", str(file)), stdout=log, stderr=log
        )
    try:
        yield f"127.0.0.1:{port}"
        process.terminate()
        assert await process.wait() == 0, (folder / "daemon.log").read_text(encoding="utf-8")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def strangers(http: httpx.AsyncClient) -> list[str]:
    """Return scraped series of ours that are in no table or have an unknown label. OpenMetrics adds a creation time to
    each counter and histogram, which the client library writes.
    """
    labels_by_name = Known.now().labels
    for name, labels in list(labels_by_name.items()):
        family, _, end = name.rpartition("_")
        if end in ("total", "count"):
            labels_by_name[f"{family}_created"] = labels
    answer = (await http.get("/api/v1/series", params={"match[]": f'{{__name__=~"{PREFIX}.+"}}'})).json()
    series = [(item.pop("__name__"), item) for item in answer["data"]]
    assert len(series) > 20
    return [
        f"{name}{labels}"
        for name, labels in series
        if name not in labels_by_name or not set(labels) <= labels_by_name[name]
    ]


@pytest.mark.timeout(600)
async def test_what_a_daemon_exposes_is_known(tools: dict[str, Path], tmp_path: Path) -> None:
    """Each series and label is in the table, no query or rule fails; the absent store is on its way to alert, absent
    sidecars only before the first scrape."""
    async with daemon(tmp_path) as target, prometheus(tools["prometheus"], tmp_path, target) as http:
        await until(http, f"{PREFIX}build_info and on (instance) up == 1")
        assert await strangers(http) == []
        for _, query in panel_queries():
            await result_of(http, concrete(query))
        await until(http, 'ALERTS{alertname="BundlekeelStoreUnavailable"}')
        assert await unhealthy(http) == []
        await until(http, 'absent(ALERTS{alertname="BundlekeelAbsent"})')
