"""What one run is asked to do, and what it would read. No Spark here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from bundlekeel.core.calibration.thresholds import AdoptionRules as Adoption
from bundlekeel.core.model.parameter_table import STRATEGIES
from bundlekeel.core.model.text_format import numbered
from bundlekeel.jobs.blocks import blocks_of
from bundlekeel.jobs.periods import HistoryPeriod, open_store, periods_of
from bundlekeel.jobs.places import OutputFolder, below
from bundlekeel.jobs.rules import HistoryRules, OtherCluster, TooLittleHistory, days_between
from bundlekeel.jobs.selection import SearchDepth
from bundlekeel.ports.history import clusters_of, mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run. `days`: at most so many, the newest. `period_seconds`: 0 takes the recorded interval, at least a minute.
    `now`: when it runs. `adoption`: by which rules sidecars will look at it; the search goes as far as these let."""

    history: str
    out: str
    now: datetime
    days: int = 28
    rules: HistoryRules = field(default_factory=HistoryRules)
    search: SearchDepth = field(default_factory=SearchDepth)
    strategies: tuple[str, ...] = STRATEGIES
    block_hours: int = 6
    warm_hours: int = 1
    period_seconds: float = 0.0
    adoption: Adoption = field(default_factory=Adoption)

    @property
    def folder(self) -> str:
        """Where the results go, below `out`: the day of the run."""
        return self.now.strftime("%Y-%m-%d")

    @property
    def work(self) -> str:
        """Where arrays lie while it runs, below `out`: no other run's."""
        return f"_work/{self.now.strftime('%Y%m%dT%H%M%S%f')}"


def reachable(options: Options, found: Sequence[HistoryPeriod]) -> None:
    """Ask the place of the results something. StoreError: it does not answer. TooLittleHistory: of too few days."""
    OutputFolder(options.out).check()
    if few := too_few(options, found):
        raise few


def too_few(options: Options, found: Sequence[HistoryPeriod]) -> TooLittleHistory | None:
    """The refusal where the names of the files say it already; how many good days and cycles there are, they do not.
    A day between them of which nothing is recorded counts: it is a bad one, and no waiting mends it."""
    days = set(days_between(found[0].date, found[-1].date)) - options.rules.leave_out
    needed = options.rules.min_days
    if len(days) >= needed:
        return None
    figures: dict[str, Any] = {
        "good_days": None,
        "min_days": needed,
        "span_days": len(days),
        "cycles": None,
        "bad_days": {},
    }
    said = f"history of {numbered(len(days), 'day')}; {needed} good days are needed"
    return TooLittleHistory(said, figures=figures)


def newest(options: Options) -> list[HistoryPeriod]:
    """The periods of the newest whole days, and of today, but the hour that is still written: what is read later would
    be more than what was listed. TooLittleHistory when there are none."""
    begun = options.now.strftime("%Y-%m-%d"), options.now.hour
    found = [item for item in periods_of(open_store(options.history).files()) if (item.date, item.hour) != begun]
    if not found:
        figures = {"good_days": 0, "min_days": options.rules.min_days, "span_days": 0, "cycles": 0, "bad_days": {}}
        needed = f"{options.rules.min_days} good days are needed; another place: --history"
        raise TooLittleHistory(f"nothing is recorded in {options.history}: {needed}", figures=figures)
    # There may be more days asked for than there have been. Today is no whole day.
    days = options.days + (found[-1].date == begun[0])
    first = date.fromordinal(max(1, date.fromisoformat(found[-1].date).toordinal() - days + 1)).isoformat()
    return [item for item in found if item.date >= first]


def unused(options: Options, found: Sequence[HistoryPeriod]) -> list[str]:
    """Days to leave out that are not between the first and the last day: perhaps misspelt, perhaps too old by now."""
    return sorted(options.rules.leave_out - set(days_between(found[0].date, found[-1].date)))


def cluster_of(options: Options, found: Sequence[HistoryPeriod]) -> str:
    """Whose history these periods are; empty: no file says. OtherCluster: of several clusters, or not of the one that
    the settings name."""
    clusters = clusters_of(open_store(options.history), [file for period in found for file in period.files])
    figures = {"clusters": {name: [file.path for file in files] for name, files in clusters.items()}}
    if said := mixed(clusters):
        raise OtherCluster(said, figures=figures)
    cluster, wanted = next(iter(clusters), ""), options.adoption.cluster
    if cluster and wanted and cluster != wanted:
        text = f"{options.history} is the history of cluster {cluster}, but the settings are for cluster {wanted}"
        raise OtherCluster(text, figures=figures)
    return cluster


def explained(options: Options, found: Sequence[HistoryPeriod]) -> dict[str, Any]:
    """What a run would read and compute: from names and sizes of the files only."""
    dates = sorted({item.date for item in found})
    used = set(dates) - options.rules.leave_out
    few = too_few(options, found)
    return {
        "history": options.history,
        "out": below(options.out, f"{options.folder}/thresholds.json"),
        "days": dates,
        "min_days": options.rules.min_days,
        "refused": few and f"{few.code}: {few}",
        "left_out": sorted(options.rules.leave_out),
        "hours": len(found),
        "files": sum(len(item.files) for item in found),
        "megabytes": round(sum(item.size for item in found) / 1e6, 3),
        "blocks": len(blocks_of(found, used, hours=options.block_hours, warm_hours=options.warm_hours)),
        "block_hours": options.block_hours,
        "warm_hours": options.warm_hours,
        "held_out": options.search.held_out,
        "period_seconds": options.period_seconds or "as recorded, at least 60",
        "strategies": list(options.strategies),
        "parameters": list(options.search.names) or "all that a strategy reads",
        "points": options.search.points,
        "rounds": options.search.rounds,
        "seed": options.search.seed,
        "max_steps": options.adoption.max_steps,
    }
