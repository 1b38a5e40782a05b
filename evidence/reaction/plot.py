"""The chart of the page: how uneven the cluster was, over time, one line a contender (its middle run)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from evidence.reaction.contenders import CONTENDERS, Contender
from evidence.reaction.figures import EVEN_RATIO
from evidence.reaction.run import Result

WIDTH, HEIGHT = 1060, 420
LEFT, RIGHT, TOP, BOTTOM = 46, 410, 16, 40


@dataclass(frozen=True, slots=True)
class Seconds:
    """The axis of time: its ends are the first and the last tick; `scale` spreads the seconds between them."""

    ticks: tuple[int, ...]
    scale: Callable[[float], float]

    def x(self, second: float) -> float:
        """Where a second is drawn."""
        first, last = self.scale(self.ticks[0]), self.scale(self.ticks[-1])
        return LEFT + (self.scale(second) - first) / (last - first) * (WIDTH - RIGHT - LEFT)


# After one step everything happens in the first minutes, and some of it after ten.
LOGARITHMIC = Seconds((2, 5, 10, 20, 60, 120, 300, 600, 900), math.log)
EVENLY = Seconds(tuple(range(0, 901, 90)), float)
RATIOS = (1.0, 1.5, 2.0, 2.5, 3.0)
# Of each contender one, the same in every chart.
COLOURS = dict(
    zip(
        (contender.name for contender in CONTENDERS if not contender.fast),
        ("#0b7285", "#0ca678", "#74b816", "#1971c2", "#7048e8", "#15aabf", "#e8590c", "#f08c00", "#c2255c"),
        strict=True,
    )
)
STYLE = (
    "text{font:12px sans-serif;fill:#868e96}path{fill:none;stroke-width:2}"
    ".grid{stroke:#868e96;stroke-opacity:.25}.even{stroke:#868e96;stroke-dasharray:2 3}"
)


def chart(shown: Sequence[tuple[Contender, Sequence[Result]]], seconds: Seconds = LOGARITHMIC) -> str:
    """SVG of these contenders; native ones are dashed."""
    lines = [(contender, _middle(results)) for contender, results in shown if results]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>max/mean of message rates over seconds since the balancer was switched on</title>",
        f"<style>{STYLE}</style>",
        *_axes(seconds),
    ]
    for place, (contender, result) in enumerate(lines):
        colour, dash = COLOURS.get(contender.name, "#868e96"), "" if contender.ours else ' stroke-dasharray="6 3"'
        y = TOP + 16 + 22 * place
        label = escape(f"{contender.title}, {contender.mode}, {contender.statistics}")
        x = WIDTH - RIGHT + 14
        parts.append(f'<path d="{_path(result, seconds)}" stroke="{colour}"{dash}><title>{label}</title></path>')
        parts.append(f'<path d="M{x},{y - 4}h22" stroke="{colour}"{dash}/><text x="{x + 28}" y="{y}">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _middle(results: Sequence[Result]) -> Result:
    """By the seconds until it was even, then by how even it ended; of two runs the worse."""
    best_first = sorted(results, key=lambda run: (run.even_seconds or math.inf, run.end_ratio))
    return best_first[len(results) // 2]


def _axes(seconds: Seconds) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for ratio in RATIOS:
        y = _y(ratio)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{ratio:g}</text>')
    for second in seconds.ticks:
        parts.append(
            f'<line class="grid" x1="{seconds.x(second):.1f}" x2="{seconds.x(second):.1f}" y1="{TOP}" y2="{bottom}"/>'
        )
        parts.append(f'<text x="{seconds.x(second):.1f}" y="{bottom + 16}" text-anchor="middle">{second} s</text>')
    y = _y(EVEN_RATIO)
    parts.append(f'<line class="even" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts.append(f'<text x="{right + 6}" y="{y + 4:.1f}">even: {EVEN_RATIO}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">seconds after the balancer was switched on; max/mean msg/s</text>')
    return parts


def _path(result: Result, seconds: Seconds) -> str:
    points = [(at, ratio) for at, ratio in result.timeline if seconds.ticks[0] <= at <= seconds.ticks[-1]]
    steps = [
        f"{'M' if place == 0 else 'L'}{seconds.x(at):.1f},{_y(ratio):.1f}" for place, (at, ratio) in enumerate(points)
    ]
    return " ".join(steps)


def _y(ratio: float) -> float:
    low, high = RATIOS[0], RATIOS[-1] + 0.1
    return HEIGHT - BOTTOM - (min(ratio, high) - low) / (high - low) * (HEIGHT - BOTTOM - TOP)
