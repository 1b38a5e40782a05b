"""Each reading of its counters advances the averages by which an extensible broker sheds: none while it does so."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.leader.state.documents import Desired
from bundlekeel.leader.state.takeover_record import EXCLUDED
from bundlekeel.model.errors import AdminFault
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.ports import CounterReading
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.pulsar.counters.demand import CounterOptions
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.outside import Outside
from tests.support.memory_admin import SHEDDING, Fault
from tests.support.world import BROKERS, FakeCluster, FakeSidecar


class _Reader(FakeSidecar):
    """One whose brokers have counters."""

    def reached(self, loaded: LoadedSettings) -> Outside:
        result = super().reached(loaded)
        result.source.live = LiveLoads(self, result.metadata, result.clock, CounterOptions())
        return result

    async def counters(self, broker: BrokerEndpoint) -> list[CounterReading]:
        """See `ports.TopicCounters`: nothing was counted."""
        return []

    async def reads(self) -> bool:
        """Whether it reads after one more cycle."""
        await self.cycle.turn()
        assert self.outside.source.live is not None
        return self.outside.source.live.demand.wanted()


async def leading(kind: str = "extensible", *, shedding: bool = False, **options: Any) -> _Reader:
    """It leads over brokers of this load manager."""
    cluster = FakeCluster(shedding=shedding)
    cluster.source.mode = kind
    result = _Reader(cluster, **options)
    await result.lead()
    return result


async def test_extensible_brokers_are_read_while_their_own_shedding_is_off() -> None:
    sidecar = await leading(shedding=True)
    dynamic = sidecar.cluster.model.dynamic
    assert not await sidecar.reads()
    dynamic[SHEDDING] = "false"
    assert await sidecar.reads()
    dynamic |= {SHEDDING: "true", EXCLUDED: "t/ns"}
    assert not await sidecar.reads()


async def test_extensible_brokers_are_read_in_mode_act_only() -> None:
    sidecar = await leading()
    assert await sidecar.reads()
    sidecar.shared_state.desired = Desired(mode="recommend")
    assert not await sidecar.reads()
    assert not await (await leading(mode="recommend")).reads()
    assert not await (await leading(settings={"counters.extensible": False})).reads()


async def test_a_broker_that_shows_no_settings_does_not_stop_the_reading_of_the_others() -> None:
    """A starting one does not. Where none does, nothing is known of their shedding."""
    sidecar = await leading()
    sidecar.admin.fail("runtime_configuration", Fault(error=AdminFault("x")))
    assert await sidecar.reads()
    sidecar = await leading()
    sidecar.admin.unauthorized = frozenset(BROKERS)
    assert not await sidecar.reads()


SCRAPED = {"counters.source": "prometheus", "prometheus.url": "http://prometheus"}


@pytest.mark.parametrize("options", [{"kind": "modular"}, {"settings": SCRAPED}])
async def test_what_changes_nothing_at_a_broker_is_read_always(options: dict[str, Any]) -> None:
    """Modular brokers have no such averages, and what Prometheus scraped is there already. Only the leader reads."""
    sidecar = await leading(shedding=True, mode="observe", **options)
    assert await sidecar.reads()
    await sidecar.leadership.stop()
    assert not await sidecar.reads()
