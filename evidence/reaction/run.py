"""Measure one load balancer: start a new cluster, put all load on one broker, turn the balancer on, and observe."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from dev.cluster import Cluster, ClusterSpec, open_cluster
from dev.pulsar_releases import Release, find_release
from dev.sidecar import Sidecar, bundlekeel, settings_for
from dev.traffic import Traffic, TrafficReport, TrafficSpec
from evidence.reaction.contenders import Contender
from evidence.reaction.figures import UNEVEN_RATIO, Change, Sample, Spread, changes, even_since
from evidence.reaction.network import network_files
from evidence.reaction.observer import Observer
from evidence.reaction.prometheus import prometheus

ROOT = Path(__file__).resolve().parents[2]
CORES = 0.25
BUNDLES = 24
TOPICS = 48
RATE = 4700.0
# Messages per second of producers and consumers that a broker with a quarter of a core can serve with some headroom.
MESSAGE_BYTES = 256
BATCH_MESSAGES = 8
BATCH_DELAY_MS = 100
# Publish gaps up to this length are ignored, because batches and CPU limits cause them without a move.
GAP_FLOOR_SECONDS = 0.3
# The load must be balanced for HELD_SECONDS. The run then continues for AFTER_SECONDS, for moves already planned.
HELD_SECONDS = 5.0
AFTER_SECONDS = 15.0
# Each broker first serves some topics for this long, so that its Java classes are loaded as on a cluster in use.
SPREAD_SECONDS = 20.0
# After this time the brokers' statistics and CPU samples, which can be a minute old, contain the traffic.
WARM_SECONDS = 130.0
# With fast statistics only the CPU sample can be a minute old.
FAST_WARM_SECONDS = 75.0
# If the balancer runs before the step, the samples must show the step within this time, or the run does not count.
STEP_SECONDS = 15.0
# Rate of each topic of the other brokers after such a step, in messages per second.
LEAST_RATE = 8.0
ZIPF = 1.1
_SHEDDING = "loadBalancerSheddingEnabled"

Say = Callable[[str], None]


class ReactionError(RuntimeError):
    """A run failed; the message names the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One move as clients measured it: seconds after the balancer was turned on, and the longest publish gap of the
    bundle's topics. gap_seconds is 0.0 if no topic had a longer gap than usual.
    """

    bundle: str
    source: str
    destination: str
    at_seconds: float
    gap_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run, with the git commit. Times are seconds after the balancer was turned on.

    even_seconds: when the load became balanced and stayed so until the end; None: not in time.
    noise: publish gaps outside of moves, which the machine causes.
    timeline: (seconds, max/mean), once per second, from shortly before the balancer was turned on.
    """

    contender: str
    number: int
    finished: str
    revision: str
    start_ratio: float
    end_ratio: float
    within_seconds: float
    even_seconds: float | None
    moves: list[Moved]
    noise: Spread
    acked: int
    lost: int
    duplicated: int
    rate_before: float
    timeline: list[tuple[float, float]] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        """Whether the run counts: it started with a high enough max/mean and with nearly all of the traffic."""
        return self.start_ratio >= UNEVEN_RATIO and self.rate_before >= 0.9 * RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of all runs. `within_seconds`: time limit. `warm_seconds`: see `warm`."""

    release: Release = field(default_factory=find_release)
    within_seconds: float = 900.0
    warm_seconds: float | None = None
    quiet_seconds: float = 0.0
    """Seconds for which the balancer runs with a balanced load before the rates of topics change. 0: the load starts on
    one broker, and the balancer is turned on then.
    """

    @property
    def variant(self) -> str:
        """Return the text that follows the contender's name in the directory of results with these options."""
        release = "" if self.release.line == "4.2" else f"-pulsar-{self.release.line}"
        return release + ("-quiet" if self.quiet_seconds else "")

    def warm(self, contender: Contender) -> float:
        """Return for how many seconds traffic runs before the balancer is turned on: the option, or the time that this
        contender's statistics need.
        """
        return self.warm_seconds or (FAST_WARM_SECONDS if contender.fast else WARM_SECONDS)


def run(contender: Contender, number: int, options: Options, keep: Path, say: Say) -> Result:
    """Measure `contender` once. `number`: number of the run, and seed of the traffic. `keep`: path at which
    Bundlekeel's journal and log are stored, with the suffixes .jsonl and .log; those of more sidecars with -2 and -3.

    Raises ReactionError, ClusterError, SidecarError, TrafficError or AdminError if a step fails.
    """
    spec = ClusterSpec(
        release=options.release,
        brokers=3,
        mode=contender.mode,
        fast_stats=contender.fast,
        cpu_quota_cores=CORES,
        broker_settings=contender.broker_settings,
    )
    with tempfile.TemporaryDirectory(prefix="bundlekeel-reaction-") as name, open_cluster(spec) as cluster:
        say(f"cluster up, CPU isolation {cluster.cpu_isolation}")
        if cluster.cpu_isolation == "none":
            raise ReactionError("cgroups are not writable here, so brokers cannot be held to a CPU quota")
        with _balancer(contender, cluster, Path(name), keep) as switch_on:
            traffic = Traffic(traffic_spec(cluster, number, options))
            with traffic, Observer(traffic, cluster.brokers, cluster.spec.cluster_name) as observer:
                if options.quiet_seconds:
                    switch_on()
                    _spread(observer, options.quiet_seconds, say)
                    began = _step(traffic, observer, number, say)
                else:
                    _spread(observer, SPREAD_SECONDS, say)
                    traffic.place_all_on(cluster.brokers[0].broker_id)
                    _warm(observer, options.warm(contender), say)
                    began = time.monotonic()
                    switch_on()
                _watch(observer, began, options, say)
                samples = list(observer.samples)
            return _result(contender, number, options, began, samples, traffic.stop())


def traffic_spec(cluster: Cluster, seed: int, options: Options) -> TrafficSpec:
    """Return the settings of the traffic. The number of the run is the seed, so all contenders get the same traffic."""
    return TrafficSpec(
        service_url=cluster.service_url,
        admin_url=cluster.brokers[0].web_url,
        namespace="reaction/step",
        bundles=BUNDLES,
        topics_per_bundle=TOPICS // BUNDLES,
        rate_total_msgs=RATE,
        message_bytes=MESSAGE_BYTES,
        zipf=0.0 if options.quiet_seconds else ZIPF,
        seed=seed,
        least_rate=LEAST_RATE if options.quiet_seconds else 0.0,
        gap_floor_seconds=GAP_FLOOR_SECONDS,
        start_seconds=180.0,
        batching=True,
        batch_delay_ms=BATCH_DELAY_MS,
        batch_messages=BATCH_MESSAGES,
    )


@contextlib.contextmanager
def _balancer(contender: Contender, cluster: Cluster, directory: Path, keep: Path) -> Iterator[Callable[[], object]]:
    """Turn the brokers' shedding off. Yield a function that turns the contender's balancer on."""
    if not contender.ours:
        _configure(cluster, "false")
        yield lambda: _configure(cluster, "true")
        return
    with contextlib.ExitStack() as stack:
        more: dict[str, Any] = {} if contender.counters == "brokers" else {"counters": {"source": contender.counters}}
        if contender.counters == "prometheus":
            more["prometheus"] = {"url": stack.enter_context(prometheus(cluster, directory))}
        sidecars = [more]
        if contender.sensor:
            files = stack.enter_context(network_files(cluster.brokers, directory))
            sidecars = [{"counters": {"network_file": str(file)}} for file in files]
        yield from _bundlekeel(cluster, directory, keep, sidecars)


def _bundlekeel(
    cluster: Cluster, directory: Path, keep: Path, settings: Sequence[Mapping[str, Any]]
) -> Iterator[Callable[[], object]]:
    """Yield a function that starts one sidecar for each of these `settings`, which are added to the usual ones."""
    # Each broker has its own CPU quota and reports CPU use relative to it, so capacity need not be configured.
    names = [f"sidecar-{number}" for number in range(1, len(settings) + 1)]
    sidecars = [
        Sidecar(name, settings_for(cluster, name, directory, capacity={}, **more), directory)
        for name, more in zip(names, settings, strict=True)
    ]
    answer = bundlekeel("takeover", "-c", str(sidecars[0].config), "--yes", "--reason", "reaction")
    if answer.returncode != 0:
        raise ReactionError(f"takeover failed:\n{answer.stdout}{answer.stderr}")
    try:
        # The start of the process counts as part of the reaction.
        yield lambda: [sidecar.start(wait=False) for sidecar in sidecars]
    finally:
        for sidecar in sidecars:
            sidecar.close()
        for place, sidecar in enumerate(sidecars):
            for suffix in (".jsonl", ".log"):
                if (file := sidecar.config.with_suffix(suffix)).exists():
                    shutil.copyfile(file, keep.with_name(f"{keep.stem}{f'-{place + 1}' if place else ''}{suffix}"))


def _configure(cluster: Cluster, value: str) -> None:
    url = f"{cluster.brokers[0].web_url}/admin/v2/brokers/configuration/{_SHEDDING}/{value}"
    answer = httpx.post(url, timeout=30.0)
    if not answer.is_success:
        raise ReactionError(f"POST {url}: {answer.status_code} {answer.text[:200]}")


def _spread(observer: Observer, seconds: float, say: Say) -> None:
    """Wait for `seconds` while all brokers serve traffic. Raises ReactionError if a broker has none."""
    say(f"traffic runs on all brokers; {seconds:.0f} s")
    _until(observer, time.monotonic() + seconds, lambda _: False, say)
    loads = observer.samples[-1].loads if observer.samples else {}
    if not loads or not all(loads.values()):
        raise ReactionError(f"a broker had no traffic, so its classes may not be loaded: {loads}")


def _warm(observer: Observer, seconds: float, say: Say) -> None:
    """Wait until all statistics contain the traffic. Raises ReactionError if the brokers' max/mean is too low after
    that.
    """
    say(f"one broker has all bundles; waiting {seconds:.0f} s until all statistics contain the traffic")
    _until(observer, time.monotonic() + seconds, lambda _: False, say)
    ratio = observer.samples[-1].ratio if observer.samples else 0.0
    if ratio < UNEVEN_RATIO:
        raise ReactionError(f"max/mean is too low to start: {ratio:.2f}")
    say(f"turning the balancer on at max/mean {ratio:.2f}")


def _step(traffic: Traffic, observer: Observer, seed: int, say: Say) -> float:
    """Change the topics' rates so that one broker gets nearly all traffic although no bundle moves. Return the time of
    this step (monotonic seconds).
    """
    sample, plans = observer.samples[-1], traffic.prepare()
    hot = max(sample.loads, key=sample.loads.__getitem__)
    ours = [plan.topic for plan in plans if sample.owners.get(plan.bundle) == hot]
    others = [plan.topic for plan in plans if plan.topic not in ours]
    weights = [1.0 / rank**ZIPF for rank in range(1, len(ours) + 1)]
    random.Random(seed).shuffle(weights)
    share = (RATE - LEAST_RATE * len(others)) / sum(weights)
    rates = {topic: share * weight for topic, weight in zip(ours, weights, strict=True)}
    say(f"{len(changes(list(observer.samples)))} moves so far; {len(ours)} topics of {hot} get nearly all traffic")
    traffic.set_rates(rates | dict.fromkeys(others, LEAST_RATE))
    return time.monotonic()


def _watch(observer: Observer, began: float, options: Options, say: Say) -> None:
    """Wait until the load is balanced and the last moves have ended, or until the time limit."""

    def is_balanced(samples: list[Sample]) -> bool:
        since = even_since(_uneven(samples, began))
        return since is not None and samples[-1].at - since >= HELD_SECONDS

    deadline = began + options.within_seconds
    while time.monotonic() < deadline:
        _until(observer, deadline, is_balanced, say)
        _until(observer, time.monotonic() + AFTER_SECONDS, lambda _: False, say)
        if is_balanced(observer.samples):
            return


def _uneven(samples: list[Sample], began: float) -> list[Sample]:
    """Return the samples from the first unbalanced one after `began` on. Earlier samples do not show the change of load
    yet.
    """
    return list(itertools.dropwhile(lambda sample: sample.at < began or sample.ratio < UNEVEN_RATIO, samples))


def _until(observer: Observer, deadline: float, holds: Callable[[list[Sample]], bool], say: Say) -> None:
    """Wait until `holds(samples)` is true or until the deadline, checking twice per second. Print the state twice per
    minute. Raises ReactionError if the clients' counts cannot be read any more.
    """
    since = time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(0.5)
        if observer.failure:
            raise ReactionError(f"the clients' counts cannot be read: {observer.failure}")
        samples = list(observer.samples)
        if samples and holds(samples):
            return
        if samples and time.monotonic() - since >= 30.0:
            since = time.monotonic()
            loads = ", ".join(f"{load:.0f}" for load in samples[-1].loads.values())
            say(f"max/mean {samples[-1].ratio:.2f} ({loads} msg/s), {len(changes(samples))} moves")


def _result(
    contender: Contender,
    number: int,
    options: Options,
    began: float,
    samples: list[Sample],
    report: TrafficReport,
) -> Result:
    before = [sample for sample in samples if sample.at < began][-1]
    since = even_since(_uneven(samples, began))
    samples_shown = [before, *(sample for sample in samples if began <= sample.at < began + STEP_SECONDS)]
    moved = changes([sample for sample in samples if sample.at >= before.at])
    to_wall = 1000 * (time.time() - time.monotonic())
    windows = [(1000 * change.left + to_wall - 1500, 1000 * change.seen + to_wall + 1500) for change in moved]
    return Result(
        contender=contender.name,
        number=number,
        finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        revision=_revision(),
        start_ratio=max(sample.ratio for sample in samples_shown) if options.quiet_seconds else before.ratio,
        end_ratio=samples[-1].ratio,
        within_seconds=options.within_seconds,
        even_seconds=None if since is None else since - began,
        moves=[_moved(change, began, window, report) for change, window in zip(moved, windows, strict=True)],
        noise=_noise(report, 1000 * began + to_wall, windows),
        acked=report.acked,
        lost=report.lost,
        duplicated=report.duplicated,
        rate_before=sum(before.loads.values()),
        timeline=[(round(s.at - began, 1), round(s.ratio, 3)) for s in samples if s.at >= began - 10],
    )


def _revision() -> str:
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return revision.stdout.strip()


def _moved(change: Change, began: float, window: tuple[float, float], report: TrafficReport) -> Moved:
    low, high = window
    return Moved(
        bundle=change.bundle,
        source=change.source,
        destination=change.destination,
        at_seconds=change.seen - began,
        gap_seconds=report.gap_around(change.bundle, (low + high) / 2, (high - low) / 2000, "publish"),
    )


def _noise(report: TrafficReport, began_ms: float, windows: list[tuple[float, float]]) -> Spread:
    return Spread.of(
        gap.seconds
        for gap in report.gaps
        if gap.kind == "publish"
        and gap.start_wall_ms >= began_ms
        and not any(gap.start_wall_ms <= high and gap.end_wall_ms >= low for low, high in windows)
    )
