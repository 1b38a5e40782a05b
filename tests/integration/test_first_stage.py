"""A bad proposal for one namespace of a real cluster: it moves bundles there, is reverted, and nothing else moves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.model.names import namespace_of
from dev.cluster import Cluster
from dev.sidecar import Sidecar
from dev.traffic import Traffic
from tests.chaos.stage import PATIENT, Scene, taken_over, traffic_spec, until
from tests.support.threshold_cases import as_bytes, document, proposed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

TRIED, OTHER = "stage/tried", "stage/other"
BUNDLES = 8
WHO = {"reason": "test", "by": "test"}
# Three moves are more than this evidence allows in the first minute, and the imbalance asks for about five.
BAD = {"move_price": proposed(10.0, PATIENT["move_price"])}


@pytest.fixture
def scenes(modular_cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Scene, Scene]]:
    """Steady traffic on two namespaces of the same size, all on the first broker; brokers do not shed."""
    with taken_over(modular_cluster, tmp_path), ExitStack() as stack:
        scenes = []
        for namespace in (TRIED, OTHER):
            spec = traffic_spec(modular_cluster, namespace, bundles=BUNDLES, rate_total_msgs=150.0, zipf=0.0)
            traffic = Traffic(spec)
            traffic.place_all_on(modular_cluster.brokers[0].broker_id)
            scenes.append(Scene(modular_cluster, stack.enter_context(traffic)))
        for scene in scenes:
            scene.gather()
        yield scenes[0], scenes[1]


def test_a_bad_proposal_for_one_namespace_is_reverted_and_nothing_else_moves(
    scenes: tuple[Scene, Scene], tmp_path: Path
) -> None:
    """The settings move nothing, and the proposal moves at every imbalance although its evidence promises calm."""
    tried, other = scenes
    first = tried.cluster.brokers[0].broker_id
    folder = tmp_path / "proposals" / "2026-09-15T020000Z"
    folder.mkdir(parents=True)
    (folder / "thresholds.json").write_bytes(as_bytes(document(int(time.time() * 1000), BAD)))
    calibration = {
        "mode": "recommend",
        "uri": str(tmp_path / "proposals"),
        "interval": "1s",
        "trial": "240s",
        "trial_namespaces": [TRIED],
    }
    with tried.sidecars("A", tmp_path, parameters=PATIENT, calibration=calibration) as (sidecar,):
        until(lambda: thresholds(sidecar).get("document"), "the proposal is read", within=60)
        until(lambda: sidecar.metric("cycles_total") >= 3, "a few cycles", within=60)
        answer = sidecar.post("/api/v1/thresholds/adopt", {"force": True, **WHO})
        assert answer.status_code == 200, answer.text
        adopted = thresholds(sidecar)["adopted"]
        assert (adopted["namespaces"], adopted["values"]) == ([TRIED], {"move_price": 10.0})
        until(lambda: sidecar.metric("thresholds_first_stage") == 1, "the stage is a metric", within=10)
        until(lambda: thresholds(sidecar)["reverted"], "it is reverted", within=200)
        done = sidecar.moves()
        cycles = sidecar.metric("cycles_total")
        until(lambda: sidecar.metric("cycles_total") >= cycles + 5, "five cycles more", within=60)
        assert sidecar.moves() == done
        view = thresholds(sidecar)
        assert view["adopted"] is None and [row["by"] for row in view["reverted"]] == ["bundlekeel"]
        events = sidecar.get("/api/v1/journal", kind="adoption", limit=100)
        assert [row["what"] for row in events if row["what"] in ("adopted", "widened", "reverted")] == [
            "adopted",
            "reverted",
        ]
        assert sidecar.metric("thresholds_first_stage") == 0
    moved = {namespace_of(row["bundle"]) for row in done}
    print(f"\n{len(done)} moves, all in {moved}; {events[-1]['sentence']}")  # noqa: T201
    assert len(done) >= 3 and moved == {TRIED}
    assert set(other.owners().values()) == {first}
    assert set(tried.owners().values()) != {first}


def thresholds(sidecar: Sidecar) -> dict[str, Any]:
    """Return the state of the thresholds, or an empty dict without a response."""
    view = sidecar.get("/api/v1/thresholds")
    return view if isinstance(view, dict) else {}
