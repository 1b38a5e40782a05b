"""The nightly run: quality, search by back-test, evidence, thresholds and report. Loads pyspark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import pyspark
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bundlekeel.model.errors import HistoryError, StoreError
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.text_format import numbered, some
from bundlekeel.planning.costs import CpuCosts
from bundlekeel.recalibration.backtest import Candidate
from bundlekeel.recalibration.backtest.choice import TriedCandidates, choose, ranked, split_days
from bundlekeel.recalibration.backtest.run import RECORDED
from bundlekeel.recalibration.backtest.search import SearchSpace, natives, pilot_days, search
from bundlekeel.recalibration.history.frames import restored
from bundlekeel.recalibration.history.ports import NAME
from bundlekeel.recalibration.jobs import backtest, quality
from bundlekeel.recalibration.jobs.digest import COSTS
from bundlekeel.recalibration.jobs.evidence import EvidenceInput, thresholds_of
from bundlekeel.recalibration.jobs.options import Options, cluster_of
from bundlekeel.recalibration.jobs.periods import HistoryPeriod
from bundlekeel.recalibration.jobs.places import OutputFolder
from bundlekeel.recalibration.jobs.read import digests, part, periods
from bundlekeel.recalibration.jobs.report import Report, as_json, days_of, how_to_adopt, meanings, page, points_of
from bundlekeel.recalibration.jobs.rules import JudgedDay, accept, find_parallel_leaders, judge
from bundlekeel.recalibration.jobs.selection import check_searchable, explain_limits, find_excluded
from bundlekeel.recalibration.rules.thresholds import Data, Thresholds, checked
from bundlekeel.recalibration.rules.thresholds_json import document_of

REPORT, JSON_REPORT = "report.html", "report.json"
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
    """The proposal of a nightly run, the places of its files, and the lines for the terminal."""

    thresholds: Thresholds
    path: str
    report: str
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
        searched = split_days(dates, options.search.held_out)[0]
        base, costs = present_state(digest, searched[-1])
    finally:
        digest.unpersist()
    inputs = backtest.BacktestInputs(
        history=options.history, periods=backtest.usable(history, dates), base=base, costs=costs
    )
    space = SearchSpace(base=base, requested=options.search.names, reach=options.adoption.max_steps)
    check_searchable(space, options.search)
    excluded = find_excluded(space)
    for name, why in excluded.items():
        tell(f"{name} is not changed: {why}")
    pilot = replace(inputs, periods=backtest.usable(history, pilot_days(searched)))
    runs = Runs(spark, inputs, pilot, progress, rounds=1 + options.search.rounds)
    evidence = search_and_choose(runs, space, options, data_of(judged, dates), cluster)
    return write_results(options, evidence, judged, excluded)


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


def present_state(digest: DataFrame, until: str) -> tuple[Parameters, CpuCosts]:
    """Return the parameters of the last recorded cycle, and the CPU costs learned by the end of the day `until`.

    Raises HistoryError if no cycle contains parameters, or if they do not fit this release.
    """
    cycles = part(digest, "cycle").where(F.col("params").isNotNull()).orderBy(F.col("wall_ms").desc())
    rows = [row for days in (cycles, cycles.where(F.col("date") <= until)) for row in days.select("params").head(1)]
    if len(rows) < 2:
        raise HistoryError("no recorded cycle contains the parameters")
    state: dict[str, Any] = json.loads(rows[0]["params"])
    costs: CpuCosts = restored(CpuCosts, json.loads(rows[1]["params"]).get(COSTS, {}))
    paths = (path for path in state if path != COSTS)
    params: Parameters = restored(Parameters, {path.removeprefix("params."): state[path] for path in paths})
    return params, costs


@dataclass(slots=True)
class Runs:
    """Runs candidates through all days and keeps their measures.

    `first`: the first days of the search. `results`: by candidate key, then by run and day. `rounds`: the most rounds.
    """

    spark: SparkSession
    inputs: backtest.BacktestInputs
    first: backtest.BacktestInputs
    progress: Progress
    rounds: int
    round: int = 0
    results: backtest.Results = field(default_factory=dict)

    def __call__(self, candidates: Sequence[Candidate]) -> backtest.Results:
        """Run a round of the search, from the recorded owners. Returns the measures of these candidates."""
        self.round += 1
        started, names = time.monotonic(), {name for item in candidates for name in item.changes}
        where = f"round {self.round} of {self.rounds}"
        text = f"{numbered(len(candidates), 'candidate')}, other {some(sorted(names))}"
        self.progress.tell(f"{where}{' (the grid)' if self.round == 1 else ''}: {text}")
        self.add(candidates, (RECORDED,), f"search, {where}")
        self.progress.tell(f"{len(candidates)} candidates in {time.monotonic() - started:.0f} s")
        return {item.key: self.results[item.key] for item in candidates}

    def pilot(self, candidates: Sequence[Candidate]) -> backtest.Results:
        """Run candidates through the first days of the search. Returns their measures, which are not kept."""
        self.progress.begin(f"search, first days of {numbered(len(candidates), 'candidate')}")
        return backtest.run_candidates(self.spark, candidates, (RECORDED,), self.first)

    def add(self, candidates: Sequence[Candidate], placements: Sequence[int], step: str) -> None:
        """Run these candidates from these placements, and add their measures to `results`."""
        self.progress.begin(step)
        for key, days in backtest.run_candidates(self.spark, candidates, placements, self.inputs).items():
            self.results.setdefault(key, {}).update(days)


def search_and_choose(runs: Runs, space: SearchSpace, options: Options, data: Data, cluster: str) -> EvidenceInput:
    """Search, judge the best candidate by the held-out days, and collect the evidence for `thresholds.json`."""
    depth = options.search
    train, held_out = ({day_number(name): name for name in names} for names in split_days(data.days, depth.held_out))
    tried = search(space, runs, runs.pilot, days=train, depth=depth)
    best, present = ranked(tried, train, depth.prefer, seed=depth.seed)[0], tried.candidates[tried.present]
    classes = natives()
    runs.add(classes, range(depth.placements), "Pulsar's own classes")
    finalists = list({item.key: item for item in (present, best)}.values())
    if depth.placements > 1:
        runs.add(finalists, range(1, depth.placements), "other placements")
    choice = choose(best, present, runs.results, held_out, depth.prefer, seed=depth.seed)
    candidates = {**tried.candidates, **{item.key: item for item in classes}}
    tried = TriedCandidates(present=tried.present, candidates=candidates, results=runs.results)
    return EvidenceInput(
        base=space.base,
        choice=choice,
        tried=tried,
        held_out=held_out,
        depth=depth,
        created_ms=int(options.now.timestamp() * 1000),
        limits=explain_limits(tried, choice, space.base, held_out, depth, options.adoption.max_steps),
        data=data,
        cluster=cluster,
    )


def data_of(judged: Sequence[JudgedDay], dates: Sequence[str]) -> Data:
    """Return the description of the history in `thresholds.json`. Omitted days count with a coverage of 0."""
    used = [item for item in judged if item.day.date in set(dates)]
    first, last = used[0].day, used[-1].day
    span = day_number(last.date) - day_number(first.date) + 1
    inside = [item for item in judged if first.date <= item.day.date <= last.date]
    without = {item.day.date: item for item in inside if item.day.date not in set(dates)}
    return Data(
        from_ms=first.first_ms,
        until_ms=last.last_ms,
        days=tuple(dates),
        coverage=min(1.0, sum(item.day.coverage for item in used) / span),
        cycles=sum(item.day.cycles for item in used),
        bad_days={name: ("; ".join(item.reasons) or "omitted by an operator")[:500] for name, item in without.items()},
    )


def write_results(
    options: Options, inputs: EvidenceInput, judged: Sequence[JudgedDay], left_alone: Mapping[str, str]
) -> RecalibrationResult:
    """Write the report, then `thresholds.json`, so that a proposal never exists without its report."""
    document = thresholds_of(inputs, pyspark=pyspark.__version__)
    report = Report(
        document=document,
        objections=checked(document, inputs.base, options.adoption, document.created_ms),
        days=days_of(inputs),
        trade_off=points_of(inputs),
        judged=judged,
        left_alone=left_alone,
    )
    place, folder = OutputFolder(options.out), options.folder
    html = place.write(f"{folder}/{REPORT}", page(report).encode())
    place.write(f"{folder}/{JSON_REPORT}", _encoded(as_json(report)))
    path = place.write(f"{folder}/{NAME}", _encoded(document_of(document)))
    return RecalibrationResult(
        thresholds=document,
        path=path,
        report=html,
        messages=(
            document.decision,
            *meanings(document),
            *(f"{item.code.value}: {item.detail}" for item in report.objections),
            *((how_to_adopt(document, report.objections),) if document.values != document.previous else ()),
        ),
    )


def _encoded(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode()


def day_number(name: str) -> int:
    """Return the days since 1970-01-01."""
    return (date.fromisoformat(name) - date(1970, 1, 1)).days
