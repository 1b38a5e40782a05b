"""The chart of docs/reference/reaction.md: max/mean of the brokers' load over time, one line per contender (its median
run).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from bundlekeel.simulator.page import INK, svg
from evidence.reaction.contenders import CONTENDERS, Contender
from evidence.reaction.figures import EVEN_RATIO
from evidence.reaction.run import Result

# The ticks of the time axis, which is logarithmic, because most changes happen in the first minutes after a step.
SECONDS = (2, 5, 10, 20, 60, 120, 300, 600, 900)
HIGHEST = 3.1
# Color of each contender, the same in all charts.
COLOURS = dict(
    zip(
        (contender.name for contender in CONTENDERS if not contender.fast),
        (
            *("#0b7285", "#5c940d", "#0ca678", "#74b816", "#1971c2", "#364fc7", "#7048e8", "#15aabf"),
            *("#e8590c", "#f08c00", "#c2255c"),
        ),
        strict=True,
    )
)


def chart(pairs: Sequence[tuple[Contender, Sequence[Result]]]) -> str:
    """Return an SVG chart with one line per contender. Lines of Pulsar's own shedders are dashed."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.axhline(EVEN_RATIO, color=INK, linestyle=":", label=f"even: {EVEN_RATIO}")
    for contender, results in pairs:
        if results:
            timeline = [point for point in _middle(results).timeline if point[0] >= SECONDS[0]]
            label = f"{contender.title}, {contender.mode}, {contender.statistics}"
            style = "-" if contender.ours else "--"
            times, ratios = [at for at, _ in timeline], [min(ratio, HIGHEST) for _, ratio in timeline]
            axes.plot(times, ratios, style, color=COLOURS.get(contender.name, INK), label=label)
    axes.set_xticks(SECONDS, [f"{second} s" for second in SECONDS], minor=False)
    axes.minorticks_off()
    axes.set_xlim(SECONDS[0], SECONDS[-1])
    axes.set_ylim(1, HIGHEST)
    axes.set_xlabel("seconds after the balancer was switched on")
    axes.set_ylabel("max/mean msg/s")
    figure.legend(loc="outside right upper")
    return svg(figure)


def _middle(results: Sequence[Result]) -> Result:
    """Return the median run by the seconds until the load was balanced, then by the last max/mean; of two runs the
    worse.
    """
    best_first = sorted(results, key=lambda run: (run.even_seconds or math.inf, run.end_ratio))
    return best_first[len(results) // 2]
