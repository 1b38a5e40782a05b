"""Generate the example, its picture and the list of parameters on the pages of docs/strategies.

Every page shows the same six brokers, so that the strategies can be compared. The plan comes from the sidecar's
`plan()`, which is called with new load reports until the strategy moves a bundle. `python -m dev.docs write` writes the
example and the list between the marks in each page.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from bundlekeel.model.averages import Averages
from bundlekeel.model.parameter_table import STRATEGIES
from bundlekeel.model.parameters import PARAMETERS, Parameters
from bundlekeel.model.plan import BrokerLoad, Plan
from bundlekeel.model.snapshot import build_snapshot
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.pulsar.formats.report import decode_report
from bundlekeel.simulator.page import BAD, svg

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "docs/strategies"
# For each broker, the load of each of its bundles in percent of the broker's capacity.
EXAMPLE = ((20, 18, 15, 13, 10, 8, 8), (30, 20, 14, 10), (15, 15, 15, 15), (25, 12, 8), (20, 10), (6, 5))
START_MS, INTERVAL_MS = 1_700_000_000_000, 60_000
MOST_CYCLES = 20
# No strategy moves a bundle to a broker above this load.
COMMON = ("overloaded_threshold_percent",)
PLACED = ("threshold", "overload")


@dataclass(frozen=True, slots=True)
class Acted:
    """The first plan of a strategy that moves a bundle, and the number of its cycle."""

    plan: Plan
    cycle: int


@cache
def example(strategy: str) -> Acted:
    """Return the strategy's first plan that moves a bundle, with default parameters. Raises RuntimeError if there is
    none.
    """
    memory = StrategyMemory()
    for cycle in range(1, MOST_CYCLES + 1):
        now = START_MS + cycle * INTERVAL_MS
        reports = [
            decode_report(f"broker-{row + 1}", _report(row, shares, now), max_bytes=1_000_000)
            for row, shares in enumerate(EXAMPLE)
        ]
        averages = Averages()
        for report in reports:
            averages.add_report(report, now_ms=now)
        snapshot = build_snapshot(reports=reports, averages=averages, wall_ms=now)
        result = plan(PlanInput(snapshot=snapshot, params=Parameters(strategy=strategy), memory=memory))
        if result.plan.moves:
            return Acted(result.plan, cycle)
        memory = result.memory
    raise RuntimeError(f"{strategy} never acts on the example")


def pages() -> list[tuple[str, Callable[[], str]]]:
    """Return the paths of each page and its picture, with the function that returns its content, for dev/docs.py."""
    writers = (("md", _page), ("svg", _picture))
    return [(f"{FOLDER}/{name}.{end}", partial(write, name)) for name in STRATEGIES for end, write in writers]


def parameters_of(strategy: str) -> list[str]:
    """Return the names of the parameters that this strategy reads, in the order of `PARAMETERS`."""
    return [spec.name for spec in PARAMETERS if _reads(strategy, spec.name, spec.used_by)]


def _reads(strategy: str, name: str, used_by: str) -> bool:
    users = {part.strip() for part in used_by.split(",")}
    placed = strategy in PLACED and (name == "placement" or "least_resource_usage" in users)
    return strategy in users or name in COMMON or placed


def _page(name: str) -> str:
    text = (ROOT / FOLDER / f"{name}.md").read_text(encoding="utf-8")
    for mark, lines in (("example", _example_lines(name)), ("parameters", _parameter_lines(name))):
        places = re.findall(rf"<!-- {mark}\b.*?<!-- end -->", text, flags=re.DOTALL)
        if len(places) != 1:
            raise ValueError(f"{FOLDER}/{name}.md has {len(places)} places for its {mark}; expected one")
        block = [f"<!-- {mark}: made by `python -m dev.docs write` -->", "", *lines, "", "<!-- end -->"]
        text = text.replace(places[0], "\n".join(block))
    return text


def _example_lines(name: str) -> list[str]:
    acted = example(name)
    loads = acted.plan.loads
    spread = [max(values) / (sum(values) / len(values)) for values in (_before(loads), _after(loads))]
    cycles = (
        "in the first cycle" if acted.cycle == 1 else f"in cycle {acted.cycle}, when the imbalance has cost their price"
    )
    bundles = "1 bundle moves" if len(acted.plan.moves) == 1 else f"{len(acted.plan.moves)} bundles move"
    return [
        f"![Load of six brokers before and after]({name}.svg)",
        "",
        f"Six brokers at its defaults: {bundles} {cycles}; max/mean falls from {spread[0]:.2f} to {spread[1]:.2f}.",
        f"The verdict: *{acted.plan.verdict.sentence}*.",
    ]


def _parameter_lines(name: str) -> list[str]:
    names = ", ".join(f"`{item}`" for item in parameters_of(name))
    text = f"[Defaults and meanings](../reference/parameters.md) of {names}."
    return textwrap.wrap(text, 150, break_long_words=False, break_on_hyphens=False)


def _picture(name: str) -> str:
    loads = sorted(example(name).plan.loads, key=lambda load: load.broker)
    rows = np.arange(len(loads))
    figure = Figure(figsize=(6.4, 3), layout="constrained")
    axes = figure.subplots()
    for offset, label, values, colour in (
        (-0.2, "before", _before(loads), "#b0bec5"),
        (0.2, "after", _after(loads), "#00897b"),
    ):
        bars = axes.barh(rows + offset, values, height=0.36, color=colour, label=label)
        axes.bar_label(bars, [f"{value:.0%}" for value in values], padding=3)
    axes.axvline(0.85, color=BAD, linestyle="--", linewidth=1, label="85%")
    axes.set_yticks(rows, [f"b{row + 1}" for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(visible=False)
    figure.legend(loc="outside lower center", ncols=3)
    return svg(figure)


def _before(loads: Sequence[BrokerLoad]) -> list[float]:
    return [load.score_before for load in loads]


def _after(loads: Sequence[BrokerLoad]) -> list[float]:
    return [load.score_after for load in loads]


def _report(row: int, shares: tuple[int, ...], now: int) -> bytes:
    """Return the load report of a broker (JSON). `shares`: CPU use of each bundle in percent; traffic is in
    proportion.
    """
    names = (f"public/default/0x{row:02x}{number:06x}_0x{row:02x}{number + 1:06x}" for number in range(len(shares)))
    bundles = dict(zip(names, shares, strict=True))
    stats = {
        name: {"msgRateIn": 100.0 * share, "msgRateOut": 100.0 * share, "msgThroughputIn": 1e5 * share}
        | {"msgThroughputOut": 1e5 * share, "topics": 1, "producerCount": 1, "consumerCount": 1, "cacheSize": 0}
        for name, share in bundles.items()
    }
    total = sum(shares)
    fields = {
        "webServiceUrl": f"http://broker-{row + 1}:8080",
        "cpu": {"usage": float(total), "limit": 100.0},
        "bandwidthIn": {"usage": 800.0 * total, "limit": 1e7},
        "bandwidthOut": {"usage": 800.0 * total, "limit": 1e7},
        "memory": {"usage": 1.0, "limit": 10.0},
        "directMemory": {"usage": 1.0, "limit": 10.0},
        "msgRateIn": 100.0 * total,
        "msgRateOut": 100.0 * total,
        "msgThroughputIn": 1e5 * total,
        "msgThroughputOut": 1e5 * total,
        "lastUpdate": now,
        "lastStats": stats,
        "bundles": list(bundles),
        "numBundles": len(bundles),
        "numTopics": len(bundles),
        "brokerVersionString": "4.2.4",
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        "startTimestamp": START_MS - 3_600_000,
        "loadReportType": "LocalBrokerData",
    }
    return json.dumps(fields).encode()
