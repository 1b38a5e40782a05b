"""In `observe` and `recommend` nothing is changed: every request of ours is seen, and every write in ZooKeeper.

The recorder listens where the brokers advertise themselves; that no connection goes past it is looked at, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import psutil
import pytest

from dev.sidecar import Sidecar
from tests.chaos.stage import EAGER, Stage, make_plan, until
from tests.chaos.zk import audited_writes, session_ids, sessions_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

CYCLES = 20
# Requests that may leave the process: reads without side effects (pulsar.md), with their query keys.
READS = (
    re.compile(r"/admin/v2/brokers/configuration/(runtime|values)"),
    re.compile(
        r"/admin/v2/namespaces/[^/]+/[^/]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}/topicHashPositions(\?authoritative=\w+)?"
    ),
    re.compile(r"/admin/v2/brokers/ready"),
    re.compile(r"/admin/v2/broker-stats/mbeans"),
    # Counters: of a modular broker, and only until its settings show that it computes its statistics every second.
    re.compile(r"/metrics/"),
)
# Who else talks to the brokers: the brokers themselves, and the test.
OTHERS = ("Pulsar-Java-", "traffic-generator/")


@pytest.mark.parametrize("mode", [pytest.param("observe", marks=pytest.mark.nightly), "recommend"])
def test_nothing_is_changed(stage: Stage, mode: str, tmp_path: Path) -> None:
    """Twenty cycles, dry runs, `where`, assignments and `doctor` on a cluster that cries for moves: only reads."""
    start_byte = stage.cluster.zk_audit_log.stat().st_size
    strangers = session_ids(stage.cluster)
    quick = {"parameters": EAGER, "cycle": {"interval": "0.5s"}}
    with stage.sidecars("AB", tmp_path, mode=mode, **quick) as sidecars:
        pids = [item.pid for item in sidecars]
        ours: set[str] = set()
        addresses: set[tuple[str, int]] = set()

        def enough() -> bool:
            ours.update(sessions_of(stage.cluster, pids))
            addresses.update(remote_addresses(pids))
            return all(item.metric("cycles_total") >= CYCLES for item in sidecars)

        until(enough, f"{CYCLES} cycles", within=120)
        for item in sidecars:
            assert len(make_plan(item)["moves"]) > 0
            assert item.get("/api/v1/where", name=stage.plans[0].topic)[0]["broker"]
            placed = item.post("/api/v1/assignments", {"topic": stage.plans[0].topic})
            assert placed.json()[0]["chosen"], "the pipeline is run here: a lookup would assign"
            assert item.get("/api/v1/doctor")
            assert item.state()["acting_obstacle"] == {"observe": "ObserveOnly", "recommend": "RecommendOnly"}[mode]
        until(lambda: len(stage.requests()) == counted(sidecars), "the counter and the recorder agree", within=20)
        requests = stage.requests()
        print(f"\n{mode}: {len(requests)} requests, all counted; {len(ours)} sessions")  # noqa: T201
        assert len(requests) > 0
        for request in requests:
            assert request.method == "GET", request
            assert any(route.fullmatch(readable(request.path, request.query)) for route in READS), request
        agents = {request.user_agent for request in stage.recorder.requests()}
        assert {agent for agent in agents if not agent.startswith(OTHERS)} == {
            request.user_agent for request in requests
        }
        behind = {(broker.bind_host, broker.web_port) for broker in stage.cluster.brokers}
        assert not addresses & behind, "nothing goes past the recorder"
        assert addresses & {(broker.advertised_host, broker.web_port) for broker in stage.cluster.brokers}
    check_writes(stage, start_byte, ours, strangers)
    assert set(stage.owners().values()) == {stage.cluster.brokers[0].broker_id}


def readable(path: str, query: str) -> str:
    """Path and query, readable."""
    return f"{unquote(path)}?{query}" if query else unquote(path)


def counted(sidecars: list[Sidecar]) -> float:
    """Return how many requests the sidecars themselves have counted."""
    name = "admin_requests_total"
    return sum(item.metric(name) - item.metric(name, code="unreachable") for item in sidecars)


def remote_addresses(pids: list[int]) -> set[tuple[str, int]]:
    """Return the addresses to which these processes are connected now."""
    connections = [connection for pid in pids for connection in psutil.Process(pid).net_connections("tcp")]
    return {(connection.raddr.ip, connection.raddr.port) for connection in connections if connection.raddr}


def check_writes(stage: Stage, start_byte: int, ours: set[str], strangers: set[str]) -> None:
    """Our sessions wrote below our root only; and whoever wrote elsewhere was there before us."""
    writes = audited_writes(stage.cluster.zk_audit_log, since_byte=start_byte)
    root = "/pulsar/bundlekeel"
    mine = [write for write in writes if write.session in ours]
    assert len(ours) >= 2
    assert mine
    assert {write.path for write in mine if not f"{write.path}/".startswith(f"{root}/")} == set()
    elsewhere = {write.session for write in writes if not f"{write.path}/".startswith(f"{root}/")}
    assert elsewhere <= strangers
    print(f"{len(mine)} writes below {root}, {len(writes) - len(mine)} of others meanwhile")  # noqa: T201
