"""`GET /doctor` writes nothing, and concurrent callers share one examination."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bundlekeel.requests.doctor import examine
from tests.support.world import FakeCluster, FakeSidecar


def counting(sidecar: FakeSidecar, monkeypatch: Any) -> tuple[list[str], list[str]]:
    """Return lists that grow with each write to the metadata store, and with each request for a broker's settings."""
    writes: list[str] = []
    requests: list[str] = []
    write, ask = sidecar.coordination.write_shared, sidecar.admin.runtime_configuration

    async def counted_write(name: str, *args: Any, **options: Any) -> Any:
        writes.append(name)
        return await write(name, *args, **options)

    async def counted_request(broker: str) -> dict[str, str]:
        requests.append(broker)
        return await ask(broker)

    monkeypatch.setattr(sidecar.coordination, "write_shared", counted_write)
    monkeypatch.setattr(sidecar.admin, "runtime_configuration", counted_request)
    return writes, requests


@pytest.mark.parametrize("for_act", [True, False])
async def test_s12_a_get_of_doctor_writes_nothing(for_act: bool, monkeypatch: Any) -> None:
    """The command does: it tests the rights of its own identity."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    writes, _ = counting(sidecar, monkeypatch)
    checks = {item.name: item for item in await sidecar.service.doctor(for_act=for_act)}
    assert not writes and checks["own root"].ok
    await examine(sidecar.doctor_context())
    assert writes == ["doctor"]


async def test_s12_concurrent_callers_share_one_examination(monkeypatch: Any) -> None:
    """Also if the first of them goes away. The next caller gets a new one."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    _, requests = counting(sidecar, monkeypatch)
    calls = [asyncio.create_task(sidecar.service.doctor(for_act=number % 2 == 0)) for number in range(50)]
    await asyncio.sleep(0)
    calls[0].cancel()
    results = await asyncio.gather(*calls[1:])
    assert all(results) and len(requests) == 3, "one for each broker"
    await sidecar.service.doctor()
    assert len(requests) == 6


async def test_s12_an_examination_that_fails_is_not_kept(monkeypatch: Any) -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    members, failing = sidecar.coordination.members, [True]

    async def odd() -> Any:
        if failing:
            raise RuntimeError("odd")
        return await members()

    monkeypatch.setattr(sidecar.coordination, "members", odd)
    with pytest.raises(RuntimeError):
        await sidecar.service.doctor()
    failing.clear()
    assert await sidecar.service.doctor()
