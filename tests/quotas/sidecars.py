"""Sidecars with quotas, and requests to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dev.cluster import Cluster
from dev.sidecar import Sidecar, running

WHO = {"reason": "test", "by": "test"}
# The balancer stays out of it: nothing is moved but by the test.
STILL: dict[str, Any] = {"parameters": {"max_moves_per_cycle": 0}}


@contextmanager
def quota_sidecar(cluster: Cluster, directory: Path, **quotas: Any) -> Iterator[Sidecar]:
    """One that leads, with quotas."""
    # A root of its own: what one test removes is there for the next one.
    with running(cluster, ["q1"], directory, root=directory.name, quotas=quotas, **STILL) as (sidecar,):
        sidecar.until(lambda: sidecar.state().get("role") == "leader", "it leads", within=60)
        yield sidecar


def cycles(sidecar: Sidecar, count: int) -> None:
    """Wait for `count` more quota cycles."""
    for _ in range(count):
        before = view(sidecar)["wall_ms"]
        sidecar.until(lambda before=before: view(sidecar)["wall_ms"] not in (None, before), "a cycle", within=40)


def view(sidecar: Sidecar) -> Any:
    """Return the sidecar's quota view. Fails if it has no reports."""
    return sidecar.get("/api/v1/quotas") or {"wall_ms": None}


def remove(sidecar: Sidecar) -> None:
    """Take the group out of force, until everything is given back."""
    answer = sidecar.delete("/api/v1/quotas/acme", WHO)
    assert answer.status_code == 200, answer.text
    sidecar.until(lambda: view(sidecar).get("writes", {}).get("held") == 0, "it gave back", within=120)
