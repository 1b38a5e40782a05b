"""The ground for fault schedules: the stage's cluster, three sidecars behind proxies of their own, and witnesses."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dev.sidecar import Sidecar, SidecarError, settings_for
from dev.traffic import AdminError
from tests.chaos.stage import CAPACITY, Stage, until
from tests.support.chaos.history import Rules
from tests.support.chaos.judging import judge
from tests.support.chaos.operator_requests import end_all
from tests.support.chaos.proxy import TcpProxy
from tests.support.chaos.runner import Ground, leads
from tests.support.chaos.schedule import Schedule
from tests.support.chaos.witness import StoreWitness

NAMES = ("A", "B", "C")
COOL_DOWN_SECONDS = 6.0
RULES = Rules(cool_down_seconds=COOL_DOWN_SECONDS, stayed_seconds=COOL_DOWN_SECONDS)
TARGETS = {
    "sidecar": NAMES,
    "store": ("zookeeper",),
    "broker": ("broker-1", "broker-2", "broker-3"),
    "bookie": ("bookie",),
    "admin": ("brokers",),
    "reads": ("brokers",),
    "request": ("people",),
}
# Everything quick, so that much happens in a schedule of a few seconds.
SETTINGS = {
    "capacity": CAPACITY,
    "cycle": {"interval": "1s"},
    "store": {"session_timeout": "3s", "call_timeout": "1s", "settle_after_outage": "1s"},
    "leadership": {"heartbeat": "0.5s"},
    "admin": {"read_timeout": "3s"},
    # The test itself puts bundles back between schedules.
    "effects": {"heed_external_moves": False},
    "parameters": {
        "move_price": 0,
        "host_usage_interval_seconds": 1,
        "cool_down_seconds": COOL_DOWN_SECONDS,
        # A broker that was killed must not leave the schedules after it without moves.
        "rollout_quiet_seconds": 2,
    },
}


@contextmanager
def open_ground(stage: Stage, directory: Path) -> Iterator[Ground]:
    """Three sidecars on the stage; they know their leader when this begins."""
    cluster, name = stage.cluster, f"chaos-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        proxies = {item: stack.enter_context(TcpProxy(cluster.zk_hosts)) for item in NAMES}
        witness = stack.enter_context(StoreWitness(cluster, f"/pulsar/bundlekeel/{name}"))
        sidecars = {}
        for item in NAMES:
            address = proxies[item].address
            stores = {"metadata_store": f"zk:{address}/pulsar", "configuration_store": f"zk:{address}/config"}
            settings = settings_for(cluster, item, directory, root=name, **{**SETTINGS, **stores})
            sidecars[item] = Sidecar(item, settings, directory)
            stack.callback(sidecars[item].close)
            sidecars[item].start(wait=False)
        ground = Ground(
            cluster=cluster,
            recorder=stage.recorder,
            witness=witness,
            sidecars=sidecars,
            proxies=proxies,
            owners=stage.owners,
        )
        until(lambda: leads(ground), "somebody leads", within=60)
        yield ground


def prepare(stage: Stage, ground: Ground) -> None:
    """Put all traffic on one broker and heal every process. No sidecar moves bundles meanwhile."""
    for name in ("zookeeper", "bookie", *(broker.name for broker in stage.cluster.brokers)):
        if stage.cluster.paused(name):
            stage.cluster.resume(name)
        if not stage.cluster.alive(name):
            stage.cluster.restart(name)
    for sidecar in ground.sidecars.values():
        if not sidecar.alive:
            sidecar.start(wait=False)
    until(lambda: leads(ground), "somebody leads", within=60)
    leader = next(iter(ground.sidecars.values()))
    assert leader.post("/api/v1/pause", {"reason": "between schedules", "by": "test"}).status_code == 200
    until(lambda: all(item.state().get("paused") for item in ground.sidecars.values()), "all know", within=60)
    for sidecar in ground.sidecars.values():
        end_all(sidecar)
    with contextlib.suppress(AdminError):
        # A bundle that an open move froze may stay where it is.
        stage.traffic.place_all_on(stage.cluster.brokers[0].broker_id)
    assert leader.post("/api/v1/resume", {"reason": "next schedule", "by": "test"}).status_code == 200


def carry_out(stage: Stage, ground: Ground, schedule: Schedule) -> None:
    """Run one schedule on the shared ground. Raises AssertionError, with the schedule and every violation, if a rule is
    broken.
    """
    prepare(stage, ground)
    try:
        history = ground.carry_out(schedule, RULES)
    except SidecarError as error:
        raise AssertionError(f"{schedule}\n{error}") from error
    verdicts = judge(history)
    print(  # noqa: T201
        f"\n{schedule}\n{len(history.attempts)} requests, {len(history.intents)} intents, {len(history.terms)} terms"
    )
    assert not verdicts, "\n".join(map(str, [schedule, *verdicts]))
