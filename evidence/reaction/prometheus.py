"""Run a real Prometheus that scrapes the brokers of a cluster."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dev.cluster import Cluster
from dev.cluster.ports import free_ports
from dev.tools_prometheus import ensure

# A common scrape interval, in seconds.
SCRAPE_SECONDS = 15


@contextlib.contextmanager
def prometheus(cluster: Cluster, directory: Path) -> Iterator[str]:
    """Run Prometheus during the block and yield its URL. Raises ToolsMissing if it is not installed."""
    program, folder = ensure()["prometheus"], directory / "prometheus"
    folder.mkdir()
    targets = [broker.web_url.partition("://")[2] for broker in cluster.brokers]
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s"},
        "scrape_configs": [
            {"job_name": "brokers", "metrics_path": "/metrics/", "static_configs": [{"targets": targets}]}
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        str(program),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()
