"""Half an hour at high speed: memory stays flat, file handles and threads stay as many as they were."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from dev.sidecar import Sidecar
from dev.traffic import AdminError
from tests.chaos.stage import EAGER, Stage, until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(3600)]

WARM_SECONDS, SOAK_SECONDS, LOOK_SECONDS = 300.0, 1800.0, 10.0
# What half an hour may add to a sidecar's memory, by the slope of all samples.
MEMORY_MIB = 8.0
# Connections come and go with what happens to run.
HANDLES = 10
QUICK = {
    "cycle": {"interval": "0.5s"},
    "parameters": {**EAGER, "cool_down_seconds": 10},
    # The test itself stirs, which a sidecar would take for a second balancer.
    "effects": {"heed_external_moves": False},
}


def sample(sidecar: Sidecar) -> tuple[float, int, int]:
    """MiB resident, file handles, threads."""
    process = psutil.Process(sidecar.pid)
    return process.memory_info().rss / 2**20, process.num_fds(), process.num_threads()


def stir(stage: Stage) -> None:
    """Everything on one broker again, so that there is always something to move."""
    try:
        stage.traffic.place_all_on(stage.cluster.brokers[0].broker_id)
    except AdminError:
        return


def test_a17_memory_threads_and_handles(stage: Stage, tmp_path: Path) -> None:
    """Cycles twice a second, moves all the time; the first minutes do not count."""
    samples: dict[str, list[tuple[float, int, int]]] = {"A": [], "B": []}
    with stage.sidecars("AB", tmp_path, **QUICK) as sidecars:
        until(stage.unloads, "the first move begins", within=60)
        began = time.monotonic()
        while (age := time.monotonic() - began) < WARM_SECONDS + SOAK_SECONDS:
            stir(stage)
            time.sleep(LOOK_SECONDS)
            if age >= WARM_SECONDS:
                for sidecar in sidecars:
                    samples[sidecar.name].append(sample(sidecar))
        moves = len(sidecars[0].moves())
    for name, rows in samples.items():
        memory, handles, threads = np.array(rows, dtype=float).T
        slope = float(np.polyfit(np.linspace(0.0, 1.0, len(memory)), memory, 1)[0])
        print(  # noqa: T201
            f"\n{name}: {memory[0]:.0f} -> {memory[-1]:.0f} MiB, {slope:+.1f} MiB by slope; file handles "
            f"{handles.min():.0f}..{handles.max():.0f}, threads {threads.min():.0f}..{threads.max():.0f}; {moves} moves"
        )
        assert slope <= MEMORY_MIB
        assert handles[-1] <= handles[0] + HANDLES
        assert threads.max() <= threads[0] + 1
    assert moves > 50
