"""Store the results of measured balancers as JSON, and generate docs/reference/reaction.md from them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from dev.cluster.conf import FAST_STATS
from dev.markdown import table
from dev.pulsar_releases import RELEASES
from evidence.reaction import run as step
from evidence.reaction.contenders import CONTENDERS, Contender
from evidence.reaction.figures import EVEN_RATIO, UNEVEN_RATIO, Spread, median_of
from evidence.reaction.observer import RATE_SECONDS, STEP_RATE_SECONDS
from evidence.reaction.plot import chart
from evidence.reaction.prometheus import SCRAPE_SECONDS
from evidence.reaction.run import Options, Result

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "reaction.md"
# Results are committed to git, because the runs take hours and can be made in several sessions.
RAW = ROOT / "evidence" / "reaction" / "results"
LOGS = ROOT / ".run" / "reaction"
HEADER = (
    "balancer",
    "mode",
    "settings",
    "seconds to even",
    "moves",
    "publish gap median, s",
    "p95",
    "worst",
    "lost messages",
    "runs",
)
# The columns that README.md and the comparison page show, between the marks MARK and END.
SHORT = (0, 1, 2, 3, 4, 5, 8, 9)
MARK, END = "<!-- medians: written by `make docs` from evidence/reaction/results -->", "<!-- end of medians -->"
# All tables but one show runs on this release.
RELEASE = RELEASES["4.2"]
NEWER = Options(release=RELEASES["5.0"])
QUIET = Options(release=RELEASE, quiet_seconds=100.0)
Row = tuple[str, ...]


def path_of(contender: Contender, number: int, variant: str = "", raw: Path = RAW) -> Path:
    """Return the file of one run's result. `variant`: `Options.variant`."""
    return raw / f"{contender.name}{variant}" / f"{number}.json"


def save(result: Result, path: Path) -> None:
    """Store a result as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(result) + b"\n")


def load(path: Path) -> Result | None:
    """Return a stored result; None if it does not exist or does not count (`Result.counts`)."""
    if not path.exists():
        return None
    result = msgspec.json.decode(path.read_bytes(), type=Result)
    return result if result.counts else None


def results_of(contender: Contender, variant: str = "", raw: Path = RAW) -> list[Result]:
    """Return all stored results of a contender that count (`Result.counts`), in the order of the runs."""
    results = [load(path) for path in (raw / f"{contender.name}{variant}").glob("*.json")]
    return sorted((item for item in results if item is not None), key=lambda item: item.number)


def summary_row(contender: Contender, results: Sequence[Result]) -> Row:
    """Return the table row of one contender: medians of its runs."""
    spreads = [Spread.of(move.gap_seconds for move in result.moves) for result in results]
    return (
        *(contender.title, contender.mode, contender.statistics),
        _reached(results),
        _of_runs((len(result.moves) for result in results), ".0f"),
        *(_of_runs(getattr(spread, part) for spread in spreads) for part in ("median", "p95", "worst")),
        str(sum(result.lost for result in results)),
        str(len(results)),
    )


def _pairs_of(raw: Path, variant: str = "") -> list[tuple[Contender, list[Result]]]:
    pairs = [(contender, results_of(contender, variant, raw)) for contender in CONTENDERS]
    return [(contender, results) for contender, results in pairs if results]


def _reached(results: Sequence[Result]) -> str:
    if not results:
        return "-"
    seconds = [result.even_seconds for result in results]
    if median_of(seconds) is not None:
        return _of_runs(seconds, ".0f")
    ratios = [result.end_ratio for result in results]
    ended = dict.fromkeys(f"{ratio:.2f}" for ratio in (ratios if len(ratios) == 2 else sorted(ratios)))
    reached = [f"{value:.0f}" for value in seconds if value is not None]
    share = f"{' / '.join(reached)} in {len(reached)} of {len(results)} runs, else " if reached else ""
    within = max(result.within_seconds for result in results)
    return f"{share}not within {within:.0f}, ended at {' / '.join(ended)}"


def _of_runs(values: Iterable[float | None], form: str = ".2f") -> str:
    """Return the median of the runs; of two runs both values, in the order of the runs."""
    numbers = list(values)
    figures = numbers if len(numbers) == 2 else [median_of(numbers)]
    return " / ".join(dict.fromkeys("-" if value is None else f"{value:{form}}" for value in figures))


def _each(values: Iterable[str]) -> str:
    """Return the values of all runs; one value if all are equal."""
    texts = list(values)
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def page(raw: Path = RAW) -> str:
    """Return the text of docs/reference/reaction.md; contenders without a run that counts are omitted."""
    pairs = _pairs_of(raw)
    lines = [
        "# Reaction: who makes an uneven cluster even",
        "",
        "Written by `make reaction` (`python -m evidence.reaction --write`); do not edit.",
        "",
        *_method(),
        "",
        "## Medians",
        "",
        "Of two runs both values, in their order.",
        "",
        *table(HEADER, [summary_row(contender, results) for contender, results in pairs]),
        "",
        "Gaps in seconds. The chart shows the middle run of each; of two the worse.",
        "",
        *textwrap.wrap(_CONDITIONS, 118, break_on_hyphens=False),
        "",
        "![max/mean over time](reaction.svg)",
        "",
        *_newer(raw),
        *_quiet(raw),
        "## Brokers' settings that differ from stock",
        "",
        *table(
            ("balancer", "mode", "settings", "of the brokers"),
            [_settings_row(item) for item, _ in pairs if _settings_of(item)],
        ),
        "",
        "`evidence/reaction/results` contains every run with its moves and gaps.",
    ]
    return "\n".join([*lines, ""])


def with_medians(path: Path, raw: Path = RAW) -> str:
    """Return the text of the page at `path` with a new table of medians between its marks. Raises ValueError without
    marks.
    """
    before, rest = path.read_text(encoding="utf-8").split(MARK)
    rows = [summary_row(contender, results) for contender, results in _pairs_of(raw)]
    medians = table([HEADER[at] for at in SHORT], [[row[at] for at in SHORT] for row in rows])
    return "\n".join([before + MARK, "", *medians, "", END + rest.split(END)[1]])


# Results contain no scores of the shedders, because brokers write them only to their logs.
_CONDITIONS = (
    "Pulsar's shedders do not use max/mean. TransferShedder acts while the standard deviation of the scores is above "
    "0.25, or one broker is nearly empty or overloaded ([rules](../strategies/transfer.md#formula)), AvgShedder on "
    "pairs that are 15 or 40 points apart ([rules](../strategies/avg.md)). The scores at the end were not recorded. So "
    "a row that ended uneven does not show whether the shedder was slow or had reached its aim, nor why a run made no "
    "moves."
)


def _newer(raw: Path) -> list[str]:
    pairs = _pairs_of(raw, NEWER.variant)
    if not pairs:
        return []
    method = (
        f"The same step on Pulsar {NEWER.release.version}, with today's decision rule. There the settings of "
        "AvgShedder are the defaults of the modular load manager. Bundlekeel balances CPU use, of which these small "
        "brokers need much without traffic, so rates can differ at the end."
    )
    return [
        f"## The step on Pulsar {NEWER.release.line}",
        "",
        *textwrap.wrap(method, 118),
        "",
        *table(HEADER, [summary_row(contender, results) for contender, results in pairs]),
        "",
        "![max/mean over time on Pulsar 5.0](reaction-5.0.svg)",
        "",
    ]


def _quiet(raw: Path) -> list[str]:
    pairs = _pairs_of(raw, QUIET.variant)
    if not pairs:
        return []
    method = (
        f"The balancer runs for {QUIET.quiet_seconds:.0f} s while all topics have the same rate. Then the topics of "
        f"one broker get nearly all of the traffic (Zipf {step.ZIPF:g}), and each of the others {step.LEAST_RATE:g} "
        "msg/s, without a move. The clock starts at this step. The load is that of the last "
        f"{STEP_RATE_SECONDS:.0f} s. Cells: the runs in their order. Each broker uses about half of its quarter of a "
        "core without traffic. So its CPU use, which Bundlekeel balances, differs less than the rates in max/mean."
    )
    header = (
        *("balancer", "mode", "settings", "first move, s", "seconds to even"),
        *("watched, s", "max/mean after", "moves", "revision"),
    )
    rows = [
        (
            *(contender.title, contender.mode, contender.statistics),
            _each(f"{min(move.at_seconds for move in run.moves):.1f}" if run.moves else "-" for run in results),
            _each("-" if run.even_seconds is None else f"{run.even_seconds:.0f}" for run in results),
            _each(f"{run.within_seconds:.0f}" for run in results),
            _each(f"{run.end_ratio:.2f}" for run in results),
            _each(str(len(run.moves)) for run in results),
            _each(run.revision for run in results),
        )
        for contender, results in pairs
    ]
    return [
        "## A step under a leader that is running and quiet",
        "",
        *textwrap.wrap(method, 118),
        "",
        *table(header, rows),
        "",
    ]


def _method() -> list[str]:
    paragraphs = (
        f"The step: three brokers with {step.CORES} CPU cores each and {step.BUNDLES} bundles of one namespace; "
        f"{step.RATE:,.0f} msg/s of {step.MESSAGE_BYTES} bytes over {step.TOPICS} topics (Zipf 1.1), each with one "
        f"producer and one consumer, in batches of up to {step.BATCH_MESSAGES}. Each run has a new cluster. All "
        f"brokers serve a part for {step.SPREAD_SECONDS:.0f} s, then every bundle moves to one of them. The number of "
        "the run is the seed of the skew, so all balancers get the same ones.",
        f"The load of a broker is measured from outside, once a second: messages acknowledged in the last "
        f"{RATE_SECONDS:.0f} s, counted for the owner in `ownedNamespaces`. A run counts if it starts at max/mean "
        f"{UNEVEN_RATIO} or more, with nine tenths of the traffic. No balancer runs for the first "
        f"{step.WARM_SECONDS:.0f} s ({step.FAST_WARM_SECONDS:.0f} s with fast statistics). The clock starts when the "
        "balancer is turned on: Pulsar's by `loadBalancerSheddingEnabled`, Bundlekeel by starting its process with "
        "default settings after a "
        f"takeover. Prometheus scrapes every {SCRAPE_SECONDS} s. The clock stops at max/mean {EVEN_RATIO}, held for "
        f"{step.HELD_SECONDS:.0f} s; moves and gaps count for {step.AFTER_SECONDS:.0f} s more.",
        "A move is a change of ownership. Its gap is the longest time between two acknowledgements on a topic of the "
        f"bundle, 0 if less than {step.GAP_FLOOR_SECONDS} s above the usual one. Columns are medians of the runs, each "
        "with the median, 95th percentile and worst of its moves; lost messages are the sum.",
    )
    return [line for paragraph in paragraphs for line in (*textwrap.wrap(paragraph, 118), "")][:-1]


def _settings_row(contender: Contender) -> Row:
    cells = [
        f"`{key}={value.rpartition('.')[2] if '.impl.' in value else value}`" for key, value in _settings_of(contender)
    ]
    return (contender.title, contender.mode, contender.statistics, "<br>".join(cells))


def _settings_of(contender: Contender) -> list[tuple[str, str]]:
    return [*(FAST_STATS.items() if contender.fast else ()), *contender.broker_settings.items()]


def write(raw: Path = RAW) -> None:
    """Write docs/reference/reaction.md and its charts."""
    PAGE.write_text(page(raw), encoding="utf-8")
    PAGE.with_suffix(".svg").write_text(chart(_pairs_of(raw)), encoding="utf-8")
    if pairs := _pairs_of(raw, NEWER.variant):
        PAGE.with_name("reaction-5.0.svg").write_text(chart(pairs), encoding="utf-8")
