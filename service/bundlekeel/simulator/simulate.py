"""`bundlekeel simulate`: run scenarios on a virtual cluster and compare strategies. Needs no cluster and no sidecar."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bundlekeel.cli import completion
from bundlekeel.cli.exit_codes import BAD_NEWS, USAGE, CliError, guarded
from bundlekeel.cli.output import Output, OutputOption, ProgressLine, TableLayout, table, tell
from bundlekeel.cli.session import pairs_of, set_option
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.text_format import how_far, numbered
from bundlekeel.settings.parameters import canonical
from bundlekeel.simulator import sim_files
from bundlekeel.simulator.pairs import NATIVE, PROPERTIES, RELEASE, contender, native, pairs
from bundlekeel.simulator.run import Contender, Run
from bundlekeel.simulator.run import simulate as run_scenario
from bundlekeel.simulator.scenario import Scenario
from bundlekeel.simulator.simulate_report import as_json, as_table, counts, pairs_json, pairs_table


def _complete_scenario(incomplete: str) -> list[str]:
    return [item.name for item in sim_files.suite() if item.name.startswith(incomplete)]


FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCENARIO", help="YAML file, or the name of a shipped scenario.", autocompletion=_complete_scenario
    ),
]
StrategyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--strategy", "-s", help="Strategy to run; repeatable. Default: avg.", autocompletion=completion.strategies
    ),
]
PairOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pair",
        help="shedder+placement of Pulsar; repeatable. `all`: the six pairs of PIP-364, avg and transfer. Without a "
        "scenario: measure the five properties of PIP-364's table.",
    ),
]
SourceOption = Annotated[
    Literal["counters", "reports"],
    typer.Option(
        "--source",
        help="Source of the loads: brokers' counters (default), or only their reports, as with `counters.source: off`. "
        "Brokers' own classes always read reports.",
    ),
]
ShowOption = Annotated[
    str,
    typer.Option(
        "--show",
        metavar="NAME",
        help="Print the file of a shipped scenario, as a template for a new one.",
        autocompletion=_complete_scenario,
    ),
]

# Seconds between two progress lines if the output is not a terminal.
_LINE_SECONDS = 30.0


@guarded
def simulate(  # noqa: PLR0913, PLR0917 - the options of one command
    files: FilesArgument = None,
    strategy: StrategyOption = None,
    pair: PairOption = None,
    against: Annotated[
        Literal["native", "native-5.0"] | None,
        typer.Option("--against", help="Compare with the brokers' own classes of these strategies."),
    ] = None,
    sets: Annotated[
        list[str] | None, set_option("Parameter value; adds one column per strategy in which all these values apply")
    ] = None,
    source: SourceOption = "counters",
    suite: Annotated[bool, typer.Option("--suite", help="Run all shipped scenarios.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the shipped scenarios.")] = False,
    shown: ShowOption = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of random traffic, delays and losses.")] = 1,
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds: 1-20, or 1,5,9.")] = "",
    output: OutputOption = Output.TABLE,
    html: Annotated[Path | None, typer.Option("--html", help="File for an HTML page with plots.")] = None,
) -> None:
    """Run scenarios on a virtual cluster and compare strategies. Exit code 1 if an expectation is not met.

    Brokers' own classes (`--against native`, `--pair`) are for comparison: their missed expectations are shown, but are
    not failures.
    """
    if listed:
        _list(output)
        return
    if shown:
        typer.echo(sim_files.shipped_text(shown), nl=False)
        return
    if html is not None and (html.is_dir() or not os.access(html.parent, os.W_OK)):
        raise CliError(f"--html {html}: not a file that can be written; its directory must exist", USAGE)
    page = _page_renderer() if html is not None else None
    numbers = _seeds(seeds) or [seed]
    of_pairs = bool(pair) and not files and not suite
    scenarios = _scenarios(files or [], suite=suite, of_pairs=of_pairs)
    contenders = [
        replace(item, source=source) if item.kind == "bundlekeel" else item
        for item in _contenders(strategy or [], pair or [], against, pairs_of(sets or []))
    ]
    runs = _run(scenarios, contenders, numbers)
    answer: Any = (pairs_json(runs) if of_pairs else {}) | as_json(runs)
    tell(answer, lambda _, layout: pairs_table(runs) if of_pairs else as_table(runs, layout.width), output)
    if html is not None and page is not None:
        origin = f"Created {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by: bundlekeel {shlex.join(sys.argv[1:])}."
        _write(html, page(runs, origin, of_pairs=of_pairs))
        typer.echo(f"report: {html}", err=True)
    if any(run.failed for run in runs if counts(run)):
        raise typer.Exit(BAD_NEWS)


def _page_renderer() -> Callable[..., str]:
    """Return the function that renders the page. Raises CliError if the extra `plots` is not installed."""
    try:
        from bundlekeel.simulator.simulate_html import page  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise CliError(f"--html needs {error.name}: pip install '.[plots]' in the sources", USAGE) from None
    return page


def _list(output: Output) -> None:
    rows = [
        {
            "name": item.name,
            "case": item.case or None,
            "minutes": item.minutes,
            "title": item.title,
            "brokers": item.broker_count,
            "bundles": item.bundle_count,
        }
        for item in sim_files.suite()
    ]

    def render(value: Any, layout: TableLayout) -> Any:
        # On a terminal of 80 columns there is only room for the titles.
        sizes = [] if layout.narrow else ["brokers", "bundles"]
        heads = [f">{size}" for size in sizes]
        listing = table("scenario", *heads, ">minutes", "about", caption=numbered(len(value), "scenario"))
        for row in value:
            listing.add_row(row["name"], *(str(row[size]) for size in sizes), f"{row['minutes']:g}", row["title"])
        return listing

    tell(rows, render, output)


def _scenarios(files: list[str], *, suite: bool, of_pairs: bool) -> list[Scenario]:
    if suite:
        return [*sim_files.suite(), *(sim_files.load(item) for item in files)]
    if of_pairs:
        return [sim_files.load(item.scenario) for item in PROPERTIES]
    if not files:
        raise CliError("no scenario: pass a name (`bundlekeel simulate --list`), a file, or --suite", USAGE)
    return [sim_files.load(item) for item in files]


def _contenders(
    strategies: list[str],
    pair_names: list[str],
    against: Literal["native", "native-5.0"] | None,
    sets: Mapping[str, str],
) -> list[Contender]:
    """Return the balancers to compare, in the order of the options; `avg` if no strategy is selected.

    With `sets`, each strategy runs unchanged and with these values.
    """
    try:
        contenders = [contender(item) for item in strategies or ["avg"]]
        if sets:
            contenders = [item for plain in contenders for item in (plain, _with_values(plain, sets))]
        for item in pair_names:
            contenders += pairs(item)
        release = "5.0" if against == "native-5.0" else RELEASE
        if against is not None:
            contenders += [native(item, release) for item in strategies or ["avg"] if item in NATIVE]
    except ConfigError as error:
        raise CliError(f"--{error}", USAGE) from None  # its fields have the names of the options
    return list({item.label: item for item in contenders}.values())


def _with_values(plain: Contender, sets: Mapping[str, str]) -> Contender:
    """Return a balancer with the parameter values `sets`; its missed expectations are not failures."""
    values, _ = canonical(sets)
    own = {**plain.parameters, **{name: item.value for name, item in values.items()}}
    return replace(plain, label=f"{plain.label}, changed", parameters=own, compared=True)


def _seeds(text: str) -> list[int]:
    seeds: list[int] = []
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            seeds += range(int(first), int(last or first) + 1)
    except ValueError:
        raise CliError(f"--seeds {text!r}: expected seeds such as 1-20 or 1,5,9", USAGE) from None
    if text and not seeds:
        raise CliError(f"--seeds {text!r}: expected the lower seed first, such as 1-20", USAGE)
    return seeds


def _run(scenarios: list[Scenario], contenders: list[Contender], seeds: list[int]) -> list[Run]:
    work = [(scenario, contender, seed) for scenario in scenarios for contender in contenders for seed in seeds]
    runs: list[Run] = []
    start = time.monotonic()
    with ProgressLine(pause=_LINE_SECONDS) as line:
        for scenario, contender, seed in work:
            far = how_far(len(runs), len(work), "run", time.monotonic() - start)
            line.tell(f"{far}; now {scenario.name}, {contender.label}, seed {seed}")
            runs.append(run_scenario(scenario, contender, seed, timer=time.perf_counter))
    return runs


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", USAGE) from None


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(simulate)
