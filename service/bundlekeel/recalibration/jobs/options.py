"""Options of one run of the nightly job, and the history that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from bundlekeel.model.text_format import numbered
from bundlekeel.model.uris import below
from bundlekeel.recalibration.backtest.search import SearchDepth
from bundlekeel.recalibration.history.ports import clusters_of, mixed
from bundlekeel.recalibration.jobs.periods import HistoryPeriod, periods_of
from bundlekeel.recalibration.jobs.places import OutputFolder
from bundlekeel.recalibration.jobs.rules import BadDays, HistoryRules, OtherCluster, TooLittleHistory, days_between
from bundlekeel.recalibration.parquet import ParquetStore
from bundlekeel.recalibration.rules.thresholds import AdoptionRules as Adoption


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of one nightly run.

    `days`: number of the newest days to use, at most. `now`: start of the run. `adoption`: conditions under which
    sidecars adopt a proposal; the search stays within them.
    """

    history: str
    out: str
    now: datetime
    days: int = 28
    rules: HistoryRules = field(default_factory=HistoryRules)
    search: SearchDepth = field(default_factory=SearchDepth)
    adoption: Adoption = field(default_factory=Adoption)

    @property
    def folder(self) -> str:
        """Directory of the results below `out`: the start of the run, because no run may change results of another."""
        return self.now.strftime("%Y-%m-%dT%H%M%SZ")


def check_start(options: Options, history: Sequence[HistoryPeriod]) -> None:
    """Check that results can be written and that there are enough days.

    Raises StoreError if the directory of the results does not respond, and TooLittleHistory if there are too few days.
    """
    OutputFolder(options.out).check()
    if refusal := too_few(options, history):
        raise refusal


def too_few(options: Options, history: Sequence[HistoryPeriod]) -> TooLittleHistory | None:
    """Return the error if the names of the files show that there are too few days, else None.

    Which days are good is only known after reading them. A day without records between two others counts as a day here:
    the run then reports that it is bad.
    """
    days = set(days_between(history[0].date, history[-1].date)) - options.rules.leave_out
    needed = options.rules.min_days
    if len(days) >= needed:
        return None
    figures = dict[str, Any](good_days=None, min_days=needed, span_days=len(days), cycles=None, bad_days={})
    message = f"history of {numbered(len(days), 'day')}; {needed} good days are needed"
    return TooLittleHistory(message, figures=figures)


def newest(options: Options) -> list[HistoryPeriod]:
    """Return the periods of the newest whole days and of today, without the current hour.

    Raises TooLittleHistory if nothing is recorded, and BadDays if a file is from the future.
    """
    current_hour = options.now.strftime("%Y-%m-%d"), options.now.hour
    periods = [
        item for item in periods_of(ParquetStore(options.history).files()) if (item.date, item.hour) != current_hour
    ]
    if not periods:
        figures = {"good_days": 0, "min_days": options.rules.min_days, "span_days": 0, "cycles": 0, "bad_days": {}}
        needed = f"{options.rules.min_days} good days are needed; choose another place with --history"
        raise TooLittleHistory(f"nothing is recorded in {options.history}: {needed}", figures=figures)
    # A leader's clock may be a little ahead.
    soon, newest_file = options.now + timedelta(hours=1), periods[-1].files[-1]
    if (newest_file.date, newest_file.hour) > (soon.strftime("%Y-%m-%d"), soon.hour):
        text = (
            f"{newest_file.path} is from the future (now is {options.now:%Y-%m-%d %H:%M} UTC): the clock of its leader "
            "or of this host was wrong; move the file away, or set the clock"
        )
        raise BadDays(text, figures={"bad_days": {newest_file.date: text}})
    # Today does not count as one of the requested days.
    days = options.days + (periods[-1].date == current_hour[0])
    first = date.fromordinal(max(1, date.fromisoformat(periods[-1].date).toordinal() - days + 1)).isoformat()
    return [item for item in periods if item.date >= first]


def cluster_of(options: Options, history: Sequence[HistoryPeriod]) -> str:
    """Return the name of the cluster that recorded the periods; empty if no file contains a name.

    Raises OtherCluster if several clusters recorded them, or another cluster than the one in the settings.
    """
    clusters = clusters_of(ParquetStore(options.history), [file for period in history for file in period.files])
    figures = {"clusters": {name: [file.path for file in files] for name, files in clusters.items()}}
    if fault := mixed(clusters):
        raise OtherCluster(fault, figures=figures)
    cluster, expected = next(iter(clusters), ""), options.adoption.cluster
    if cluster and expected and cluster != expected:
        text = f"{options.history} is the history of cluster {cluster}, but the settings are for cluster {expected}"
        raise OtherCluster(text, figures=figures)
    return cluster


def explain(options: Options, history: Sequence[HistoryPeriod]) -> dict[str, Any]:
    """Return a description of what a run would read and compute. Only names and sizes of files are used."""
    refusal, search = too_few(options, history), asdict(options.search)
    names = search.pop("names")
    return search | {
        "history": options.history,
        "out": below(options.out, f"{options.folder}/thresholds.json"),
        "days": sorted({item.date for item in history}),
        "min_days": options.rules.min_days,
        "refused": refusal and f"{refusal.code}: {refusal}",
        "left_out": sorted(options.rules.leave_out),
        "hours": len(history),
        "files": sum(len(item.files) for item in history),
        "megabytes": round(sum(item.size for item in history) / 1e6, 3),
        "parameters": list(names) or "all that the strategy reads",
        "max_steps": options.adoption.max_steps,
    }
