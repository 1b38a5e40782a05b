"""The nightly run: quality, capacity, search by back-test, evidence, thresholds and report. Loads pyspark."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final

import pyspark
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bundlekeel.core.calibration import thresholds as core
from bundlekeel.core.calibration.thresholds_json import document_of
from bundlekeel.core.history.frames import restored
from bundlekeel.core.model.errors import HistoryError, StoreError
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.text_format import numbered, some
from bundlekeel.jobs import backtest, features, quality
from bundlekeel.jobs.blocks import blocks_of
from bundlekeel.jobs.capacity import capacity, per_unit
from bundlekeel.jobs.evidence import EvidenceInput, thresholds_of
from bundlekeel.jobs.options import Options, cluster_of
from bundlekeel.jobs.periods import HistoryPeriod
from bundlekeel.jobs.places import OutputFolder, below
from bundlekeel.jobs.read import digests, of_days, part, periods
from bundlekeel.jobs.report import (
    MOST_ROWS,
    ReportInputs,
    blocks_shown,
    clients_of,
    headline,
    how_to_adopt,
    meanings,
    page,
    points_of,
    searched_of,
)
from bundlekeel.jobs.rules import JudgedDay, accept, at_once, judge, usual_interval, without_hits
from bundlekeel.jobs.selection import Selection, chosen_of, left_alone, searchable
from bundlekeel.ports.history import NAME
from bundlekeel.sim.backtest import Candidate, CandidateMeasures
from bundlekeel.sim.backtest.choice import split_days
from bundlekeel.sim.backtest.search import SearchSpace, search, strategy_of

REPORT: Final = "report.html"
Tell = Callable[[str], None]
# What a failed task says of an error of ours.
_AWAY = "bundlekeel.core.model.errors.StoreError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Who follows a run. `tell`: of a line that stays; `begin`: of the name of a step, before Spark computes it."""

    tell: Tell
    begin: Tell


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalibrationResult:
    """What came of a run. `objections`: why the sidecars would not adopt it by themselves. `said`: the same for a
    terminal, a line each."""

    thresholds: core.Thresholds
    path: str
    report: str
    objections: tuple[core.Objection, ...]
    said: tuple[str, ...]


def recalibrate(
    spark: SparkSession, options: Options, found: Sequence[HistoryPeriod], progress: Progress
) -> RecalibrationResult:
    """Run all of it on the periods `found` (`options.newest`).

    TooLittleHistory, BadDays, OtherCluster: refused, and nothing is written; StoreError: a store is away; ConfigError:
    nothing that was asked for can be searched.
    """
    tell, begin = progress.tell, progress.begin
    tell(f"{len(found)} hours of history, {sum(item.size for item in found) / 1e6:.1f} MB")
    cluster = cluster_of(options, found)
    digest = digests(periods(spark, found), options.history).persist(StorageLevel.DISK_ONLY)
    try:
        begin("reading the days")
        judged, good = judged_of(digest, found, options, tell)
        dates = [item.day.date for item in good]
        params = present_params(digest)
        shown = found_in(digest, dates, begin)
        ground = backtest.BacktestInputs(
            history=options.history,
            work=below(options.out, options.work),
            period_ms=period_of(options, good),
            per_unit=per_unit(shown.capacity),
            params=params,
        )
        base: Parameters = restored(Parameters, {path.removeprefix("params."): item for path, item in params.items()})
        kept = HistoryFacts(
            found=found,
            judged=judged,
            dates=dates,
            period_seconds=ground.period_ms / 1000,
            without=without_hits(ground.period_ms / 1000, usual_interval(good)),
            cluster=cluster,
        )
        alone = without_search(options, base, kept, tell)
        told, chosen = searched(spark, options, ground, base, kept, progress)
    finally:
        digest.unpersist()
    reason, plans = chosen.choice.reason, chosen.plans
    shown = replace(shown, judged=judged, reason=reason, left_alone=alone, plans=plans)
    return written(options, told, chosen, shown, base)


def recalibrated(
    spark: SparkSession, options: Options, found: Sequence[HistoryPeriod], progress: Progress
) -> RecalibrationResult:
    """`recalibrate`, where a store that is away from a task is a StoreError as well."""
    try:
        return recalibrate(spark, options, found, progress)
    except PySparkException as error:
        lines = [line.strip() for line in str(error).splitlines() if _AWAY in line]
        if not lines:
            raise
        raise StoreError(lines[-1].partition(_AWAY)[2].strip(" :")) from None


def found_in(digest: DataFrame, dates: Sequence[str], begin: Tell) -> ReportInputs:
    """Capacity of brokers, the week and the busiest namespaces, of good days: what a bad one says of them is as bad."""
    usable = of_days(digest, dates)
    begin("capacity of brokers")
    rows = [row.asDict() for row in capacity(usable).orderBy("broker", "resource").collect()]
    begin("traffic by hour")
    hours = features.hourly(usable)
    return ReportInputs(capacity=rows, week=usual_week(hours), spaces=busiest(hours))


def judged_of(
    digest: DataFrame, found: Sequence[HistoryPeriod], options: Options, tell: Tell
) -> tuple[list[JudgedDay], list[JudgedDay]]:
    """Every day with its verdict, and the good ones. TooLittleHistory, BadDays."""
    leaders = at_once(found)
    days = [replace(day, leaders=leaders.get(day.date, "")) for day in quality.figures(digest)]
    judged = judge(days, options.rules)
    for item in judged:
        if item.reasons:
            tell(f"{item.day.date} {item.verdict}: {'; '.join(item.reasons)}")
    good = accept(judged, options.rules)
    tell(f"{len(good)} good days of {len(judged)}")
    return judged, good


def present_params(digest: DataFrame) -> dict[str, Any]:
    """`params.*` of the last recorded cycle: the settings in force. HistoryError when no cycle tells."""
    told = part(digest, "cycle").where(F.col("params").isNotNull())
    rows = told.orderBy(F.col("wall_ms").desc()).select("params").head(1)
    if not rows:
        raise HistoryError("no recorded cycle holds the parameters")
    found: dict[str, Any] = json.loads(rows[0]["params"])
    return found


def usual_week(hours: DataFrame) -> list[float | None]:
    """Bytes a second of the whole cluster, by hour of the week: 168 values at most."""
    whole = (
        hours.where(F.col("kind") == "broker")
        .groupBy("date", "hour")
        .agg(F.sum("bytes").alias("bytes"), F.sum("messages").alias("messages"), F.max("score").alias("score"))
    )
    named = whole.select(
        F.lit("cluster").alias("kind"), F.lit("").alias("name"), "*", F.col("bytes").alias("bytes_peak")
    )
    by_hour = {row["hour_of_week"]: row["bytes"] for row in features.week(named).collect()}
    return [by_hour.get(hour) for hour in range(168)]


def busiest(hours: DataFrame) -> list[dict[str, Any]]:
    """The namespaces with the most traffic, as rows of `PROFILE`."""
    found = features.profile(hours.where(F.col("kind") == "namespace"))
    rows = found.orderBy(F.col("bytes").desc(), "name").limit(MOST_ROWS).collect()
    return [row.asDict() for row in rows]


def period_of(options: Options, good: Sequence[JudgedDay]) -> int:
    """Milliseconds a period of the back-test: the usual time between two cycles, at least a minute."""
    if options.period_seconds > 0:
        return int(options.period_seconds * 1000)
    return max(int(core.SHORTEST_PERIOD_SECONDS), round(usual_interval(good))) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFacts:
    """What is known of the history, how often it is planned again, and which parameters it can say nothing
    of, and why."""

    found: Sequence[HistoryPeriod]
    judged: Sequence[JudgedDay]
    dates: Sequence[str]
    period_seconds: float
    without: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""


def searched(
    spark: SparkSession,
    options: Options,
    ground: backtest.BacktestInputs,
    base: Parameters,
    kept: HistoryFacts,
    progress: Progress,
) -> tuple[EvidenceInput, Selection]:
    """Dense arrays once, then the search, then the choice within reach of one night."""
    wanted = blocks_of(kept.found, kept.dates, hours=options.block_hours, warm_hours=options.warm_hours)
    progress.begin(f"rebuilding {numbered(len(wanted), 'block')}")
    try:
        there, without = backtest.made_dense(spark, wanted, ground)
        if without:
            raise HistoryError(f"blocks cannot be rebuilt: {without}")
        progress.tell(f"{len(there)} blocks, {sum(item.bytes for item in there) / 1e6:.0f} MB of arrays")
        runs = Runs(spark, there, ground.work, progress, base, rounds=1 + options.search.rounds)
        return judged_candidates(runs, options, base, kept)
    finally:
        OutputFolder(options.out).remove(options.work)


@dataclass(slots=True)
class Runs:
    """Runs candidates on all blocks, and keeps what came of each: key -> block -> figures. `rounds`: how often at
    most."""

    spark: SparkSession
    blocks: Sequence[backtest.DenseBlock]
    work: str
    progress: Progress
    base: Parameters
    rounds: int
    round: int = 0
    found: dict[str, dict[int, Any]] = field(default_factory=dict)

    def __call__(self, candidates: Sequence[Candidate]) -> Mapping[str, Mapping[int, Any]]:
        """Every candidate by block; those that were run before are not run again."""
        fresh = {item.key: item for item in candidates if item.key not in self.found}
        started = time.monotonic()
        if fresh:
            self._begin(fresh.values())
            alone = [[block] for block in self.blocks]
            for item in backtest.tried(self.spark, alone, list(fresh.values()), self.work):
                blocks = self.found.setdefault(item.candidate, {})
                blocks[item.number] = blocks[item.number] + item.measures if item.number in blocks else item.measures
            took = time.monotonic() - started
            left = math.ceil(took * (self.rounds - self.round) / 60)
            said = f"; about {left} min of search left" if left else ""
            self.progress.tell(f"{len(fresh)} candidates in {took:.0f} s, {len(self.found)} in all{said}")
        return {item.key: self.found[item.key] for item in candidates}

    def _begin(self, candidates: Collection[Candidate]) -> None:
        """The next round, and what it tries."""
        self.round += 1
        strategies = sorted({strategy_of(item, self.base) for item in candidates})
        names = {name for item in candidates for name in item.changes} - {"strategy"}
        names |= {"cycle.interval"} if any(item.cycle_seconds for item in candidates) else set()
        said = f"{numbered(len(candidates), 'candidate')} ({', '.join(strategies)}), other {some(sorted(names))}"
        grid = " (the grid)" if self.round == 1 else ""
        self.progress.tell(f"round {self.round} of {self.rounds}{grid}: {said}")
        self.progress.begin(f"search, round {self.round} of {self.rounds}")

    def unbroken(self, candidates: Sequence[Candidate], dates: Sequence[str]) -> dict[str, CandidateMeasures]:
        """Each in one unbroken run over the blocks of these days: a task, and so a core, each."""
        self.progress.begin("unbroken runs")
        started, whole = time.monotonic(), [block for block in self.blocks if block.date in dates]
        found = {item.key: CandidateMeasures() for item in candidates}
        for row in backtest.tried(self.spark, [whole], candidates, self.work):
            found[row.candidate] += row.measures
        self.progress.tell(
            f"{len(candidates)} unbroken runs over {numbered(len(dates), 'day')} in {time.monotonic() - started:.0f} s"
        )
        return found

    def numbers(self, dates: Sequence[str]) -> tuple[int, ...]:
        """Blocks of these days."""
        return tuple(item.number for item in self.blocks if item.date in dates)

    def plans(self, key: str) -> dict[str, int]:
        """How often this candidate was planned for on each day, warm-up not counted."""
        found = Counter[str]()
        for item in self.blocks:
            found[item.date] += round(self.found[key][item.number].plans)
        return dict(found)

    def on(self, dates: Sequence[str]) -> dict[str, dict[int, Any]]:
        """Figures by block of these days only."""
        numbers = set(self.numbers(dates))
        return {key: {at: part for at, part in rows.items() if at in numbers} for key, rows in self.found.items()}


def judged_candidates(
    runs: Runs, options: Options, base: Parameters, kept: HistoryFacts
) -> tuple[EvidenceInput, Selection]:
    """Search, choose, and put the document's ground together."""
    given = options.search
    dates = split_days({item.date for item in runs.blocks}, given.held_out)
    train, held = (runs.numbers(part) for part in dates)
    tried = search(
        space_of(options, base, kept),
        runs,
        blocks=train,
        points=given.points,
        rounds=given.rounds,
        keep=given.keep,
        tolerance=given.tolerance,
    )
    chosen = chosen_of(tried, base, given, train=train, held=held, reach=options.adoption.max_steps)
    candidate, present = chosen.choice.candidate, tried.candidates[tried.present]
    told = EvidenceInput(
        base=base,
        chosen=candidate,
        present=present,
        reason=chosen.choice.reason,
        blocks=runs.on(dates[1]),
        searched=runs.on(dates[0]),
        strategies=chosen.strategies,
        held_out=dates[1],
        data=data_of(kept),
        cluster=kept.cluster,
        created_ms=int(options.now.timestamp() * 1000),
        period_seconds=kept.period_seconds,
        advice=chosen.advice,
        seed=given.seed,
        tried=chosen.values,
        unbroken=runs.unbroken((present, candidate), dates[1]) if candidate.key != present.key else {},
    )
    labels = [item.date for item in runs.blocks if item.date in dates[1]]
    return told, replace(chosen, labels=labels, plans=runs.plans(present.key))


def space_of(options: Options, base: Parameters, kept: HistoryFacts) -> SearchSpace:
    """Where to look: no further than one night may go."""
    return SearchSpace(
        base=base,
        strategies=strategies_of(options, base),
        names=options.search.names,
        without=kept.without,
        reach=options.adoption.max_steps,
    )


def without_search(options: Options, base: Parameters, kept: HistoryFacts, tell: Tell) -> dict[str, str]:
    """What was asked for and is not searched, and why; each is told. ConfigError when nothing can be searched."""
    space = space_of(options, base, kept)
    searchable(space, options.search)
    alone = left_alone(space)
    for name, why in alone.items():
        tell(f"{name} is left as it is: {why}")
    return alone


def strategies_of(options: Options, base: Parameters) -> tuple[str, ...]:
    """Those asked for, the one in force first and always: its thresholds are what may be changed."""
    return tuple(dict.fromkeys((base.strategy, *options.strategies)))


def data_of(kept: HistoryFacts) -> core.Data:
    """What the document says of the history. Days that are left out count as nothing."""
    used = [item for item in kept.judged if item.day.date in set(kept.dates)]
    first, last = used[0].day, used[-1].day
    span = day_number(last.date) - day_number(first.date) + 1
    inside = [item for item in kept.judged if first.date <= item.day.date <= last.date]
    without = {item.day.date: item for item in inside if item.day.date not in set(kept.dates)}
    return core.Data(
        from_ms=first.first_ms,
        until_ms=last.last_ms,
        days=tuple(kept.dates),
        coverage=min(1.0, sum(item.day.coverage for item in used) / span),
        cycles=sum(item.day.cycles for item in used),
        bad_days={name: ("; ".join(item.reasons) or "left out by a person")[:500] for name, item in without.items()},
    )


def written(
    options: Options, told: EvidenceInput, chosen: Selection, shown: ReportInputs, base: Parameters
) -> RecalibrationResult:
    """The report first and the thresholds last: where these are found, the report is there as well."""
    document = thresholds_of(told, pyspark=pyspark.__version__)
    objections = core.checked(document, base, options.adoption, document.created_ms)
    shown = replace(
        shown,
        points=points_of(told, chosen),
        clients=clients_of(told),
        searched=searched_of(told),
        blocks=blocks_shown(told, chosen.labels),
        objections=objections,
        compared=options.adoption.interval_seconds > 0,
    )
    place, folder = OutputFolder(options.out), options.folder
    kept = place.keep(folder, (REPORT, NAME))
    report = place.write(f"{folder}/{REPORT}", page(document, shown).encode())
    text = json.dumps(document_of(document), indent=1, ensure_ascii=False) + "\n"
    path = place.write(f"{folder}/{NAME}", text.encode())
    return RecalibrationResult(
        thresholds=document,
        path=path,
        report=report,
        objections=objections,
        said=(
            *((f"what an earlier run of {folder} wrote is kept in {kept}",) if kept else ()),
            ". ".join(headline(document, objections, shown.reason)),
            *meanings(document),
            *(f"{item.code.value}: {item.detail}" for item in objections),
            *((how_to_adopt(document, objections),) if document.values != document.previous else ()),
        ),
    )


def day_number(name: str) -> int:
    """Days since 1970."""
    return (date.fromisoformat(name) - date(1970, 1, 1)).days
