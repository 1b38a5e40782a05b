"""What the observer makes of the pictures it is given."""

from __future__ import annotations

from bundlekeel.adapters.metrics import PrometheusTelemetry
from bundlekeel.daemon.sources.observer import FORGET_SECONDS, Observer
from bundlekeel.ports import Picture
from tests.support.builders import NOW_MS, broker, bundle_name, cluster
from tests.support.memory_source import MemoryLoadSource, RealClock


async def test_a_quiet_brokers_bundles_are_kept_and_those_of_a_gone_broker_are_forgotten() -> None:
    """Unchanged reports are not read again at once, and yet their bundles are known to be there."""
    clock = RealClock()
    observer = Observer(MemoryLoadSource(clock), clock, PrometheusTelemetry(), ())
    quiet, gone = cluster([[0.2], [0.3]])
    for at_ms in range(0, 2000 * int(FORGET_SECONDS), 20_000):
        reports = (quiet, gone) if at_ms == 0 else (quiet,)
        seen = Picture(
            wall_ms=NOW_MS + at_ms, boot=0.0, generation=at_ms, mode="modular", reports=reports, endpoints={}
        )
        assert await observer.absorb(seen) == (at_ms == 0)
    assert gone.broker_id == broker(1)
    assert (bundle_name(0) in observer.averages, bundle_name(1) in observer.averages) == (True, False)
