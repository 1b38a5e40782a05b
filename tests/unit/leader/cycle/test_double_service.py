"""A bundle that two brokers serve: reported once and at the end, and not moved meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.leader.cycle.double_service import DoubleServiceWatch
from bundlekeel.model.codes import Code
from bundlekeel.model.double_service import ServedTwice
from bundlekeel.model.errors import Conflict
from bundlekeel.ports import RawClusterView
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.records.notification_texts import NotificationTexts
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, WallClock

B1, B2, _ = BROKERS


def served(bundle: str, brokers: tuple[str, ...] = (B1, B2)) -> ServedTwice:
    return ServedTwice(bundle=bundle, brokers=brokers, topics=3, since_ms=1_000, confirmed_ms=9_000)


def test_it_is_reported_once_and_at_the_end() -> None:
    records: list[Mapping[str, Any]] = []
    telemetry = PrometheusTelemetry()
    watch = DoubleServiceWatch(records.append, telemetry)
    texts = NotificationTexts(cluster="c", member=lambda: "m", leads=lambda: True)
    for wall_ms, bundles in ((10_000, ()), (11_000, ("t/n/x",)), (12_000, ("t/n/x", "t/n/y")), (61_000, ("t/n/y",))):
        items = tuple(served(bundle) for bundle in bundles)
        view = RawClusterView(
            wall_ms=wall_ms, boot=0.0, generation=1, mode="modular", reports=(), endpoints={}, served_twice=items
        )
        watch.look(view, leading=True)
        assert f"bundlekeel_bundles_served_twice {len(items)}.0" in telemetry.render("text/plain")[0].decode()
    assert [(item["event"], item["bundles"], item["brokers"]) for item in records] == [
        ("appeared", ["t/n/x"], [B1, B2]),
        ("appeared", ["t/n/y"], [B1, B2]),
        ("gone", ["t/n/x"], [B1, B2]),
    ]
    watch.look(replace(view, served_twice=()), leading=False)
    assert len(records) == 3, "a follower reads no counters, so it does not know whether the fault is over"
    assert records[-1]["sentence"] == "ServedTwice t/n/x is gone after 60 s"
    notifications = [texts.of(item)[0] for item in records]
    assert [item.severity for item in notifications] == ["critical", "critical", "info"]
    assert notifications[0].reason == "ServedTwice" and notifications[0].details["remedy"]


async def test_its_moves_stop() -> None:
    """The leader moves other bundles, `why` explains it, and an operator's request is refused."""
    cluster = FakeCluster(clock=WallClock())
    sidecar = await FakeSidecar(cluster).lead()
    largest = max(cluster.shares, key=lambda name: cluster.shares[name])
    cluster.source.served_twice = (served(largest),)
    cluster.publish()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.outcomes
    assert largest not in {outcome.bundle for outcome in report.outcomes}
    answer = await sidecar.service.why(largest)
    assert [item.code for item in answer.codes][:1] == [Code.SERVED_TWICE.value]
    with pytest.raises(Conflict, match="ServedTwice"):
        await sidecar.service.requests.transfer(largest, to=B2, execute=True, reason="r", by="ann")


async def test_planned_moves_do_not_start() -> None:
    """The moves of a source run one after another, and the first one can take a minute."""
    cluster = FakeCluster(clock=WallClock())
    sidecar = await FakeSidecar(cluster).lead()

    def detect(_bundle: str) -> None:
        assert sidecar.observer.picture is not None
        twice = tuple(map(served, cluster.shares))
        sidecar.observer.picture = replace(sidecar.observer.picture, served_twice=twice)

    cluster.model.after_unload = detect
    report = await sidecar.cycle.turn()
    codes = [outcome.code for outcome in report.outcomes]
    assert len(codes) > 1 and set(codes[1:]) == {Code.SERVED_TWICE}
