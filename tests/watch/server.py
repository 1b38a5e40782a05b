"""A real Prometheus with our rules, and questions to it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.watch.promql import RULES, documents


def free_port() -> int:
    """Return an unused port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextlib.asynccontextmanager
async def prometheus(program: Path, folder: Path, *targets: str) -> AsyncIterator[httpx.AsyncClient]:
    """One that scrapes these targets each second, with our rules, evaluated each second."""
    rules = []
    for name in ("recording.yml", "alerts.yml"):
        tree = yaml.safe_load((RULES / name).read_text(encoding="utf-8"))
        for group in tree["groups"]:
            group["interval"] = "1s"
        rules.append(folder / name)
        rules[-1].write_text(yaml.safe_dump(tree), encoding="utf-8")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rule) for rule in rules],
        "scrape_configs": [{"job_name": "bundlekeel", "static_configs": [{"targets": list(targets)}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *[
            str(program),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=None) as http:
            yield http
    finally:
        process.terminate()
        await process.wait()


async def result_of(http: httpx.AsyncClient, query: str) -> list[dict[str, Any]]:
    """The instant vector of a query; the test fails with Prometheus' own words otherwise."""
    answer = (await http.get("/api/v1/query", params={"query": query})).json()
    assert answer["status"] == "success", f"{query}: {answer.get('error')}"
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result


async def has(http: httpx.AsyncClient, query: str) -> bool:
    """Whether it has data; False while Prometheus starts."""
    try:
        ready = await http.get("/-/ready")
    except httpx.TransportError:
        return False
    return ready.status_code == 200 and bool(await result_of(http, query))


def concrete(query: str) -> str:
    """A panel query as Grafana sends it."""
    for variable in ("$cluster", "$job", "$instance", "$broker"):
        query = query.replace(variable, ".*")
    # A week ago is before this Prometheus, and it may end before the next fifth minute.
    query = re.sub(r" offset [78]d", "", query).replace("[24h:5m]", "[24h:15s]").replace("[1d:5m]", "[1d:15s]")
    return query.replace("$__rate_interval", "1m").replace("$__range", "5m")


async def until(http: httpx.AsyncClient, query: str) -> None:
    """Wait for its data."""
    while not await has(http, query):  # noqa: ASYNC110 - it happens in another process
        await asyncio.sleep(0.5)


async def unhealthy(http: httpx.AsyncClient) -> list[str]:
    """Rules that Prometheus could not evaluate, with its words; all of ours must be there."""
    groups = (await http.get("/api/v1/rules")).json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(documents("alerts.yml")) + len(documents("recording.yml"))
    return [f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}" for rule in rules if rule["health"] != "ok"]
