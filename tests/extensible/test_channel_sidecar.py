"""A real sidecar on brokers whose channel is in the metadata store: what a person sees of the channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from dev.cluster import Cluster
from dev.sidecar import Sidecar, bundlekeel, running
from tests.support.channel_cluster import BrokerCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def bundle(store_cluster: Cluster) -> tuple[str, str, str]:
    """A topic, its bundle, and who owns it."""
    brokers = BrokerCluster(store_cluster)

    async def make() -> tuple[str, str, str]:
        namespace = await brokers.make_namespace(bundles=1)
        topic = f"persistent://{namespace}/t"
        return topic, f"{namespace}/0x00000000_0xffffffff", await brokers.look_up(topic)

    return asyncio.run(make())


@pytest.fixture(scope="module")
def sidecar(store_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """One that follows the channel."""
    directory = tmp_path_factory.mktemp("sidecar")
    with running(store_cluster, ["a"], directory, mode="recommend") as (one,):
        one.until(lambda: (one.get("/api/v1/channel") or {}).get("up"), "it follows the channel", within=90)
        one.until(lambda: one.state().get("cycle"), "a first cycle", within=90)
        yield one


def ask(sidecar: Sidecar, *arguments: str, code: int = 0) -> Any:
    """A command's answer as JSON."""
    done = bundlekeel(*arguments, "-o", "json", "--socket", str(sidecar.socket), within=120)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def entries(sidecar: Sidecar, bundle: str) -> list[dict[str, Any]]:
    """Return the owned bundles of the bundle's namespace, once the sidecar reports one."""
    entries_read: list[dict[str, Any]] = []

    def is_listed() -> bool:
        entries_read[:] = sidecar.get("/api/v1/channel/bundles", namespace=bundle.rpartition("/")[0], state="Owned")
        return bool(entries_read)

    sidecar.until(is_listed, f"it sees {bundle} owned", within=60)
    return entries_read


def test_the_channel_is_told(sidecar: Sidecar, bundle: tuple[str, str, str]) -> None:
    """Over HTTP, on the command line, in the metrics."""
    _, name, owner = bundle
    summary = sidecar.get("/api/v1/channel")
    assert (summary["variant"], summary["obstacle"], summary["findings"]) == ("metadata_store", "", {})
    assert summary["deadlines"]["in_flight_ms"] == 30_000
    assert sidecar.get("/api/v1/channel/findings") == []
    (row,) = entries(sidecar, name)
    assert (row["bundle"], row["owner"], row["destination"]) == (name, owner, owner)
    assert ask(sidecar, "channel")["channel"]["up"]
    assert sidecar.metric("channel_up", variant="metadata_store") == 1
    assert sidecar.metric("channel_bundles", state="Owned") >= 1


def test_where_and_why_name_the_entry(sidecar: Sidecar, bundle: tuple[str, str, str]) -> None:
    """Asked for the topic, its bundle is named, with its entry in the channel; also without a sidecar."""
    topic, name, owner = bundle
    assert entries(sidecar, name)
    offline = bundlekeel("where", topic, "-o", "json", "-c", str(sidecar.config), within=120)
    assert offline.returncode == 0, offline.stderr
    for (row,) in (sidecar.get("/api/v1/where", name=topic), json.loads(offline.stdout)):
        assert (row["bundle"], row["broker"], row["state"]) == (name, owner, "owned")
        assert (row["channel"]["state"], row["channel"]["destination"]) == ("Owned", owner)
    answer = ask(sidecar, "why", topic)
    assert (answer["bundle"], answer["channel"]["owner"], answer["findings"]) == (name, owner, [])


def test_doctor_checks_the_channel(sidecar: Sidecar) -> None:
    """In the sidecar and in a process of its own."""
    alone = bundlekeel("doctor", "-o", "json", "-c", str(sidecar.config), within=120)
    for checks in (sidecar.get("/api/v1/doctor"), json.loads(alone.stdout)):
        channel = {row["name"]: row["ok"] for row in checks if "channel" in row["name"]}
        assert channel == {"ownership channel": True, "channel variant": True, "channel findings": True}
