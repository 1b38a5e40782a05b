"""The picture of docs/concepts/decision-rule.md: cost and price over time, computed by the rule itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.planning import calm
from bundlekeel.core.planning.memory import BrokerCourse

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1000, 250, 30, 40, 34
PANEL = 430
SECONDS, READING = 900, 5
MOVES = 2
STYLE = (
    "text{font:12px sans-serif;fill:#868e96}.title{font-size:13px;font-weight:600}"
    ".excess{fill:#1971c2;fill-opacity:.13}.cost{fill:none;stroke:#1971c2;stroke-width:2}"
    ".price{stroke:#e8590c;stroke-dasharray:6 3}.axis{stroke:#868e96;stroke-opacity:.5}.acts{fill:#e8590c}"
)


@dataclass(frozen=True, slots=True)
class Story:
    """Two loads of one broker over time: its excess in tolerances (0: tolerated) by second."""

    title: str
    excess: tuple[tuple[int, int, float], ...]


STORIES = (
    Story("A step: bundles move when it has cost the price", ((120, SECONDS, 1.0),)),
    Story(
        "A load that swings: it must also last longer than the swings before it",
        ((60, 170, 1.3), (290, 400, 1.3), (520, SECONDS, 1.3)),
    ),
)


def picture() -> str:
    """docs/concepts/decision-rule.svg."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>Cost of an imbalance over time, and the price of the moves that would end it</title>",
        f"<style>{STYLE}</style>",
    ]
    for place, story in enumerate(STORIES):
        parts += _panel(story, LEFT + place * (PANEL + 40))
    return "\n".join([*parts, "</svg>", ""])


def _panel(story: Story, left: int) -> list[str]:
    params = Parameters()
    price, base = calm.price_of(MOVES, params.move_price), HEIGHT - BOTTOM
    course, points, acts = BrokerCourse(level=0.5, until_ms=0, seconds=1.0), ["0,0"], None
    for second in range(READING, SECONDS + 1, READING):
        size = next((size for begin, end, size in story.excess if begin < second <= end), -1.0)
        course = replace(course, until_ms=1000 * second)
        course = calm.follow_excesses(
            {"b": course}, ["b"], np.array([True]), np.array([size]), np.array([float(READING)]), ()
        )["b"]
        cost = course.excess.owed if course.excess is not None else 0.0
        points.append(f"{second},{cost:.0f}")
        if course.excess is not None and cost >= price and not calm.held_seconds(course, params.swing_worth):
            acts = second, cost
            break

    def place(second: float, cost: float) -> tuple[float, float]:
        return left + second / SECONDS * PANEL, base - cost / (1.8 * price) * (base - TOP)

    parts = [f'<text class="title" x="{left}" y="18">{story.title}</text>']
    for begin, end, _ in story.excess:
        shown = min(end, acts[0] if acts else end)
        (x, _), (right, _) = place(begin, 0), place(shown, 0)
        parts.append(f'<rect class="excess" x="{x:.1f}" y="{TOP}" width="{right - x:.1f}" height="{base - TOP}"/>')
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*map(float, point.split(","))) for point in points))
    _, line = place(0, price)
    parts += [
        f'<line class="axis" x1="{left}" x2="{left + PANEL}" y1="{base}" y2="{base}"/>',
        f'<line class="price" x1="{left}" x2="{left + PANEL}" y1="{line:.1f}" y2="{line:.1f}"/>',
        f'<text x="{left}" y="{line - 6:.1f}">price of {MOVES} moves: {price:.0f}</text>',
        f'<polyline class="cost" points="{path}"/>',
    ]
    for second in range(0, SECONDS + 1, 180):
        x, _ = place(second, 0)
        parts.append(f'<text x="{x:.1f}" y="{base + 16}" text-anchor="middle">{second} s</text>')
    if acts is not None:
        x, y = place(*acts)
        parts.append(f'<circle class="acts" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
        parts.append(f'<text x="{x + 9:.1f}" y="{y + 18:.1f}">bundles move</text>')
    return parts
