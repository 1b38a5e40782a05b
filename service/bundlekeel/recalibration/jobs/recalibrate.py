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

from bundlekeel.model.errors import HistoryError, StoreError
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.text_format import numbered, some
from bundlekeel.model.uris import below
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures
from bundlekeel.recalibration.backtest.choice import split_days
from bundlekeel.recalibration.backtest.search import SearchSpace, search, strategy_of
from bundlekeel.recalibration.history.frames import restored
from bundlekeel.recalibration.history.ports import NAME
from bundlekeel.recalibration.jobs import backtest, features, quality
from bundlekeel.recalibration.jobs.blocks import blocks_of
from bundlekeel.recalibration.jobs.capacity import capacity, per_unit
from bundlekeel.recalibration.jobs.evidence import EvidenceInput, thresholds_of
from bundlekeel.recalibration.jobs.options import Options, cluster_of
from bundlekeel.recalibration.jobs.periods import HistoryPeriod
from bundlekeel.recalibration.jobs.places import OutputFolder
from bundlekeel.recalibration.jobs.read import digests, of_days, part, periods
from bundlekeel.recalibration.jobs.report import (
    MOST_ROWS,
    ReportInputs,
    block_series,
    clients_of,
    headline,
    how_to_adopt,
    meanings,
    page,
    points_of,
    searched_of,
)
from bundlekeel.recalibration.jobs.rules import (
    JudgedDay,
    accept,
    find_parallel_leaders,
    judge,
    usual_interval,
    without_hits,
)
from bundlekeel.recalibration.jobs.selection import Selection, check_searchable, find_excluded, select
from bundlekeel.recalibration.rules.thresholds import SHORTEST_PERIOD_SECONDS, Data, Objection, Thresholds, checked
from bundlekeel.recalibration.rules.thresholds_json import document_of

REPORT: Final = "report.html"
Tell = Callable[[str], None]
# A failed task's message contains this name if the task could not reach a store.
_AWAY = "bundlekeel.model.errors.StoreError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Functions that show the progress of a run.

    `tell` prints a permanent line. `begin` is called with the name of a step before Spark computes the step.
    """

    tell: Tell
    begin: Tell


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalibrationResult:
    """The proposal of a nightly run, and the places of its files.

    `objections`: why the sidecars would not adopt the proposal automatically. `messages`: lines for the terminal.
    """

    thresholds: Thresholds
    path: str
    report: str
    objections: tuple[Objection, ...]
    messages: tuple[str, ...]


def recalibrate(
    spark: SparkSession, options: Options, history: Sequence[HistoryPeriod], progress: Progress
) -> RecalibrationResult:
    """Judge the history, search for better thresholds, and write the proposal and the report.

    `history`: periods from `options.newest`. Raises TooLittleHistory, BadDays or OtherCluster if the history cannot be
    used; nothing is written then. Raises StoreError if a store is unreachable, and ConfigError if no requested
    parameter can be searched.
    """
    tell, begin = progress.tell, progress.begin
    tell(f"{len(history)} hours of history, {sum(item.size for item in history) / 1e6:.1f} MB")
    cluster = cluster_of(options, history)
    digest = digests(periods(spark, history), options.history).persist(StorageLevel.DISK_ONLY)
    try:
        begin("reading the days")
        judged, good = judge_days(digest, history, options, tell)
        dates = [item.day.date for item in good]
        params = present_params(digest)
        report = compute_report_inputs(digest, dates, begin)
        inputs = backtest.BacktestInputs(
            history=options.history,
            work=below(options.out, options.work),
            period_ms=period_of(options, good),
            per_unit=per_unit(report.capacity),
            params=params,
        )
        base: Parameters = restored(Parameters, {path.removeprefix("params."): item for path, item in params.items()})
        facts = HistoryFacts(
            history=history,
            judged=judged,
            dates=dates,
            period_seconds=inputs.period_ms / 1000,
            without=without_hits(inputs.period_ms / 1000, usual_interval(good)),
            cluster=cluster,
        )
        excluded = report_excluded(options, base, facts, tell)
        evidence, selection = searched(spark, options, inputs, base, facts, progress)
    finally:
        digest.unpersist()
    reason, plans = selection.choice.reason, selection.plans
    report = replace(report, judged=judged, reason=reason, left_alone=excluded, plans=plans)
    return write_results(options, evidence, selection, report, base)


def run_recalibration(
    spark: SparkSession, options: Options, history: Sequence[HistoryPeriod], progress: Progress
) -> RecalibrationResult:
    """Run `recalibrate`. If a Spark task failed because it could not reach a store, raise StoreError instead."""
    try:
        return recalibrate(spark, options, history, progress)
    except PySparkException as error:
        lines = [line.strip() for line in str(error).splitlines() if _AWAY in line]
        if not lines:
            raise
        raise StoreError(lines[-1].partition(_AWAY)[2].strip(" :")) from None


def compute_report_inputs(digest: DataFrame, dates: Sequence[str], begin: Tell) -> ReportInputs:
    """Return the facts about the good days that the report shows: capacity of brokers, usual week, busiest
    namespaces."""
    usable = of_days(digest, dates)
    begin("capacity of brokers")
    rows = [row.asDict() for row in capacity(usable).orderBy("broker", "resource").collect()]
    begin("traffic by hour")
    hours = features.hourly(usable)
    return ReportInputs(capacity=rows, week=usual_week(hours), spaces=busiest(hours))


def judge_days(
    digest: DataFrame, history: Sequence[HistoryPeriod], options: Options, tell: Tell
) -> tuple[list[JudgedDay], list[JudgedDay]]:
    """Return all days with their verdicts, and the good days. Raises TooLittleHistory or BadDays."""
    leaders = find_parallel_leaders(history)
    days = [replace(day, leaders=leaders.get(day.date, "")) for day in quality.figures(digest)]
    judged = judge(days, options.rules)
    for item in judged:
        if item.reasons:
            tell(f"{item.day.date} {item.verdict}: {'; '.join(item.reasons)}")
    good = accept(judged, options.rules)
    tell(f"{len(good)} good days of {len(judged)}")
    return judged, good


def present_params(digest: DataFrame) -> dict[str, Any]:
    """Return the present settings: the parameters of the last recorded cycle, by path (`params.*`).

    Raises HistoryError if no cycle contains parameters.
    """
    cycles = part(digest, "cycle").where(F.col("params").isNotNull())
    rows = cycles.orderBy(F.col("wall_ms").desc()).select("params").head(1)
    if not rows:
        raise HistoryError("no recorded cycle contains the parameters")
    params: dict[str, Any] = json.loads(rows[0]["params"])
    return params


def usual_week(hours: DataFrame) -> list[float | None]:
    """Return the bytes per second of the whole cluster by hour of the week: 168 values; None: no record."""
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
    """Return the namespaces with the most traffic, as rows of `PROFILE`."""
    profiles = features.profile(hours.where(F.col("kind") == "namespace"))
    rows = profiles.orderBy(F.col("bytes").desc(), "name").limit(MOST_ROWS).collect()
    return [row.asDict() for row in rows]


def period_of(options: Options, good: Sequence[JudgedDay]) -> int:
    """Return the milliseconds of a back-test period: the usual time between two cycles, at least one minute."""
    if options.period_seconds > 0:
        return int(options.period_seconds * 1000)
    return max(int(SHORTEST_PERIOD_SECONDS), round(usual_interval(good))) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFacts:
    """Facts about the history, for the search and for `thresholds.json`.

    `judged`: all days; `dates`: good days. `period_seconds`: seconds between two plans of the back-test. `without`:
    parameters that cannot be tested with this history, and why.
    """

    history: Sequence[HistoryPeriod]
    judged: Sequence[JudgedDay]
    dates: Sequence[str]
    period_seconds: float
    without: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""


def searched(
    spark: SparkSession,
    options: Options,
    inputs: backtest.BacktestInputs,
    base: Parameters,
    facts: HistoryFacts,
    progress: Progress,
) -> tuple[EvidenceInput, Selection]:
    """Store the blocks of history as arrays, search, and select thresholds that could be adopted in one night."""
    blocks = blocks_of(facts.history, facts.dates, hours=options.block_hours, warm_hours=options.warm_hours)
    progress.begin(f"rebuilding {numbered(len(blocks), 'block')}")
    try:
        usable, without = backtest.build_dense(spark, blocks, inputs)
        if without:
            raise HistoryError(f"blocks cannot be rebuilt: {without}")
        progress.tell(f"{len(usable)} blocks, {sum(item.bytes for item in usable) / 1e6:.0f} MB of arrays")
        runs = Runs(spark, usable, inputs.work, progress, base, rounds=1 + options.search.rounds)
        return search_and_select(runs, options, base, facts)
    finally:
        OutputFolder(options.out).remove(options.work)


@dataclass(slots=True)
class Runs:
    """Runs candidates on all blocks and keeps their measures.

    `results`: measures by candidate key, then by block number. `rounds`: highest number of rounds of the search.
    """

    spark: SparkSession
    blocks: Sequence[backtest.DenseBlock]
    work: str
    progress: Progress
    base: Parameters
    rounds: int
    round: int = 0
    results: dict[str, dict[int, Any]] = field(default_factory=dict)

    def __call__(self, candidates: Sequence[Candidate]) -> Mapping[str, Mapping[int, Any]]:
        """Return the measures of every candidate by block. Only candidates without results are run."""
        new = {item.key: item for item in candidates if item.key not in self.results}
        started = time.monotonic()
        if new:
            self._begin(new.values())
            runs = [[block] for block in self.blocks]
            for item in backtest.run_candidates(self.spark, runs, list(new.values()), self.work):
                blocks = self.results.setdefault(item.candidate, {})
                blocks[item.number] = blocks[item.number] + item.measures if item.number in blocks else item.measures
            took = time.monotonic() - started
            left = math.ceil(took * (self.rounds - self.round) / 60)
            estimate = f"; about {left} min of search left" if left else ""
            self.progress.tell(f"{len(new)} candidates in {took:.0f} s, {len(self.results)} in all{estimate}")
        return {item.key: self.results[item.key] for item in candidates}

    def _begin(self, candidates: Collection[Candidate]) -> None:
        self.round += 1
        strategies = sorted({strategy_of(item, self.base) for item in candidates})
        names = {name for item in candidates for name in item.changes} - {"strategy"}
        names |= {"cycle.interval"} if any(item.cycle_seconds for item in candidates) else set()
        subject = f"{numbered(len(candidates), 'candidate')} ({', '.join(strategies)}), other {some(sorted(names))}"
        grid = " (the grid)" if self.round == 1 else ""
        self.progress.tell(f"round {self.round} of {self.rounds}{grid}: {subject}")
        self.progress.begin(f"search, round {self.round} of {self.rounds}")

    def unbroken(self, candidates: Sequence[Candidate], dates: Sequence[str]) -> dict[str, CandidateMeasures]:
        """Run each candidate over all blocks of these days without a new start at each block. Each run uses one
        core."""
        self.progress.begin("unbroken runs")
        started, whole = time.monotonic(), [block for block in self.blocks if block.date in dates]
        totals = {item.key: CandidateMeasures() for item in candidates}
        for row in backtest.run_candidates(self.spark, [whole], candidates, self.work):
            totals[row.candidate] += row.measures
        self.progress.tell(
            f"{len(candidates)} unbroken runs over {numbered(len(dates), 'day')} in {time.monotonic() - started:.0f} s"
        )
        return totals

    def numbers(self, dates: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of the blocks of history on these days."""
        return tuple(item.number for item in self.blocks if item.date in dates)

    def plans(self, key: str) -> dict[str, int]:
        """Return the number of plans of the candidate with this key, by day, without the warm-up."""
        plans = Counter[str]()
        for item in self.blocks:
            plans[item.date] += round(self.results[key][item.number].plans)
        return dict(plans)

    def on(self, dates: Sequence[str]) -> dict[str, dict[int, Any]]:
        """Return the measures of all candidates by block, only for blocks of these days."""
        numbers = set(self.numbers(dates))
        return {key: {at: part for at, part in rows.items() if at in numbers} for key, rows in self.results.items()}


def search_and_select(
    runs: Runs, options: Options, base: Parameters, facts: HistoryFacts
) -> tuple[EvidenceInput, Selection]:
    """Search, select the proposal, and collect the evidence for `thresholds.json`."""
    depth = options.search
    dates = split_days({item.date for item in runs.blocks}, depth.held_out)
    train, held_out = (runs.numbers(part) for part in dates)
    tried = search(
        space_of(options, base, facts),
        runs,
        blocks=train,
        points=depth.points,
        rounds=depth.rounds,
        keep=depth.keep,
        tolerance=depth.tolerance,
    )
    selection = select(tried, base, depth, train=train, held_out=held_out, reach=options.adoption.max_steps)
    candidate, present = selection.choice.candidate, tried.candidates[tried.present]
    evidence = EvidenceInput(
        base=base,
        chosen=candidate,
        present=present,
        reason=selection.choice.reason,
        blocks=runs.on(dates[1]),
        searched=runs.on(dates[0]),
        strategies=selection.strategies,
        held_out=dates[1],
        data=data_of(facts),
        cluster=facts.cluster,
        created_ms=int(options.now.timestamp() * 1000),
        period_seconds=facts.period_seconds,
        advice=selection.advice,
        seed=depth.seed,
        tried=selection.values,
        unbroken=runs.unbroken((present, candidate), dates[1]) if candidate.key != present.key else {},
    )
    labels = [item.date for item in runs.blocks if item.date in dates[1]]
    return evidence, replace(selection, labels=labels, plans=runs.plans(present.key))


def space_of(options: Options, base: Parameters, facts: HistoryFacts) -> SearchSpace:
    """Return the values to search: those that could be adopted in one night."""
    return SearchSpace(
        base=base,
        strategies=strategies_of(options, base),
        names=options.search.names,
        without=facts.without,
        reach=options.adoption.max_steps,
    )


def report_excluded(options: Options, base: Parameters, facts: HistoryFacts, tell: Tell) -> dict[str, str]:
    """Report and return the requested parameters that are not searched, and why.

    Raises ConfigError if nothing can be searched.
    """
    space = space_of(options, base, facts)
    check_searchable(space, options.search)
    excluded = find_excluded(space)
    for name, why in excluded.items():
        tell(f"{name} is not changed: {why}")
    return excluded


def strategies_of(options: Options, base: Parameters) -> tuple[str, ...]:
    """Return the strategies to test: first the active one, whose thresholds may be changed, then the requested ones."""
    return tuple(dict.fromkeys((base.strategy, *options.strategies)))


def data_of(facts: HistoryFacts) -> Data:
    """Return the description of the history in `thresholds.json`. Omitted days count with a coverage of 0."""
    used = [item for item in facts.judged if item.day.date in set(facts.dates)]
    first, last = used[0].day, used[-1].day
    span = day_number(last.date) - day_number(first.date) + 1
    inside = [item for item in facts.judged if first.date <= item.day.date <= last.date]
    without = {item.day.date: item for item in inside if item.day.date not in set(facts.dates)}
    return Data(
        from_ms=first.first_ms,
        until_ms=last.last_ms,
        days=tuple(facts.dates),
        coverage=min(1.0, sum(item.day.coverage for item in used) / span),
        cycles=sum(item.day.cycles for item in used),
        bad_days={name: ("; ".join(item.reasons) or "omitted by an operator")[:500] for name, item in without.items()},
    )


def write_results(
    options: Options, inputs: EvidenceInput, selection: Selection, report_inputs: ReportInputs, base: Parameters
) -> RecalibrationResult:
    """Write the report, then `thresholds.json`, so that a proposal never exists without a report."""
    document = thresholds_of(inputs, pyspark=pyspark.__version__)
    objections = checked(document, base, options.adoption, document.created_ms)
    report_inputs = replace(
        report_inputs,
        points=points_of(inputs, selection),
        clients=clients_of(inputs),
        searched=searched_of(inputs),
        blocks=block_series(inputs, selection.labels),
        objections=objections,
        compared=options.adoption.interval_seconds > 0,
    )
    place, folder = OutputFolder(options.out), options.folder
    copy = place.keep(folder, (REPORT, NAME))
    report = place.write(f"{folder}/{REPORT}", page(document, report_inputs).encode())
    text = json.dumps(document_of(document), indent=1, ensure_ascii=False) + "\n"
    path = place.write(f"{folder}/{NAME}", text.encode())
    return RecalibrationResult(
        thresholds=document,
        path=path,
        report=report,
        objections=objections,
        messages=(
            *((f"the results of an earlier run of {folder} were copied to {copy}",) if copy else ()),
            ". ".join(headline(document, objections, report_inputs.reason)),
            *meanings(document),
            *(f"{item.code.value}: {item.detail}" for item in objections),
            *((how_to_adopt(document, objections),) if document.values != document.previous else ()),
        ),
    )


def day_number(name: str) -> int:
    """Return the days since 1970-01-01."""
    return (date.fromisoformat(name) - date(1970, 1, 1)).days
