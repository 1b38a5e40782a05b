"""Policies on a real cluster: the sidecar reads them, keeps to them, and answers for them as the cluster does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from dev.cluster import Cluster
from dev.sidecar import Sidecar, bundlekeel
from dev.traffic import Traffic
from dev.traffic.admin import ensure_namespace, request
from tests.chaos.stage import EAGER, Scene, admin, make_plan, traffic_spec, until
from tests.integration.conftest import RealWorld

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHEDDING = "loadBalancerSheddingEnabled"
APART = ("iso/apart1", "iso/apart2")
PLAIN = ("iso/plain1", "iso/plain2", "iso/plain3", "iso/plain4")


class Policed:
    """A cluster whose first broker belongs to the namespaces `iso/gold*` alone, and two namespaces kept apart."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.base = f"{cluster.brokers[0].web_url}/admin/v2"
        self.first, *self.others = (broker.broker_id for broker in cluster.brokers)
        clusters = json.loads(self._ask("GET", "clusters"))
        self.name = next(name for name in clusters if name != "global")

    def _ask(self, method: str, path: str, body: object | None = None) -> bytes:
        return admin(self.cluster.brokers[0], method, path, body)

    def impose(self) -> None:
        """Make the namespaces, the policy, the group and a failure domain; the brokers shed nothing meanwhile."""
        self._ask("POST", f"brokers/configuration/{SHEDDING}/false")
        for namespace in ("iso/gold", "iso/gold2", *APART, *PLAIN):
            # One bundle per anti-affinity namespace. Brokers place a second bundle of a namespace (of its system topic)
            # next to the other namespace of the group, because they count the namespace itself, too.
            ensure_namespace(self.cluster.brokers[0].web_url, namespace, 1 if namespace in APART else 4)
        policy = {
            "namespaces": ["iso/gold\\d?"],
            "primary": [self.first.rpartition(":")[0].replace(".", "\\.")],
            "secondary": [],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": "1", "usage_threshold": "100"},
            },
            "unload_scope": "none",
        }
        self._ask("POST", f"clusters/{self.name}/namespaceIsolationPolicies/gold", policy)
        self._ask("POST", f"clusters/{self.name}/failureDomains/rack", {"brokers": [self.first]})
        for namespace in APART:
            # The bare text: a JSON string would be stored with its quotes.
            answer = httpx.post(
                f"{self.base}/namespaces/{namespace}/antiAffinity",
                content="Apart",
                headers={"Content-Type": "application/json"},
                follow_redirects=True,
            )
            assert answer.status_code in (200, 204), answer.text

    def lift(self) -> None:
        """Take everything back that another test would notice."""
        for namespace in APART:
            self._ask("DELETE", f"namespaces/{namespace}/antiAffinity")
        self._ask("DELETE", f"clusters/{self.name}/failureDomains/rack")
        self._ask("DELETE", f"clusters/{self.name}/namespaceIsolationPolicies/gold")
        self._ask("DELETE", f"brokers/configuration/{SHEDDING}")

    def unload(self, namespace: str) -> None:
        """Unload a namespace. Its next lookup places it again."""
        self._ask("PUT", f"namespaces/{namespace}/unload")

    def lookup(self, topic: str) -> str:
        """A client's lookup, which assigns; the broker id it ends at. It asks again, as clients do, where the broker
        could not acquire the bundle: it is being given up by another one."""

        def read() -> bytes | None:
            status, answer = request("GET", f"{self.base[:-9]}/lookup/v2/topic/{topic.replace('://', '/')}")
            assert status == 200 or b"Failed to acquire ownership" in answer, answer[:300]
            return answer if status == 200 else None

        return urlsplit(json.loads(until(read, f"{topic} is found", within=20))["httpUrl"]).netloc

    def loaded(self, topic: str) -> str:
        """Return the broker of a topic after a lookup, with the topic loaded: brokers report only bundles with a loaded
        topic.
        """
        broker = self.lookup(topic)
        path = f"http://{broker}/admin/v2/{topic.replace('://', '/')}/subscription/kept"
        answer = httpx.put(path, follow_redirects=True, timeout=30)
        assert answer.status_code in (204, 409), answer.text
        return broker


@pytest.fixture
def policed(modular_cluster: Cluster) -> Iterator[Policed]:
    """The policies, for one test."""
    value = Policed(modular_cluster)
    try:
        value.impose()
        yield value
    finally:
        value.lift()


def traffic(cluster: Cluster, namespace: str, bundles: int, rate: float) -> Traffic:
    """Steady traffic, the same on every bundle of a namespace."""
    return Traffic(traffic_spec(cluster, namespace, bundles=bundles, rate_total_msgs=rate, zipf=0.0))


def assigned(sidecar: Sidecar, topic: str) -> dict[str, Any]:
    """Return the broker that the sidecar would assign the topic to. The request assigns nothing."""
    answer = sidecar.post("/api/v1/assignments", {"topic": topic})
    assert answer.status_code == 200, answer.text
    (assignment,) = answer.json()
    assert assignment["state"] == "unowned" == sidecar.get("/api/v1/where", name=topic)[0]["state"]
    assert isinstance(assignment, dict)
    return assignment


async def test_the_records_are_where_we_look_for_them(policed: Policed, real_world: RealWorld) -> None:
    """Policies of the admin API are read from the znodes, and re-read after a change."""
    records = await real_world.metadata.policies(policed.name, ["iso/gold", *APART])
    (policy,) = records.isolation
    assert (policy.name, policy.namespaces, policy.min_limit) == ("gold", ("iso/gold\\d?",), 1)
    assert records.failure_domains == {"rack": (policed.first,)}
    assert records.anti_affinity == dict.fromkeys(APART, "Apart")
    assert not records.unreadable


def test_moves_and_assignments_keep_to_policies(policed: Policed, tmp_path: Path) -> None:
    """Only the bundles without a policy move, and only to shared brokers; a lookup lands where we said it may."""
    cluster, shared = policed.cluster, set(policed.others)
    with traffic(cluster, "iso/gold", 4, 200.0), traffic(cluster, "iso/busy", 8, 400.0) as busy:
        scene = Scene(cluster, busy)
        scene.gather()
        # What the test itself unloads counts as moved by others; while it cools down no other code of it is shown.
        with scene.sidecars("A", tmp_path, parameters=EAGER | {"cool_down_seconds": 1}) as (sidecar,):
            until(lambda: len(sidecar.moves()) >= 3, "bundles without a policy move", within=40)
            gold_stays(policed, sidecar)
            apart_stays_apart(policed, sidecar)
            for namespace in ("iso/gold2", *PLAIN):
                legal = {policed.first} if "gold" in namespace else shared
                topic = f"persistent://{namespace}/orders"
                target = assigned(sidecar, topic)
                policies = next(step for step in target["steps"] if step["name"] == "policies")
                assert set(policies["candidates"]) == legal
                assert target["chosen"] in target["candidates"]
                assert policed.lookup(topic) in target["candidates"]
            moves = sidecar.moves()
            assert {move["bundle"].rpartition("/")[0] for move in moves} == {"iso/busy"}
            assert {move["destination"] for move in moves} <= shared
            output = bundlekeel("where", "iso/gold2", "--if-unowned", "--socket", str(sidecar.socket), "-o", "json")
            assert {row["chosen"] for row in json.loads(output.stdout)} == {policed.first}


def gold_stays(policed: Policed, sidecar: Sidecar) -> None:
    """Scenario 12: the only legal broker is the hottest one, and nothing is unloaded from it."""
    rows = sidecar.get("/api/v1/bundles", namespace="iso/gold")
    assert {row["broker"] for row in rows} == {policed.first}
    assert {row["code"] for row in rows} == {"PolicyForbids"}
    plan = make_plan(sidecar)
    assert not [move for move in plan["moves"] if move["bundle"].startswith("iso/gold/")]
    why = sidecar.get(f"/api/v1/bundles/{rows[0]['bundle']}/why")
    assert [item["code"] for item in why["codes"]] == ["PolicyForbids"]


def apart_stays_apart(policed: Policed, sidecar: Sidecar) -> None:
    """The second namespace of the group goes where the first is not, and then neither may go to the other."""
    topics = [f"persistent://{namespace}/t" for namespace in APART]
    first = policed.loaded(topics[0])
    assert first in policed.others
    until(lambda: sidecar.get("/api/v1/bundles", namespace=APART[0]), "the first one is reported", within=20)
    target = assigned(sidecar, topics[1])
    (other,) = set(policed.others) - {first}
    assert target["candidates"] == [other]

    def lands() -> bool:
        # The brokers' leader, which places bundles, reads the same report at another moment than we do. It places a
        # bundle on the same broker again until that broker has reported it.
        if policed.loaded(topics[1]) == other:
            return True
        until(lambda: sidecar.get("/api/v1/bundles", namespace=APART[1]), "the second one is reported", within=60)
        policed.unload(APART[1])
        return False

    until(lands, f"it is placed on {other}", within=90)

    example: dict[str, object] = {"what": "neither may go to the other"}

    def bound() -> bool:
        rows = [row for namespace in APART for row in sidecar.get("/api/v1/bundles", namespace=namespace)]
        ages = {row["broker"]: row["report_age_seconds"] for row in sidecar.get("/api/v1/brokers")}
        example.update(rows=rows, report_ages=ages, verdicts=sidecar.get("/api/v1/verdicts", limit=1))
        return len(rows) == 2 and {row["code"] for row in rows} == {"PolicyForbids"}

    until(bound, example, within=60)
