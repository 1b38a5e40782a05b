"""ZooKeeper is down at the start, or becomes silent during moves. The sidecars wait, change nothing, and recover."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dev.sidecar import leader_of
from tests.chaos.stage import EAGER, QUICK, Stage, ready, until
from tests.support.recorder import Recorder, Route

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# Nothing moves for a while after an outage (test_outage.py); here only until the brokers are back.
SHORT = {"session_timeout": "4s", "settle_after_outage": "3s"}


def test_unreachable_at_start(stage: Stage, tmp_path: Path) -> None:
    """The process stays, alive but not ready, names the store, and is ready soon after ZooKeeper is there."""
    host, _, port = stage.cluster.zk_hosts.partition(":")
    with Recorder([Route("127.0.0.1", 0, host, int(port), http=False)]) as way:
        address = way.address()
        way.set_down(True)
        stores = {
            "metadata_store": f"zk:{address}/pulsar",
            "configuration_store": f"zk:{address}/config",
        }
        with stage.sidecars("A", tmp_path, start=False, **stores) as (sidecar,):
            sidecar.start()
            time.sleep(2 * float(QUICK["store"]["session_timeout"][:-1]))
            assert sidecar.alive
            assert sidecar.answer("/livez") == (200, "ok\n")
            status, text = sidecar.answer("/readyz")
            assert status == 503
            assert address in text
            way.set_down(False)
            started = time.monotonic()
            sidecar.until(lambda: ready(sidecar), "it is ready", within=30)
            print(f"\nready {time.monotonic() - started:.1f} s after ZooKeeper came; before:\n{text}")  # noqa: T201
            assert sidecar.stop() == 0


@pytest.mark.nightly
def test_silent_for_longer_than_a_session(stage: Stage, tmp_path: Path) -> None:
    """ZooKeeper stops for 1.5 sessions during moves. After the deadline nothing is changed; later all work
    continues.
    """
    with stage.sidecars("AB", tmp_path, parameters=EAGER, store=SHORT) as sidecars:
        leader = until(lambda: leader_of(sidecars), "somebody leads", within=30)
        session = leader.state()["store"]["session_seconds"]
        until(stage.unloads, "the first move begins", within=60)
        stage.cluster.pause("zookeeper")
        paused_ms = time.time() * 1000
        try:
            time.sleep(1.5 * session)
            obstacle = leader.state()
        finally:
            resumed_ms = time.time() * 1000
            stage.cluster.resume("zookeeper")
        meanwhile = [item for item in stage.mutations() if paused_ms < item.wall_ms < resumed_ms]
        unloads = [item for item in meanwhile if item.method == "PUT"]
        last = max((item.wall_ms - paused_ms for item in meanwhile), default=0.0) / 1000
        print(  # noqa: T201
            f"\n{len(unloads)} unloads and {len(meanwhile) - len(unloads)} claims of moves begun before, the last one "
            f"{last:.1f} s after the stop (session {session:.1f} s); role then {obstacle['role']}"
        )
        # Those whose intent was written may still be called until our own deadline, which is before the session's.
        assert last <= session
        assert all(item.wall_ms <= paused_ms + 1000 for item in unloads), "no move begins without the store"
        assert not obstacle["store"]["connected"] or obstacle["role"] != "leader"
        until(lambda: leader_of(sidecars), "somebody leads again", within=40)
        until(lambda: all(ready(item) for item in sidecars), "all are ready again", within=40)
        until(lambda: stage.max_mean() <= 1.25, "the load is even", within=120)
        assert all(item.alive for item in sidecars), "nobody was restarted"
