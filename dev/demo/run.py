"""The steps of the demo: put all load on one broker, take over, start three sidecars, kill the leader, and wait until
the load is balanced."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from dev.cluster import Cluster, ClusterSpec, open_cluster
from dev.demo import display
from dev.demo.measure import Cost, Load, costs, loads, max_over_mean
from dev.sidecar import Sidecar, bundlekeel, leader_of, running, secrets_of, secured
from dev.traffic import Traffic, TrafficError, TrafficReport, TrafficSpec

START_RATIO = 2.5
END_RATIO = 1.25
BUSY_BUNDLES = 24
# Allowed moves in addition to those of the first plan, because predictions are not exact.
SPARE_MOVES = 2
_STEADY_POLLS = 3
# With statistics of one second, a broker that paused for a second would report double its load in the next second, and
# bundles would move.
_STATS_SECONDS = "3"


class DemoError(RuntimeError):
    """A step of the demo did not succeed in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the demo. `stock_stats`: brokers update statistics once per minute, as by default."""

    mode: Literal["modular", "extensible"] = "modular"
    secure: bool = False
    keep: bool = False
    stock_stats: bool = False
    seed: int = 1
    within: float = 420.0
    idle: float = 20.0
    report: Path | None = None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Measurements of the demo, for its report and its conditions."""

    before: list[Load] = field(default_factory=list)
    after: list[Load] = field(default_factory=list)
    killed: str = ""
    killed_after_moves: int = 0
    successor: str = ""
    takeover_seconds: float = 0.0
    balanced_seconds: float = 0.0
    needed_moves: int = 0
    moves: list[dict[str, Any]] = field(default_factory=list)
    cut_off: list[float] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    traffic: TrafficReport | None = None


class Demo:
    """One run of the demo on a new cluster."""

    def __init__(self, options: Options, console: Console, directory: Path) -> None:
        self._options = options
        self._console = console
        self._directory = directory
        self._started = time.monotonic()
        self._killed_at = 0.0
        self.outcome = Outcome()

    def run(self) -> bool:
        """Run the whole demo. Return whether all conditions were met."""
        spec = ClusterSpec(
            brokers=3,
            mode=self._options.mode,
            fast_stats=not self._options.stock_stats,
            broker_settings={} if self._options.stock_stats else {"statsUpdateFrequencyInSecs": _STATS_SECONDS},
            secure=self._options.secure,
        )
        self._say("starting ZooKeeper, a bookie and three brokers")
        with open_cluster(spec) as cluster:
            self._say(f"cluster up: {', '.join(broker.broker_id for broker in cluster.brokers)}")
            with self._traffic(cluster) as traffic:
                self._concentrated(cluster)
                names, identity = ["sidecar-a", "sidecar-b", "sidecar-c"], self._identity(cluster)
                with running(cluster, names, self._directory, start=False, **identity) as sidecars:
                    self._take_over(sidecars[0])
                    self._balance(cluster, sidecars)
                    self._settle(cluster, sidecars, traffic)
                    passed = self._verdict()
                    if self._options.keep:
                        self._wait_for_person(cluster, sidecars, traffic)
            return passed

    def _identity(self, cluster: Cluster) -> dict[str, Any]:
        if not self._options.secure:
            return {}
        os.environ["BUNDLEKEEL_SECRETS_DIR"] = str(secrets_of(cluster, self._directory))
        self._say("secured: TLS and tokens at the brokers, authorization on; TLS and SASL at ZooKeeper")
        return secured(cluster, cluster.security.tokens["bundlekeel"])

    @contextlib.contextmanager
    def _traffic(self, cluster: Cluster) -> Iterator[Traffic]:
        spec = TrafficSpec(
            service_url=cluster.service_url,
            admin_url=cluster.brokers[0].web_url,
            bundles=32,
            busy_bundles=BUSY_BUNDLES,
            seed=self._options.seed,
            identity=cluster.identity("admin"),
        )
        traffic = Traffic(spec)
        traffic.prepare()
        traffic.place_all_on(cluster.brokers[0].broker_id)
        with traffic:
            self._say(f"traffic on {BUSY_BUNDLES} bundles, all owned by {cluster.brokers[0].broker_id}")
            yield traffic

    def _concentrated(self, cluster: Cluster) -> None:
        limit = 200.0 if self._options.stock_stats else 60.0
        earlier: list[float] = []
        with self._live() as live:
            for rows in self._polls(cluster, limit, "the brokers do not report the traffic on one broker"):
                live.update(self._frame(rows, "everything on one broker", [], ""))
                uneven = max_over_mean(rows) >= START_RATIO and sum(row.busy_bundles for row in rows) >= BUSY_BUNDLES
                # The first reports show traffic that still grows, so the demo waits for a few equal polls.
                earlier = [*earlier, sum(row.throughput for row in rows)][-_STEADY_POLLS:] if uneven else []
                if len(earlier) == _STEADY_POLLS and max(earlier) <= 1.1 * min(earlier):
                    self.outcome.before = rows
                    return

    def _take_over(self, sidecar: Sidecar) -> None:
        answer = bundlekeel("takeover", "-c", str(sidecar.config), "--yes", "--reason", "demo")
        if answer.returncode != 0:
            raise DemoError(f"takeover failed:\n{answer.stdout}{answer.stderr}")
        self._say("bundlekeel takeover: the brokers' own shedding is off")
        self._console.print(answer.stdout.rstrip())

    def _balance(self, cluster: Cluster, sidecars: list[Sidecar]) -> None:
        # Started in parallel: on a busy machine the first sidecar would move bundles before the last one runs.
        for item in sidecars:
            item.start(wait=False)
        for item in sidecars:
            item.until_answering()
        self._say("three sidecars run in mode act, on the shipped default settings")
        began, steady = time.monotonic(), 0
        self.outcome.needed_moves = self._needed(sidecars)
        with self._live() as live:
            for rows in self._polls(cluster, self._options.within, "the load did not become even in time"):
                moves = self._moves(sidecars)
                self._kill_leader_once(sidecars, moves)
                live.update(self._frame(rows, "balancing", sidecars, self._phase(sidecars)))
                even = bool(self.outcome.successor) and max_over_mean(rows) <= END_RATIO
                steady = steady + 1 if even else 0
                if steady >= _STEADY_POLLS:
                    self.outcome.after = rows
                    self.outcome.balanced_seconds = time.monotonic() - began
                    return

    def _needed(self, sidecars: list[Sidecar]) -> int:
        """Return how many moves balance the load if one measurement is enough and plans have no limits on moves. Counts
        the moves of a dry run, finished moves and moves in progress.
        """
        sidecar = sidecars[0]
        unlimited = {f"max_moves_per_{what}": 10_000 for what in ("cycle", "source", "target", "namespace")}
        # Extensible brokers are queried one at a time, so the first snapshot can lack some.
        brokers = len(self.outcome.before)
        sidecar.until(lambda: len(sidecar.picture()) == brokers, "its snapshot contains all brokers", within=60.0)
        body = {"ignore_hit_counts": True, "parameters": unlimited}
        needed = 0

        def try_plan() -> bool:
            # A plan is empty until the policies of its namespaces have been read.
            nonlocal needed
            answer = sidecar.post("/api/v1/plans", body)
            if answer.status_code != 200:
                raise DemoError(f"a dry run failed: {answer.text}")
            bundles = {move["bundle"] for move in (*answer.json()["moves"], *sidecar.moves())}
            # The plan does not contain the bundles in transit, nor do the records. The leader reports them before.
            coming = [row["preallocated"] for one in sidecars for row in one.picture()]
            needed = len(bundles.union(item["bundle"] for items in coming for item in items or ()))
            return needed > 0

        sidecar.until(try_plan, "there is something to move", within=60.0)
        return needed

    def _kill_leader_once(self, sidecars: list[Sidecar], moves: list[dict[str, Any]]) -> None:
        """Kill the leader once the moves of the first cycle have ended, and wait for its successor; only once per
        run.
        """
        if self.outcome.killed:
            survivor = leader_of(sidecars)
            if not self.outcome.successor and survivor is not None:
                self.outcome.successor = survivor.name
                self.outcome.takeover_seconds = time.monotonic() - self._killed_at
                self._say(f"{survivor.name} leads, {self.outcome.takeover_seconds:.1f} s after the kill")
            return
        leader = leader_of(sidecars)
        if leader is None or not moves:
            return
        leader.kill()
        self._killed_at = time.monotonic()
        self.outcome.killed, self.outcome.killed_after_moves = leader.name, len(moves)
        self._say(f"{leader.name} led and was killed (SIGKILL) after {len(moves)} moves")

    def _settle(self, cluster: Cluster, sidecars: list[Sidecar], traffic: Traffic) -> None:
        self._say(f"even; measuring what the sidecars cost while idle ({self._options.idle:.0f} s)")
        self.outcome.costs = costs(sidecars, self._options.idle)
        self.outcome.moves = self._moves(sidecars)
        # A single report can be wrong on a busy machine.
        for rows in self._polls(cluster, 60.0, "the load did not stay even"):
            self.outcome.after = rows
            if max_over_mean(rows) <= END_RATIO:
                break
        report = traffic.stop() if not self._options.keep else traffic.report()
        self.outcome.traffic = report
        self.outcome.cut_off = [
            report.gap_around(move["bundle"], move["landed_ms"] or move["started_ms"], 10.0)
            for move in self.outcome.moves
        ]

    def _verdict(self) -> bool:
        run = self.outcome
        assert run.traffic is not None
        self._console.print(display.before_after(run.before, run.after))
        self._console.print(display.moves_table(run.moves, run.cut_off))
        self._console.print(display.gaps(run.cut_off))
        self._console.print(display.costs_table(run.costs))
        done = sum(move["outcome"] == "done" for move in run.moves)
        start, end = max_over_mean(run.before), max_over_mean(run.after)
        lost = run.traffic.lost if run.traffic.final else 0
        checks = [
            ("started uneven", start >= START_RATIO, f"max/mean {start:.2f}, at least {START_RATIO}"),
            (
                "ended even",
                end <= END_RATIO,
                f"max/mean {end:.2f}, at most {END_RATIO}, {run.balanced_seconds:.0f} s after the sidecars started",
            ),
            (
                "leader killed",
                bool(run.killed and run.successor),
                f"{run.killed} after {run.killed_after_moves} moves, {run.successor} took over in "
                f"{run.takeover_seconds:.1f} s",
            ),
            ("reached the target", done == len(run.moves) > 0, f"{done} of {len(run.moves)} moves"),
            (
                "no move too many",
                len(run.moves) <= run.needed_moves + SPARE_MOVES,
                f"{len(run.moves)} made, the first plan needed {run.needed_moves} (+ {SPARE_MOVES})",
            ),
            ("moved once", len({move["bundle"] for move in run.moves}) == len(run.moves), "no bundle moved twice"),
            ("messages lost", lost == 0, f"{lost} of {run.traffic.acked} acknowledged"),
        ]
        display.verdicts(self._console, checks)
        passed = all(item[1] for item in checks)
        self._console.print(
            "[bold green]all checks passed[/bold green]" if passed else "[bold red]not all checks passed[/bold red]"
        )
        self._write_report(checks, passed)
        return passed

    def _write_report(self, checks: list[tuple[str, bool, str]], passed: bool) -> None:
        if self._options.report is None:
            return
        outcome = self.outcome
        assert outcome.traffic is not None
        self._options.report.parent.mkdir(parents=True, exist_ok=True)
        body = {
            "held": passed,
            "checks": checks,
            "before": [asdict(row) for row in outcome.before],
            "after": [asdict(row) for row in outcome.after],
            "moves": [
                move | {"cut_off_seconds": gap} for move, gap in zip(outcome.moves, outcome.cut_off, strict=True)
            ],
            "costs": [asdict(cost) for cost in outcome.costs],
            "cut_off_median_seconds": statistics.median(outcome.cut_off) if outcome.cut_off else None,
            "cut_off_worst_seconds": max(outcome.cut_off, default=None),
            "balanced_seconds": outcome.balanced_seconds,
            "takeover_seconds": outcome.takeover_seconds,
            "needed_moves": outcome.needed_moves,
            "messages": {"acked": outcome.traffic.acked, "lost": outcome.traffic.lost},
        }
        self._options.report.write_text(json.dumps(body, indent=2), encoding="utf-8")

    # --- helpers ---

    def _moves(self, sidecars: list[Sidecar]) -> list[dict[str, Any]]:
        return max((item.moves() for item in sidecars if item.alive), key=len, default=[])

    def _phase(self, sidecars: list[Sidecar]) -> str:
        for item in sidecars:
            cycle = item.state().get("cycle") if item.alive else None
            if cycle:
                return str(cycle["sentence"])
        return ""

    def _polls(self, cluster: Cluster, within: float, complaint: str) -> Iterator[list[Load]]:
        deadline = time.monotonic() + within
        rows: list[Load] = []
        while time.monotonic() < deadline:
            for failure in cluster.failures().values():
                raise failure
            rows = loads(cluster, self._options.mode)
            yield rows
            time.sleep(0.5)
        throughputs = ", ".join(f"{row.broker} {row.throughput / 1e6:.2f} MB/s" for row in rows)
        raise DemoError(f"{complaint} ({within:.0f} s); last seen: {throughputs}")

    def _frame(self, rows: list[Load], phase: str, sidecars: list[Sidecar], caption: str) -> Any:
        leader = leader_of(sidecars)
        largest = max((row.throughput for row in [*rows, *self.outcome.before]), default=0.0)
        return display.live(
            rows,
            largest,
            phase=phase,
            elapsed=time.monotonic() - self._started,
            leader=leader.name if leader else "",
            moves=len(self._moves(sidecars)),
            caption=caption,
        )

    def _live(self) -> Live:
        return Live(console=self._console, refresh_per_second=2, transient=True)

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._started:5.0f} s[/dim]  {text}")

    def _wait_for_person(self, cluster: Cluster, sidecars: list[Sidecar], traffic: Traffic) -> None:
        self._console.print(f"\nmetadata store  {cluster.metadata_url}")
        for broker in cluster.brokers:
            self._console.print(f"broker          {broker.web_url}  {broker.service_url}")
        for item in sidecars:
            if item.alive:
                url = next((m["url"] for m in item.state()["members"] if m["id"] == item.name), "")
                self._console.print(f"{item.name}       {url}   bundlekeel status --socket {item.socket}")
        self._console.print("everything stays up until Ctrl-C or SIGTERM")
        noticed = {self.outcome.killed}
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                for name, failure in self._ended(cluster, sidecars, traffic).items():
                    if name not in noticed:
                        self._console.print(f"[red]{time.strftime('%H:%M:%S')}[/red] {escape(failure)}")
                        noticed.add(name)
                time.sleep(1.0)

    @staticmethod
    def _ended(cluster: Cluster, sidecars: list[Sidecar], traffic: Traffic) -> dict[str, str]:
        ended = {name: str(failure) for name, failure in cluster.failures().items()}
        ended |= {
            item.name: f"{item.name} has ended; its log says:\n{item.tail()}" for item in sidecars if not item.alive
        }
        try:
            traffic.acked()
        except TrafficError as error:
            ended["traffic"] = str(error)
        return ended
