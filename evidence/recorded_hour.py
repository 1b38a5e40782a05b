"""Compare an hour of a real cluster with its back-test: `python -m evidence.recorded_hour --mode modular|extensible`.

Three brokers with a quarter of a core each serve 4,700 msg/s over 48 topics. Every ten minutes, the rates of the topics
(Zipf 1.1) are shuffled. One sidecar with default settings balances them and records its history. The back-test begins
with the owners of the first recorded cycle and uses the recorded settings.

The result is added to evidence/recorded_hour.jsonl. `python -m evidence.calibrated --write` publishes it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bundlekeel.planning.engine import PlanInput
from bundlekeel.planning.scores import weights_of
from bundlekeel.recalibration.backtest import CandidateMeasures, backtest
from bundlekeel.recalibration.backtest.events import events_of
from bundlekeel.recalibration.backtest.run import CandidateStep, add_balance
from bundlekeel.recalibration.backtest.search import PRESENT
from bundlekeel.recalibration.history.frames import input_of
from bundlekeel.recalibration.jobs.periods import RecordedCycle, periods_of, read
from bundlekeel.recalibration.parquet import ParquetStore
from dev.cluster import Cluster, ClusterSpec, open_cluster
from dev.markdown import table
from dev.pulsar_releases import find_release
from dev.sidecar import Sidecar, bundlekeel, running
from dev.traffic import Traffic, TrafficReport
from evidence.reaction.run import CORES, ZIPF, Options, traffic_spec

STORE: Final = Path(__file__).with_name("recorded_hour.jsonl")
SHUFFLE_SECONDS: Final = 600.0
# Publish and receive gaps that overlap this time around a move belong to the move, in seconds.
AROUND_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HourResult:
    """Result of one hour. `measured`, `predicted`: measures of the cluster and of the back-test. `alike`: share of the
    cycles in which the back-test had every bundle at its real broker. `cycles`: number of recorded cycles.
    """

    release: str
    mode: str
    measured: Mapping[str, float]
    predicted: Mapping[str, float]
    alike: float
    cycles: int


def record(cluster: Cluster, folder: Path, minutes: float) -> tuple[list[dict[str, Any]], TrafficReport]:
    """Let a sidecar balance the shuffled load and record its history in `folder`. Return its moves and the clients'
    report."""
    traffic = Traffic(traffic_spec(cluster, 1, Options(quiet_seconds=1.0)))
    topics, dice = [plan.topic for plan in traffic.prepare()], random.Random(1)
    weights = [1.0 / rank**ZIPF for rank in range(1, len(topics) + 1)]
    history = {"history": {"uri": str(folder / "history"), "wal": str(folder / "wal")}}
    with running(cluster, ["sidecar"], folder, start=False, capacity={}, **history) as (sidecar,), traffic:
        answer = bundlekeel("takeover", "-c", str(sidecar.config), "--yes", "--reason", "recorded hour")
        if answer.returncode != 0:
            raise RuntimeError(f"takeover failed:\n{answer.stdout}{answer.stderr}")
        sidecar.start()
        end = time.monotonic() + 60 * minutes
        while (left := end - time.monotonic()) > 0:
            dice.shuffle(weights)
            rate = traffic.spec.rate_total_msgs / sum(weights)
            traffic.set_rates({topic: rate * weight for topic, weight in zip(topics, weights, strict=True)})
            print(f"{left / 60:.0f} minutes left, {len(moves_of(sidecar))} moves", file=sys.stderr, flush=True)
            time.sleep(min(SHUFFLE_SECONDS, left))
        sidecar.stop()
        return moves_of(sidecar), traffic.stop()


def moves_of(sidecar: Sidecar) -> list[dict[str, Any]]:
    """Return the moves in the sidecar's journal whose bundle left its broker."""
    return [item for item in sidecar.records() if item["kind"] == "move" and item["landed_on"] != item["source"]]


def cluster_measures(
    inputs: Sequence[PlanInput], moves: Sequence[Mapping[str, Any]], report: TrafficReport
) -> dict[str, Any]:
    """Return the measures of the cluster: scores from the recorded readings, gaps as the clients noticed them."""
    sums = defaultdict[str, float](float)
    weights = weights_of(inputs[0].params, inputs[0].snapshot.mode)
    for event in events_of(inputs):
        add_balance(sums, event.inputs.snapshot.brokers, weights, event.seconds)
    gaps = [
        {(gap.topic, gap.kind, gap.start_wall_ms): gap.seconds for gap in report.gaps_around(*place, AROUND_SECONDS)}
        for place in ((move["bundle"], (move["started_ms"] + move["wall_ms"]) / 2) for move in moves)
    ]
    sums |= {"client_seconds": sum(sum(found.values()) for found in gaps), "moves": len(moves)}
    return CandidateMeasures(**sums).row()


def compare(folder: Path, moves: Sequence[Mapping[str, Any]], report: TrafficReport, mode: str) -> HourResult:
    """Back-test the history in `folder` and compare the result with what the cluster did."""
    store = ParquetStore(folder / "history")
    items = [item for period in periods_of(store.files()) for item in read(store, period)]
    inputs = [input_of(item.frame) for item in items if isinstance(item, RecordedCycle) and item.frame is not None]
    first, last = (inputs[place].snapshot.wall_ms for place in (0, -1))
    steps: list[CandidateStep] = []
    days = backtest(inputs, [PRESENT], inputs[-1].memory.costs, observe=lambda _, step: steps.append(step))
    return HourResult(
        release=find_release().version,
        mode=mode,
        measured=cluster_measures(inputs, [move for move in moves if first <= move["started_ms"] <= last], report),
        predicted=CandidateMeasures.sum(day.measures for day in days).row(),
        alike=sum(step.agrees for step in steps) / len(steps),
        cycles=len(inputs),
    )


def lines_of(results: Sequence[HourResult]) -> list[str]:
    """Return the results as lines of a page."""
    rows = []
    for item in results:
        for name, row in (("cluster", item.measured), ("back-test", item.predicted)):
            sums = CandidateMeasures.of_row(row)
            share = f"{100 * item.alike:.0f} %" if row is item.predicted else ""
            cells = (sums.moves, sums.imbalance, sums.client_seconds, sums.overloaded_minutes)
            rows.append([item.mode, item.release, name, *(f"{cell:.3g}" for cell in cells), share])
    heads = ("load manager", "Pulsar", "", "moves", "imbalance", "client-seconds", "overloaded min", "same owners")
    return table(heads, rows)


def read_results() -> list[HourResult]:
    """Return the results of all hours."""
    lines = STORE.read_text(encoding="utf-8").splitlines() if STORE.exists() else []
    return [HourResult(**json.loads(line)) for line in lines]


def main() -> None:
    """Record an hour, back-test it, store and print the comparison."""
    parser = argparse.ArgumentParser(prog="python -m evidence.recorded_hour", description=__doc__)
    parser.add_argument("--mode", choices=("modular", "extensible"), default="modular", help="load manager")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to record (60)")
    parser.add_argument("--keep", type=Path, help="directory for the history; default: a temporary one")
    options = parser.parse_args()
    spec = ClusterSpec(release=find_release(), brokers=3, mode=options.mode, cpu_quota_cores=CORES)
    with tempfile.TemporaryDirectory(prefix="bundlekeel-hour-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        with open_cluster(spec) as cluster:
            moves, report = record(cluster, folder, options.minutes)
        result = compare(folder, moves, report, options.mode)
    with STORE.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")
    print("\n".join(lines_of([result])))


if __name__ == "__main__":
    main()
