"""A broker's page cannot make the leader look up any number of namespaces."""

from __future__ import annotations

import asyncio

import pytest

from bundlekeel.daemon.sources import counters
from tests.unit.daemon.sources.test_counters import Stage, played


@played(seconds=10.0)
async def test_s02_invented_namespaces_are_read_in_bounded_numbers(stage: Stage) -> None:
    """Together, not one after the other; the broker goes by its reports until all of them are known."""
    stage.counting.namespaces = ("t/n", *(f"t/invented-{number}" for number in range(4999)))
    read: list[str] = []
    most = together = 0

    async def slow(namespace: str) -> list[int] | None:
        nonlocal most, together
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.001)
        read.append(namespace)
        together -= 1
        return None

    stage.metadata.boundaries = slow  # type: ignore[method-assign]
    await asyncio.sleep(20.0)
    assert 0 < len(set(read)) <= 4000 and most > 1, "two brokers"
    assert stage.rate("a:8080") == 50.0
    await asyncio.sleep(400.0)
    assert len(set(read)) == 4999 and stage.rate("a:8080") == pytest.approx(1000.0)


@played(seconds=10.0)
async def test_s02_namespaces_of_the_past_are_forgotten(stage: Stage) -> None:
    for turn in range(60):
        await stage.live._edges({f"t/{turn}-{number}" for number in range(1000)})
    assert len(stage.live._boundaries) <= counters._MOST_NAMESPACES + 1000
