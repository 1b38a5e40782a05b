"""Measure a rolling restart of three real brokers under traffic, with sidecars or with the brokers' own balancing.

`python -m evidence.rolling_restart` restarts brokers from the highest ordinal to 0, as a StatefulSet does: it runs the
preStop command that the chart renders, stops the broker (SIGTERM, SIGKILL after the grace period) and its sidecar,
starts both, and waits until the broker is ready and `--pause` is over. Moves and loads are observed from outside. The
sidecars' logs and journals are kept in .run/rolling-restart. A run takes about 10 minutes. `--write` measures all four
combinations.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dev.chart import CHART, render
from dev.cluster import BrokerInfo, Cluster, ClusterSpec, open_cluster
from dev.cluster.spec import Mode
from dev.markdown import table
from dev.sidecar import Sidecar, bundlekeel, running
from dev.traffic import Traffic, TrafficReport, TrafficSpec
from dev.traffic.admin import place_all_on
from evidence.reaction.contenders import THRESHOLD
from evidence.reaction.figures import EVEN_RATIO, Sample, changes, loads_by_owner, max_over_mean
from evidence.reaction.observer import Observer
from evidence.reaction.run import BATCH_DELAY_MS, BATCH_MESSAGES, CORES, GAP_FLOOR_SECONDS, MESSAGE_BYTES, RATE

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "rolling-restart.md"
LOGS = ROOT / ".run" / "rolling-restart"
BROKERS = 3
BUNDLES = 36
ZIPF = 0.4
# Each broker serves this part of its capacity, so two brokers can serve everything. Sidecars get the capacity as a
# setting, because CPU use depends on the machine.
USAGE = 0.35
# Until the brokers' statistics, which are a minute old, contain the traffic.
WARM_SECONDS = 75.0
# A StatefulSet restarts the next pod when this one is ready. The readiness probe of the Apache chart starts after 30 s.
PAUSE_SECONDS = 30.0
# Grace period of the Apache chart without the hook.
NATIVE_GRACE_SECONDS = 30.0
# The run ends when the load is balanced and no bundle has moved for this long, or after `--within`.
SETTLED_SECONDS = 60.0
HEAD = """# Rolling restart: measured

Written by `python -m evidence.rolling_restart --write`; do not edit. {brokers} brokers with {cores} core each,
{bundles} bundles, {rate:.0f} messages/s, {usage:.0%} of the capacity; each broker stops and starts once. *Moves* per
bundle, divided by the optimum 1 + 2/n. *Peak*: highest load of a broker, divided by n/(n-1) of the mean. *Gap*: longest
time, and time per topic, without an acknowledged message, in seconds, gaps above {floor} s only. *Imbalance*: maximum
divided by mean, at the end. *Seconds*: until the load was balanced.

"""
COLUMNS = (
    "load manager",
    "sidecars",
    "moves",
    "peak",
    "longest gap",
    "gap per topic",
    "lost",
    "duplicates",
    "imbalance",
    "seconds",
)


class RollingRestartError(RuntimeError):
    """A step of the run failed; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The measurements of one run; see the page for the units. `seconds`: None if the load did not become balanced.

    `moved`: (seconds since the first preStop, bundle, source, destination) of each move.
    """

    mode: Mode
    sidecars: bool
    moves: float
    peak: float
    longest_gap_seconds: float
    gap_seconds_per_topic: float
    lost: int
    duplicated: int
    imbalance: float
    seconds: float | None
    drain_seconds: list[float]
    moved: list[tuple[float, str, str, str]] = field(default_factory=list)

    def cells(self) -> list[str]:
        """Return the row of this run in the table."""
        return [
            self.mode,
            "yes" if self.sidecars else "no",
            f"{self.moves:.2f}",
            f"{self.peak:.2f}",
            f"{self.longest_gap_seconds:.1f}",
            f"{self.gap_seconds_per_topic:.1f}",
            str(self.lost),
            str(self.duplicated),
            f"{self.imbalance:.2f}",
            "not balanced" if self.seconds is None else f"{self.seconds:.0f}",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The commands of the broker's container, as the chart renders them, and the pod's grace period in seconds."""

    drain: list[str]
    back: str
    grace_seconds: float

    @classmethod
    def rendered(cls) -> Hooks:
        """Render the chart and take the hooks from the values and the patch for the Apache chart."""
        objects = render("bundlekeel", CHART / "ci" / "apache-sidecar-values.yaml")
        data = next(item["data"] for item in objects if item["metadata"]["name"] == "bundlekeel-sidecar")
        broker = yaml.safe_load(data["broker-values.yaml"])["broker"]
        (patch,) = yaml.safe_load(yaml.safe_load(data["kustomization.yaml"])["patches"][0]["patch"])
        return cls(
            drain=patch["value"]["preStop"]["exec"]["command"],
            back=broker["additionalCommand"].removesuffix("&"),
            grace_seconds=float(broker["gracePeriod"]),
        )


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


class Pod:
    """A broker and, unless it balances natively, its sidecar and hooks."""

    def __init__(self, cluster: Cluster, broker: BrokerInfo, sidecar: Sidecar | None, hooks: Hooks) -> None:
        self.broker = broker
        self._cluster, self._sidecar, self._hooks = cluster, sidecar, hooks
        self._process: subprocess.Popen[bytes] | None = None

    def restart(self) -> float:
        """Restart the pod and wait until the broker is ready. Return the seconds that the preStop hook took."""
        took = 0.0
        if self._sidecar is None:
            self._cluster.terminate(self.broker.name, NATIVE_GRACE_SECONDS)
        else:
            began, grace = time.monotonic(), self._hooks.grace_seconds
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._run(self._hooks.drain).wait(grace)
            took = time.monotonic() - began
            self._cluster.terminate(self.broker.name, max(0.0, grace - took))
            # Native sidecars stop after the other containers of the pod and start before them.
            self._sidecar.stop()
            self._sidecar.start(wait=False)
            self._run(["sh", "-c", f"exec env {self._hooks.back}"])
        self._cluster.restart(self.broker.name)
        return took

    def close(self) -> None:
        """Kill the hook that still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _run(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a hook of the broker's container; kill the previous one."""
        self.close()
        assert self._sidecar is not None
        log = self._sidecar.log.with_suffix(".hook.log")
        paths = {
            "/opt/bundlekeel-hook/broker_hook.py": str(CHART / "files" / "broker_hook.py"),
            "/proc/1/fd/2": os.devnull,
        }
        for path, local in paths.items():
            command = [part.replace(path, local) for part in command]
        environment = {
            "PATH": os.environ["PATH"],
            "BUNDLEKEEL_SOCKET": str(self._sidecar.socket),
            "BUNDLEKEEL_BROKER": self.broker.broker_id,
        }
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        return self._process


def run(mode: Mode, *, sidecars: bool, pause: float, rate: float, within: float) -> Result:
    """Measure one rolling restart.

    Raises RollingRestartError, ClusterError, SidecarError, TrafficError or AdminError if a step fails.
    """
    spec = ClusterSpec(
        brokers=BROKERS,
        mode=mode,
        fast_stats=False,
        cpu_quota_cores=CORES,
        # Pulsar's default; the local cluster has a shorter one.
        broker_settings={"brokerShutdownTimeoutMs": "60000"} | (THRESHOLD if mode == "modular" else {}),
    )
    with tempfile.TemporaryDirectory(prefix="bundlekeel-rolling-") as name, open_cluster(spec) as cluster:
        if cluster.cpu_isolation == "none":
            raise RollingRestartError("cgroups are not writable here, so brokers cannot be held to a CPU quota")
        traffic = Traffic(_traffic_spec(cluster, rate))
        _place_evenly(cluster, traffic)
        with traffic, Observer(traffic, cluster.brokers, spec.cluster_name) as observer:
            _say(f"{mode}, {'with' if sidecars else 'without'} sidecars: traffic runs, {WARM_SECONDS:.0f} s")
            time.sleep(WARM_SECONDS)
            with _pods(cluster, Path(name), mode, rate, sidecars=sidecars) as pods:
                time.sleep(pause)
                began, began_ms, drains = time.monotonic(), time.time() * 1000, []
                for pod in reversed(pods):
                    drains.append(pod.restart())
                    _say(f"{pod.broker.name} restarted, preStop {drains[-1]:.0f} s, {_state(observer, traffic)}")
                    time.sleep(pause)
                seconds = _settle(observer, traffic, began, within)
                _say(f"end: {_state(observer, traffic)}")
        if observer.failure:
            raise RollingRestartError(f"the clients' counts cannot be read: {observer.failure}")
        samples = [sample for sample in observer.samples if sample.at >= began]
        measured = _measure(samples, traffic, began, began_ms)
        return Result(mode=mode, sidecars=sidecars, seconds=seconds, drain_seconds=drains, **measured)


def _traffic_spec(cluster: Cluster, rate: float) -> TrafficSpec:
    return TrafficSpec(
        service_url=cluster.service_url,
        admin_url=cluster.brokers[0].web_url,
        namespace="rolling/restart",
        bundles=BUNDLES,
        rate_total_msgs=rate,
        message_bytes=MESSAGE_BYTES,
        zipf=ZIPF,
        gap_floor_seconds=GAP_FLOOR_SECONDS,
        start_seconds=180.0,
        batching=True,
        batch_delay_ms=BATCH_DELAY_MS,
        batch_messages=BATCH_MESSAGES,
    )


def _place_evenly(cluster: Cluster, traffic: Traffic) -> None:
    """Give each topic to the broker with the lowest rate, in decreasing order of the rates."""
    rates = {broker.broker_id: 0.0 for broker in cluster.brokers}
    topics: dict[str, list[str]] = {broker: [] for broker in rates}
    for plan in sorted(traffic.prepare(), key=lambda plan: -plan.rate):
        broker = min(rates, key=rates.__getitem__)
        rates[broker] += plan.rate
        topics[broker].append(plan.topic)
    for broker, names in topics.items():
        place_all_on(broker, cluster.brokers[0].web_url, names)


@contextlib.contextmanager
def _pods(cluster: Cluster, directory: Path, mode: Mode, rate: float, *, sidecars: bool) -> Iterator[list[Pod]]:
    """Yield the pods; with sidecars, these run, and the brokers' own shedding is off. Keep the sidecars' files."""
    hooks = Hooks.rendered()
    if not sidecars:
        yield [Pod(cluster, broker, None, hooks) for broker in cluster.brokers]
        return
    # Messages are received and sent.
    capacity = {"*": {"cpu": "ignore", "throughput": round(2 * rate * MESSAGE_BYTES / BROKERS / USAGE)}}
    try:
        names = [broker.name for broker in cluster.brokers]
        with running(cluster, names, directory, capacity=capacity) as processes:
            answer = bundlekeel("takeover", "-c", str(processes[0].config), "--yes", "--reason", "rolling restart")
            if answer.returncode != 0:
                raise RollingRestartError(f"takeover failed:\n{answer.stdout}{answer.stderr}")
            pods = [Pod(cluster, *pair, hooks) for pair in zip(cluster.brokers, processes, strict=True)]
            with contextlib.ExitStack() as stack:
                for pod in pods:
                    stack.callback(pod.close)
                yield pods
    finally:
        kept = LOGS / mode
        kept.mkdir(parents=True, exist_ok=True)
        for path in (*directory.glob("*.log"), *directory.glob("*.jsonl")):
            shutil.copyfile(path, kept / path.name)


def _loads(sample: Sample, traffic: Traffic) -> dict[str, float]:
    """Return the rates of the topics by the broker that owns their bundle. Topics without an owner are omitted."""
    plans = traffic.prepare()
    rates, bundles = {plan.topic: plan.rate for plan in plans}, {plan.topic: plan.bundle for plan in plans}
    return loads_by_owner(rates, bundles, sample.owners, sample.loads)


def _state(observer: Observer, traffic: Traffic) -> str:
    loads = ", ".join(f"{load:.0f}" for load in _loads(observer.samples[-1], traffic).values())
    return f"{loads} msg/s, {len(list_moves(observer.samples))} moves"


def list_moves(samples: Sequence[Sample]) -> list[tuple[float, str, str, str]]:
    """Return (time, bundle, source, destination) of each change of owner, oldest first."""
    return [
        (item.seen, item.bundle, item.source, item.destination)
        for item in changes(list(samples))
        if item.source != item.destination
    ]


def _settle(observer: Observer, traffic: Traffic, began: float, within: float) -> float | None:
    """Wait until the load is balanced and no bundle has moved for a while. Return the seconds from `began` until then;
    None if the time limit is over.
    """
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        time.sleep(1.0)
        samples = list(observer.samples)
        last = max((at for at, *_ in list_moves(samples)), default=began)
        loads = list(_loads(samples[-1], traffic).values())
        if max_over_mean(loads) <= EVEN_RATIO and samples[-1].at - last >= SETTLED_SECONDS:
            return last - began
    return None


def _measure(samples: Sequence[Sample], traffic: Traffic, began: float, began_ms: float) -> dict[str, Any]:
    """Stop the traffic and return the measurements of brokers and clients."""
    report: TrafficReport = traffic.stop()
    loads = [_loads(sample, traffic) for sample in samples]
    moved = [(round(at - began, 1), *rest) for at, *rest in list_moves(samples)]
    mean = traffic.spec.rate_total_msgs / BROKERS
    gaps = [gap.seconds for gap in report.gaps if gap.kind == "publish" and gap.start_wall_ms >= began_ms]
    return {
        "moves": len(moved) / BUNDLES / (1 + 2 / BROKERS),
        "peak": max(max(row.values()) for row in loads) / (mean * BROKERS / (BROKERS - 1)),
        "longest_gap_seconds": max(gaps, default=0.0),
        "gap_seconds_per_topic": sum(gaps) / len(report.topics),
        "lost": report.lost,
        "duplicated": report.duplicated,
        "imbalance": max_over_mean(list(loads[-1].values())),
        "moved": moved,
    }


def main() -> int:
    """Measure and print a table, or JSON. Return 0."""
    parser = argparse.ArgumentParser(prog="python -m evidence.rolling_restart", description=__doc__)
    parser.add_argument("--mode", choices=("modular", "extensible"), default="modular", help="load manager")
    parser.add_argument("--without", action="store_true", help="no sidecars: the brokers' own balancing")
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help="seconds between two restarts (default 30)")
    parser.add_argument(
        "--rate", type=float, default=RATE, help=f"messages per second ({RATE:.0f}); less if it is busy"
    )
    parser.add_argument("--within", type=float, default=600.0, help="seconds to balance after the last restart (600)")
    parser.add_argument("--json", action="store_true", help="print JSON, with each move, instead of a table")
    parser.add_argument("--write", action="store_true", help=f"measure all combinations, write {PAGE.name} in docs")
    options = parser.parse_args()
    combinations: list[tuple[Mode, bool]] = [(options.mode, not options.without)]
    if options.write:
        combinations = [(mode, sidecars) for mode in ("modular", "extensible") for sidecars in (True, False)]
    results = [
        run(mode, sidecars=sidecars, pause=options.pause, rate=options.rate, within=options.within)
        for mode, sidecars in combinations
    ]
    rows = "\n".join(table(COLUMNS, [result.cells() for result in results])) + "\n"
    print(json.dumps([asdict(result) for result in results], indent=1) if options.json else rows)
    if options.write:
        head = HEAD.format(
            brokers=BROKERS, cores=CORES, bundles=BUNDLES, rate=options.rate, usage=USAGE, floor=GAP_FLOOR_SECONDS
        )
        PAGE.write_text(head + rows, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
