"""Time how long Bundlekeel and Pulsar's own Java classes take to decode load reports and to plan: `make bench`.

Both programs get the same JSON lines in the same run: Bundlekeel through `bundlekeel decide`, Java through the oracle
(dev/oracle), which runs the classes of the pulsar-broker jar. `decode` is the time from the JSON text of all reports to
the input of the shedder; averages are already in memory. `plan` is the time of the shedder. Three brokers in ten are
overloaded, so that every cycle moves bundles. `transfer` has two rows: `extensible` reads what Pulsar's TransferShedder
reads, which is each broker's load and its ten largest bundles. The other row reads modular load reports.
Times are wall-clock milliseconds. No time is too long for this tool: it only prints.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from dev.markdown import table
from dev.oracle.oracle import Oracle
from evidence import lean
from evidence.bench_states import SIZES, extensible_line, turn_line

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "bench.md"
BUNDLEKEEL = Path(sys.executable).with_name("bundlekeel")
NATIVE = ("threshold", "overload", "uniform", "avg")
OURS_ALONE = ("deviation", "transfer")
# TransferShedder on data of the extensible load manager, which contains only the largest bundles of each broker.
EXTENSIBLE = "transfer, extensible"
# The shedders act in each turn: they need not be above a threshold several times in a row.
CONFIG = {
    "loadBalancerAvgShedderHitCountLowThreshold": 1,
    "loadBalancerAvgShedderHitCountHighThreshold": 1,
    "loadBalancerSheddingConditionHitCountThreshold": 0,
}
# Turns by number of bundles. The time of Pulsar's loops grows with the square of the brokers, so Java gets few turns.
JAVA_TURNS = {1_000: 200, 10_000: 20, 100_000: 3, 300_000: 1}
OUR_TURNS = {1_000: 200, 10_000: 50, 100_000: 15, 300_000: 7}


@dataclass(frozen=True, slots=True)
class Spread:
    """Shortest, median and longest duration of several decisions, in milliseconds."""

    least: float
    median: float
    most: float

    def __str__(self) -> str:
        return f"{_figure(self.median)} ({_figure(self.least)}-{_figure(self.most)})"


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of decoding and of planning, of one strategy with one state of a cluster."""

    decode: Spread
    plan: Spread


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy on a cluster with `bundles` bundles in total: Bundlekeel's own strategy (`ours`), its exact copy of
    Pulsar's class (`compat`), and Pulsar's class (`java`). The last two are None if Pulsar does not have this strategy.
    """

    size: str
    bundles: int
    strategy: str
    ours: Timing
    compat: Timing | None
    java: Timing | None


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Ours:
    """A running `bundlekeel decide` process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def send(self, line: object) -> None:
        """Send a line that `decide` does not respond to, such as a reset."""
        assert self._process.stdin is not None
        self._process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        self._process.stdin.flush()

    def ask(self, line: object) -> Any:
        """Send a line and return its response. Raises RuntimeError if `decide` reports an error."""
        self.send(line)
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"decide: {answer['error']}")
        return answer

    def peak_mb(self) -> float:
        """Return the largest resident memory of the process so far, in MiB."""
        return lean.peak(Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii").splitlines())


@contextmanager
def decide() -> Iterator[Ours]:
    """Start `bundlekeel decide`; stop it at the end of the block."""
    with subprocess.Popen([BUNDLEKEEL, "decide"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Ours(process)
        assert process.stdin is not None
        process.stdin.close()


def measured(side: Ours | Oracle, reset: dict[str, Any], turn: bytes, turns: int) -> Timing:
    """Let one program decide on the input `turn`: once untimed, then `turns` times timed. Return the durations."""
    if isinstance(side, Ours):
        side.send({"reset": reset})
    else:
        side.ask({"reset": reset})
    side.ask(turn)
    answers = [side.ask({"bench": 1}) for _ in range(turns)]
    decode, plan = ([answer[f"{part}_ms_median"] for answer in answers] for part in ("decode", "plan"))
    return Timing(_spread(decode), _spread(plan))


def _spread(values: list[float]) -> Spread:
    return Spread(min(values), statistics.median(values), max(values))


def rows_of(brokers: int, bundles: int, console: Console, *, all_java: bool) -> tuple[list[Row], float]:
    """Return the rows of all strategies for one size of cluster, and the peak memory of `decide` in MiB."""
    modular, size, total = turn_line(brokers, bundles), f"{brokers:,} x {bundles}", brokers * bundles
    rows: list[Row] = []
    peak = 0.0
    with Oracle("-Xmx6g") as oracle:
        for row in (*NATIVE, EXTENSIBLE, *OURS_ALONE):
            console.print(f"{size} {row}", style="dim")
            reset = {"strategy": row.partition(",")[0], "config": CONFIG}
            native = row in (*NATIVE, EXTENSIBLE)
            turn = extensible_line(brokers, bundles) if row == EXTENSIBLE else modular
            kind = {"kind": "transfer" if row == EXTENSIBLE else "modular"}
            with decide() as ours:
                corrected = measured(ours, reset | {"compat": "none"}, turn, OUR_TURNS[total])
                peak = max(peak, ours.peak_mb())
                compat = measured(ours, reset | {"compat": "4.2"}, turn, OUR_TURNS[total]) if native else None
            java = (
                measured(oracle, reset | kind, turn, JAVA_TURNS[total])
                if native and (all_java or total < 300_000)
                else None
            )
            rows.append(Row(size, total, row, corrected, compat, java))
    return rows, peak


def plan_table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the cells of the table of planning times."""
    header = ["brokers x bundles", "strategy", "ours", "compat 4.2", "Java 4.2.4", "Java / ours", "Java / compat"]
    cells = [
        [
            *(row.size, row.strategy, str(row.ours.plan)),
            *(str(row.compat.plan) if row.compat else "-", str(row.java.plan) if row.java else "-"),
            _ratio(row.java, row.ours, "plan"),
            _ratio(row.java, row.compat, "plan"),
        ]
        for row in rows
    ]
    return header, cells


def decode_table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the cells of the table of decoding times: one row per size of cluster, for all
    strategies.
    """
    header = ["brokers x bundles", "ours", "compat 4.2", "Java 4.2.4", "Java / ours"]
    cells = [
        [
            *(row.size, str(row.ours.decode)),
            *(str(row.compat.decode) if row.compat else "-", str(row.java.decode) if row.java else "-"),
            _ratio(row.java, row.ours, "decode"),
        ]
        for row in rows
        if row.strategy == NATIVE[0]
    ]
    return header, cells


def _ratio(java: Timing | None, other: Timing | None, part: Literal["decode", "plan"]) -> str:
    if java is None or other is None:
        return "-"
    theirs, ours = (side.decode if part == "decode" else side.plan for side in (java, other))
    return f"{theirs.median / ours.median:,.1f}"


def write_page(tables: dict[str, tuple[list[str], list[list[str]]]], notes: list[str]) -> None:
    """Write docs/reference/bench.md."""
    parts = ["# Bench: beside Pulsar's own Java", "", "Written by `make bench`; do not edit.", "", *notes]
    for title, (header, cells) in tables.items():
        parts += ["", f"## {title}", "", *table(header, cells)]
    PAGE.write_text("\n".join(parts) + "\n", encoding="utf-8")


def main() -> None:
    """Measure and print the tables. With `--write`, also write docs/reference/bench.md."""
    parser = argparse.ArgumentParser(prog="python -m evidence.bench", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    parser.add_argument("--size", choices=[f"{b}x{n}" for b, n in SIZES], action="append", help="only this size")
    parser.add_argument("--all-java", action="store_true", help="Java at the largest size too: minutes a turn")
    options = parser.parse_args()
    console = Console(highlight=False, width=130)
    sizes = [(b, n) for b, n in SIZES if not options.size or f"{b}x{n}" in options.size]
    rows: list[Row] = []
    memory: list[list[str]] = []
    for brokers, bundles in sizes:
        results, peak = rows_of(brokers, bundles, console, all_java=options.all_java)
        rows += results
        memory.append([f"{brokers:,} x {bundles}", f"{peak:.0f}"])
    tables = {
        "Plan, milliseconds: median (least-most)": plan_table(rows),
        "Decode, milliseconds: median (least-most)": decode_table(rows),
        "Memory: largest resident size of `decide`, averages of all bundles included": (
            ["brokers x bundles", "MB"],
            memory,
        ),
        f"Commands and a sidecar that is ready: least of {lean.ROUNDS}": (
            ["", "CPU seconds", "MiB"],
            [[name, f"{cpu:.2f}", f"{resident:.0f}"] for name, cpu, resident in lean.figures()],
        ),
    }
    for title, (header, cells) in tables.items():
        table = Table(title=title, title_justify="left")
        for index, name in enumerate(header):
            table.add_column(name, justify="left" if index < 1 else "right")
        for row in cells:
            table.add_row(*row)
        console.print(table)
    if options.write:
        write_page(tables, [__doc__.partition("\n\n")[2].strip()])


if __name__ == "__main__":
    main()
