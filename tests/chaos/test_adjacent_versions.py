"""Sidecars of two versions beside the same brokers, as during an upgrade: each leads, acts and hears people in turn."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from dev.sidecar import Sidecar, leader_of
from tests.chaos.stage import EAGER, Stage, ready, until
from tests.chaos.test_leader_killed import check_nothing_twice

pytestmark = [pytest.mark.nightly, pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
# What went out last before this version; to be moved on with each release.
PREVIOUS = "285e3eb"
WHY = {"reason": "upgrade", "by": "test"}
# Words of a sidecar that met a document it could not read, or a bug.
TROUBLE = ("another version", "cannot be read", "Traceback", "BrokenRecord")


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the previous version, from this repository's history."""
    archive = subprocess.run(["git", "archive", PREVIOUS, "service"], cwd=ROOT, capture_output=True, check=False)
    assert archive.returncode == 0, f"the history of this clone ends before {PREVIOUS}: git fetch --unshallow"
    directory = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(directory, filter="data")
    return directory / "service"


def paused(item: Sidecar) -> bool:
    """Whether it knows that somebody has stopped everything."""
    return bool(item.state()["paused"])


@pytest.mark.parametrize("old_leads", [True, False], ids=["upgrade", "downgrade"])
def test_a19_adjacent_versions(stage: Stage, tmp_path: Path, previous: Path, old_leads: bool) -> None:
    """The first leads and moves, is killed, and the other takes the term, the open moves and operators' requests
    over.
    """
    with stage.sidecars("AB", tmp_path, start=False, parameters=EAGER) as pair:
        first, second = pair
        (first if old_leads else second).sources = previous
        first.start()
        until(lambda: leader_of(pair) is first, "the first one leads", within=60)
        second.start()
        until(lambda: ready(second), "the second one follows", within=60)
        epoch = first.state()["epoch"]
        until(stage.unloads, "the first one moves", within=120)
        first.kill()
        until(lambda: leader_of(pair) is second, "the second one leads", within=30)
        assert second.state()["epoch"] == epoch + 1
        until(lambda: stage.max_mean() <= 1.25 and not stage.intents(), "the load is even", within=120)
        check_nothing_twice(stage, second)
        first.start()
        until(lambda: ready(first), "the first one is back and follows", within=60)
        moved = {item.bundle for item in stage.unloads()}
        until(lambda: {move["bundle"] for move in first.moves()} >= moved, "it knows of all moves", within=30)
        for asked, other in ((first, second), (second, first)):
            assert asked.post("/api/v1/pause", WHY).status_code == 200
            until(lambda: all(paused(item) for item in pair), "both know of the pause", within=15)
            assert other.post("/api/v1/resume", WHY).status_code == 200
            until(lambda: not any(paused(item) for item in pair), "both know of its end", within=15)
        said = [(item.name, word) for item in pair for word in TROUBLE if word in item.log.read_text()]
        assert said == []
