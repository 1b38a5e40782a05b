"""A broker drained under traffic: empty within a minute, nothing lost, and what lands there afterwards leaves again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.model.names import is_system_bundle
from dev.cluster import BrokerInfo, Cluster, ClusterSpec
from dev.sidecar import Sidecar, bundlekeel
from dev.traffic import Traffic
from dev.traffic.admin import ensure_namespace, place_all_on, request
from tests.chaos.stage import PATIENT, Scene, admin, lead_and_follow, taken_over, traffic_spec, until
from tests.chaos.zk import kazoo, owner_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

BUNDLES = 30
IDLE = 4
EMPTY_SECONDS = 60.0
LEAVES_SECONDS = 15.0
LANDINGS = 5
WHO = {"reason": "disks", "by": "test"}
# The stage's cycles are quick. The results are valid for the default ones, too.
STOCK_CYCLES = {"interval": "10s"}


class Served(Scene):
    """A scene whose owners are asked of the brokers themselves, in either load manager."""

    def owners(self) -> dict[str, str]:
        """Return the broker that claims each busy bundle, "" without one."""
        serving = {bundle: broker.broker_id for broker in self.cluster.brokers for bundle in owned(broker)}
        return {plan.bundle: serving.get(plan.bundle, "") for plan in self.plans}


@contextmanager
def open_scene(cluster: Cluster, directory: Path) -> Iterator[Scene]:
    """Thirty busy bundles and a few idle ones on the first broker; the brokers' own shedding is off."""
    first = cluster.brokers[0]
    traffic = Traffic(traffic_spec(cluster, "drain/traffic", bundles=BUNDLES, rate_total_msgs=300.0, zipf=0.4))
    with taken_over(cluster, directory), closing(traffic):
        scene = Served(cluster, traffic)
        ensure_namespace(first.web_url, "drain/idle", IDLE)
        topics = [f"persistent://drain/idle/never-made-{number}" for number in range(4 * IDLE)]
        place_all_on(first.broker_id, first.web_url, topics)
        traffic.place_all_on(first.broker_id)
        traffic.start()
        yield scene


@pytest.fixture
def scene(modular_cluster: Cluster, tmp_path: Path) -> Iterator[Scene]:
    """On brokers of the modular load manager."""
    with open_scene(modular_cluster, tmp_path) as opened_scene:
        yield opened_scene


def owned(broker: BrokerInfo) -> set[str]:
    """Return the bundles that the broker reports as its own, without system bundles."""
    cluster = ClusterSpec().cluster_name
    names = json.loads(admin(broker, "GET", f"brokers/{cluster}/{broker.broker_id}/ownedNamespaces"))
    return {name for name in names if not is_system_bundle(name)}


def drain_of(sidecar: Sidecar, broker: BrokerInfo) -> dict[str, Any]:
    """Return the drain's row of this sidecar."""
    rows = (sidecar.get("/api/v1/operations") or {}).get("drains") or []
    return next((row for row in rows if row["broker"] == broker.broker_id), {})


def says_empty(sidecar: Sidecar, broker: BrokerInfo) -> bool:
    """Whether this sidecar calls the broker empty."""
    return bool(drain_of(sidecar, broker).get("state") == "empty")


def stir(scene: Scene, number: int) -> None:
    """Cause the usual events of a cluster: a namespace is created and used, and bundles are unloaded without a
    destination.
    """
    web_url = scene.cluster.brokers[1].web_url
    ensure_namespace(web_url, f"drain/new-{number}", 8)
    for topic in range(8):
        request("GET", f"{web_url}/lookup/v2/topic/persistent/drain/new-{number}/t{topic}")
    for plan in scene.plans[number % BUNDLES :: 6]:
        request("PUT", f"{web_url}/admin/v2/namespaces/{plan.bundle}/unload")


def test_a_broker_is_drained_and_kept_empty(scene: Scene, tmp_path: Path) -> None:
    check_drained(scene, tmp_path)


def check_drained(scene: Scene, directory: Path) -> None:
    """Asked of a follower: dry first; empty within 60 s, nothing lost; then whatever lands leaves within 15 s."""
    first = scene.cluster.brokers[0]
    with scene.sidecars("AB", directory, parameters=PATIENT, cycle=STOCK_CYCLES) as sidecars:
        leader, (follower,) = lead_and_follow(sidecars)
        path = f"/api/v1/brokers/{first.broker_id}/drain"

        def agreed() -> dict[str, Any] | None:
            body = follower.post(path, WHO).json()
            return body if body["bundles"] == len(owned(first)) else None

        # The broker's bundles are listed once per cycle.
        dry = until(agreed, "the dry run counts what the broker owns", within=30)
        assert dry["dry_run"] is True
        assert len(owned(first)) >= BUNDLES
        response = follower.post(path, {**WHO, "execute": True})
        assert response.status_code == 200, response.text
        started = time.monotonic()
        until(lambda: not owned(first), "the broker owns nothing", within=EMPTY_SECONDS)
        seconds = time.monotonic() - started
        for sidecar in sidecars:
            until(partial(says_empty, sidecar, first), "every replica says so", within=30)
        until(lambda: "" not in scene.owners().values(), "every busy bundle is served", within=30)
        assert first.broker_id not in scene.owners().values()
        stays = _landings(scene, first)
        row = drain_of(leader, first)
        report = scene.traffic.stop()
        print(  # noqa: T201
            f"\n{dry['bundles']} bundles left in {seconds:.1f} s; {len(stays)} landed and left again after "
            f"{', '.join(f'{item:.1f}' for item in sorted(stays))} s; {row['bundle_seconds']:.0f} bundle-seconds; "
            f"traffic: sent {report.sent}, lost {report.lost}, longest gap {report.publish_gap_seconds:.2f} s"
        )
        assert len(stays) >= LANDINGS
        assert max(stays) <= LEAVES_SECONDS
        assert report.lost == 0
        assert row["bundle_seconds"] > 0
        answer = follower.post(f"/api/v1/brokers/{first.broker_id}/uncordon", WHO)
        assert answer.json()["ended"] == ["drain"]


def _landings(scene: Scene, first: BrokerInfo) -> list[float]:
    """Stir until some bundles have landed on the broker, and how long each stayed (seconds)."""
    since: dict[str, float] = {}
    stays: list[float] = []
    deadline = time.monotonic() + 240
    rounds = 0
    while time.monotonic() < deadline and (since or len(stays) < LANDINGS):
        if not since and len(stays) < LANDINGS:
            stir(scene, rounds)
            rounds += 1
        now, here = time.monotonic(), owned(first)
        for bundle in here - since.keys():
            since[bundle] = now
        for bundle in since.keys() - here:
            stays.append(now - since.pop(bundle))
        time.sleep(0.2)
    assert not since, f"still there: {sorted(since)}"
    return stays


def test_manually_over_the_real_brokers(scene: Scene, tmp_path: Path) -> None:
    """A transfer and an unload from the command line land where the dry run said; the journal has them."""
    first, second = scene.cluster.brokers[:2]
    bundle, other = scene.plans[0].bundle, scene.plans[1].bundle
    with scene.sidecars("A", tmp_path, parameters=PATIENT) as (sidecar,):
        where = ["--socket", str(sidecar.socket), "--reason", "test", "--by", "test", "-o", "json"]
        dry = bundlekeel("transfer", bundle, "--to", second.broker_id, *where, within=60)
        assert dry.returncode == 0, dry.stderr
        assert json.loads(dry.stdout)["dry_run"] is True
        done = bundlekeel("transfer", bundle, "--to", second.broker_id, "--yes", "--wait", *where, within=120)
        assert (done.returncode, json.loads(done.stdout)["ended"]["state"]) == (0, "done"), done.stderr
        unloaded = json.loads(bundlekeel("unload", other, "--yes", "--wait", *where, within=120).stdout)
        with kazoo(scene.cluster) as client:
            assert owner_of(client, bundle) == second.broker_id
            assert owner_of(client, other) == unloaded["target"] != first.broker_id
        again = bundlekeel("transfer", bundle, "--to", first.broker_id, *where, within=60)
        assert (again.returncode, "CoolDown" in again.stdout) == (4, True)


@pytest.mark.nightly
def test_j08_the_largest_bundle_is_split_and_its_namespace_unloaded(scene: Scene, tmp_path: Path) -> None:
    """Halved by the broker's own algorithm, which needs no two topics, the children elsewhere; then every bundle off
    its broker, cycle by cycle; nothing is lost."""
    with scene.sidecars("A", tmp_path, parameters=PATIENT) as (sidecar,):
        where = ["--socket", str(sidecar.socket), "--reason", "test", "--by", "test", "-o", "json"]
        largest = ["split", "drain/traffic/LARGEST", "--algorithm", "range_equally_divide", "--unload"]
        split = json.loads(bundlekeel(*largest, "--yes", "--wait", *where, within=240).stdout)
        assert split["ended"]["state"] == "done", split["ended"]
        assert split["bundle"] in {plan.bundle for plan in scene.plans}
        assert {row["bundle"] for row in split["ended"]["moves"]} == {row["bundle"] for row in split["children"]}
        before = {bundle: broker.broker_id for broker in scene.cluster.brokers for bundle in owned(broker)}
        done = bundlekeel("unload", "drain/traffic", "--yes", "--wait", *where, within=400)
        unloaded = json.loads(done.stdout)
        moved = [row for row in unloaded["ended"]["moves"] if row["outcome"] == "done"]
        assert (done.returncode, len(moved)) == (0, len(unloaded["moves"])), unloaded["ended"]
        assert len(moved) >= BUNDLES - 1
        after = {bundle: broker.broker_id for broker in scene.cluster.brokers for bundle in owned(broker)}
        assert all(after[row["bundle"]] == row["landed_on"] != before[row["bundle"]] for row in moved)
        cycles = {record["cycle"] for record in sidecar.records() if record["kind"] == "move"}
        assert cycles == {split["task"], unloaded["task"]}
    assert scene.traffic.stop().lost == 0
