"""Each reading of its counters advances the averages by which an extensible broker sheds: none while it does so."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.core.model.errors import AdminFault
from bundlekeel.core.model.load import BrokerEndpoint
from bundlekeel.daemon.sources.counters import CounterOptions, LiveLoads
from bundlekeel.daemon.state.documents import Desired
from bundlekeel.daemon.state.takeover_record import EXCLUDED
from bundlekeel.ports import CounterReading
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.outside import Outside
from tests.support.memory_admin import SHEDDING, Fault
from tests.support.world import BROKERS, FakeCluster, FakeSidecar


class _Reader(FakeSidecar):
    """One whose brokers have counters."""

    def reached(self, loaded: LoadedSettings) -> Outside:
        made = super().reached(loaded)
        made.source.live = LiveLoads(self, made.metadata, made.clock, CounterOptions())
        return made

    async def counters(self, broker: BrokerEndpoint) -> list[CounterReading]:
        """See `ports.TopicCounters`: nothing was counted."""
        return []

    async def reads(self) -> bool:
        """Whether it reads after one more cycle."""
        await self.cycle.turn()
        assert self.outside.source.live is not None
        return self.outside.source.live.demand.wanted()


async def leading(kind: str = "extensible", *, shedding: bool = False, **given: Any) -> _Reader:
    """It leads over brokers of this load manager."""
    cluster = FakeCluster(shedding=shedding)
    cluster.source.mode = kind
    made = _Reader(cluster, **given)
    await made.lead()
    return made


async def test_extensible_brokers_are_read_while_their_own_shedding_is_off() -> None:
    """From a takeover to a handback. A partial takeover leaves the shedding of the other namespaces to them."""
    sidecar = await leading(shedding=True)
    dynamic = sidecar.cluster.model.dynamic
    assert not await sidecar.reads()
    dynamic[SHEDDING] = "false"
    assert await sidecar.reads()
    dynamic |= {SHEDDING: "true", EXCLUDED: "t/ns"}
    assert not await sidecar.reads()


async def test_extensible_brokers_are_read_in_mode_act_only() -> None:
    """Whoever lowers it, and whatever the settings say of counters."""
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


@pytest.mark.parametrize("given", [{"kind": "modular"}, {"settings": SCRAPED}])
async def test_what_changes_nothing_at_a_broker_is_read_always(given: dict[str, Any]) -> None:
    """Modular brokers have no such averages, and what Prometheus scraped is there already. Only the leader reads."""
    sidecar = await leading(shedding=True, mode="observe", **given)
    assert await sidecar.reads()
    await sidecar.leadership.stop()
    assert not await sidecar.reads()
