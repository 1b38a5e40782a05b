"""Output of `bundlekeel simulate`: measures of the balancers over seeds, and PIP-364's table of five properties."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from textwrap import fill

from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli.output import table
from bundlekeel.model.response_fields import Json
from bundlekeel.simulator.measures import RunMeasures
from bundlekeel.simulator.pairs import PROPERTIES, PairProperty
from bundlekeel.simulator.run import Run
from bundlekeel.simulator.scenario import Scenario

NEVER = "never"
FULL_WIDTH = 150


@dataclass(frozen=True, slots=True)
class Column:
    """One measure, as a column of the table. `why`: its explanation below the table."""

    title: str
    value: Callable[[RunMeasures], float | None]
    form: str
    why: str


COLUMNS = (
    Column("max/mean", lambda m: m.max_over_mean, ".3f", "most loaded broker over the mean, at the end"),
    Column(
        "over time", lambda m: m.mean_max_over_mean, ".3f", "most loaded broker over the mean, average of the whole run"
    ),
    Column("std %", lambda m: m.std, ".1f", "standard deviation of the loads, mean over the run, points of a broker"),
    Column(
        "balanced min",
        lambda m: m.balanced_minute,
        ".1f",
        "minute from which max/mean stays at the limit and no broker is empty",
    ),
    Column("over 85 % min", lambda m: m.over_minutes, ".1f", "minutes in which some broker is above 85 %"),
    Column("empty min", lambda m: m.empty_minutes, ".1f", "minutes in which some broker has under a tenth of the mean"),
    Column("moves", lambda m: float(m.moves), ".0f", "bundles moved by the balancer"),
    Column("unloads", lambda m: float(m.unloads), ".0f", "bundles that left their broker, for any cause"),
    Column("moved load", lambda m: m.moved_load, ".2f", "what they carried, in brokers' worth"),
    Column("twice", lambda m: float(m.moved_twice), ".0f", "bundles moved again within an hour"),
    Column("splits", lambda m: float(m.splits), ".0f", "bundles divided"),
    Column(
        "thrash %", lambda m: m.thrash_percent, ".0f", "ups and downs of loads beyond their trend, share of the mean"
    ),
    Column("client s", lambda m: m.client_seconds, ".0f", "clients times seconds without service, for any cause"),
)


def figure(runs: Sequence[Run], column: Column) -> str:
    """Return a measure as text: the value of a single run, or median and range of the runs with several seeds."""
    values = [column.value(run.measures) for run in runs]
    present = [value for value in values if value is not None]
    missing = len(values) - len(present)
    if not present:
        return NEVER
    # z: a value that rounds to 0 has no sign.
    middle, least, most = (f"{value:z{column.form}}" for value in (median(present), min(present), max(present)))
    if len(values) == 1:
        return middle
    text = f"{middle} ({least}-{most})"
    return f"{text}, {missing} {NEVER}" if missing else text


def grouped(runs: Sequence[Run]) -> list[tuple[Scenario, list[tuple[str, list[Run]]]]]:
    """Group runs by scenario, then by name of the balancer, in the order of the runs."""
    groups: dict[str, tuple[Scenario, dict[str, list[Run]]]] = {}
    for run in runs:
        _, by_label = groups.setdefault(run.scenario.name, (run.scenario, {}))
        by_label.setdefault(run.contender.label, []).append(run)
    return [(scenario, list(by_label.items())) for scenario, by_label in groups.values()]


def counts(run: Run) -> bool:
    """Return whether the command fails if this run misses an expectation; False: the run is only a comparison."""
    return not run.contender.compared


def as_table(runs: Sequence[Run], width: int) -> RenderableType:
    """Render one table of balancers per scenario, and the missed expectations.

    `width`: columns of the screen. If one row per balancer does not fit (all measures of one seed need 150 columns),
    the table has one column per balancer.
    """
    wide = width >= FULL_WIDTH and all(len(by_seed) == 1 for _, rows in grouped(runs) for _, by_seed in rows)
    tables = (part for scenario, rows in grouped(runs) for part in _scenario(scenario, rows, wide=wide))
    changed = {run.contender.label: other_values(run.contender.parameters) for run in runs if not run.contender.native}
    notes = [Text(f"{label}: {values}\n") for label, values in changed.items() if values]
    sources = {run.contender.label: run.contender.source for run in runs if run.contender.kind == "bundlekeel"}
    read = "; ".join(f"{label} reads {source}" for label, source in sources.items())
    notes += [Text(f"{read}; brokers' own classes read reports.\n")] if sources else []
    legend = "; ".join(f"{column.title}: {column.why}" for column in COLUMNS)
    # If the output is not a terminal, `width` is that of the widest table: do not make the legend as wide.
    legend = fill(legend, min(width, 100), break_on_hyphens=False)
    return Group(*tables, *notes, Text(legend, style="dim"))


def other_values(parameters: Mapping[str, object]) -> str:
    """Return the parameters that are not defaults, without the strategy: `avg_low_threshold_percent 5, ...`."""
    texts = {name: f"{item:.12g}" if isinstance(item, float) else item for name, item in parameters.items()}
    return ", ".join(f"{name} {item}" for name, item in texts.items() if name != "strategy")


def _scenario(scenario: Scenario, rows: list[tuple[str, list[Run]]], *, wide: bool) -> list[RenderableType]:
    head = f"{scenario.name}: {scenario.title} ({scenario.minutes:g} minutes)"
    labels = [f">{label}" for label, _ in rows]
    heads = ("strategy", "expected", *(f">{column.title}" for column in COLUMNS))
    # Print the title above the table: a table's own title would be wrapped to the width of the table.
    listing = table(*heads) if wide else table("", *labels)
    notes: list[RenderableType] = []
    cells: list[tuple[str | Text, ...]] = []
    for label, runs in rows:
        failed = [(run, item) for run in runs for item in run.failed]
        state = Text("held", style="green") if not failed else Text("not held", style="red")
        cells.append((label, state, *(figure(runs, column) for column in COLUMNS)))
        for run, item in failed[:6]:
            seed = f" (seed {run.seed})" if len(runs) > 1 else ""
            notes.append(Text(f"  {label}{seed}: {item.name}: {item.detail}", style="red" if counts(run) else "yellow"))
    names = ("strategy", "expected", *(column.title for column in COLUMNS))
    transposed = list(zip(names, *cells, strict=True))[1:]
    for row in cells if wide else transposed:
        listing.add_row(*row)
    return [Text(head, style="bold"), listing, *notes, Text("")]


def as_json(runs: Sequence[Run]) -> Json:
    """Return all runs with all measures as JSON."""
    return {
        "runs": [
            {
                "scenario": run.scenario.name,
                "case": run.scenario.case,
                "strategy": run.contender.label,
                "balancer": run.contender.kind,
                "source": run.contender.source,
                "seed": run.seed,
                "cycles": run.books.cycles,
                "digest": run.digest,
                "measures": asdict(run.measures),
                "expected": [asdict(item) for item in run.findings],
                "verdicts": dict(run.books.verdicts.most_common()),
                "refusals": dict(run.books.refusals.most_common()),
                "slowest_plan_seconds": run.books.slowest,
            }
            for run in runs
        ],
        "failed": sum(bool(run.failed) for run in runs if counts(run)),
    }


# --- PIP-364 ---------------------------------------------------------------------------------------------------

PAIRS_TITLE = "PIP-364's five properties, measured (median over the seeds; smaller is better)"


def pair_rows(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return one row per balancer, with its name and one value per property of PIP-364."""
    labels = dict.fromkeys(run.contender.label for run in runs)
    return [(label, [_text(_figure(runs, label, item)) for item in PROPERTIES]) for label in labels]


def _figure(runs: Sequence[Run], label: str, item: PairProperty) -> float:
    return median(
        item.figure(run) for run in runs if run.contender.label == label and run.scenario.name == item.scenario
    )


def _text(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.3g}"


def pairs_table(runs: Sequence[Run]) -> RenderableType:
    """Render PIP-364's table for a terminal."""
    listing = table("combination", *(f"{item.title}\n({item.unit})" for item in PROPERTIES), title=PAIRS_TITLE)
    for label, cells in pair_rows(runs):
        listing.add_row(label, *cells)
    return listing


def pairs_json(runs: Sequence[Run]) -> Json:
    """Return the values of PIP-364's table; null: never balanced."""
    labels = dict.fromkeys(run.contender.label for run in runs)
    return {
        "properties": [
            {
                "combination": label,
                **{
                    item.scenario.removeprefix("pip364-"): None if math.isinf(value) else value
                    for item in PROPERTIES
                    for value in [_figure(runs, label, item)]
                },
            }
            for label in labels
        ]
    }
