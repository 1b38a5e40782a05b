"""What the real sidecar answers about a pause of everything, beside what the API documents of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bundlekeel.core.model.parameters import Parameters
from bundlekeel.daemon.answers.service import Service
from tests.support.fake_service import FakeService
from tests.support.page_world import PageCluster, PageSidecar


@pytest.fixture(params=["real", "fake"])
async def service(request: pytest.FixtureRequest) -> AsyncIterator[Service]:
    """Both answer alike."""
    if request.param == "fake":
        yield FakeService()
        return
    cluster = PageCluster({"b1:8080": [("shop/orders", 0.3)], "b2:8080": []})
    sidecar = PageSidecar(cluster, mode="act", params=Parameters(), pace=0.0)
    await sidecar.lead()
    await sidecar.cycle.turn()
    yield sidecar.service


async def test_a_pause_without_an_end_ends_at_null(service: Service) -> None:
    """Null is until resumed, in the answer and in the state; 0 would be 1970. With an end it is that time."""
    made = await service.pause(reason="look", by="ann", seconds=None)
    for view in (made, service.state().paused):
        assert view.until_ms is None
        assert (view.reason, view.by) == ("look", "ann")
    made = await service.pause(reason="look", by="ann", seconds=60)
    assert service.state().paused.until_ms == made.until_ms == made.since_ms + 60_000
