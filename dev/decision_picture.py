"""Draw the picture of docs/concepts/decision-rule.md: the cost of an imbalance and the price of moves over time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bundlekeel.model.parameters import Parameters
from bundlekeel.planning import calm
from bundlekeel.planning.memory import BrokerCourse
from bundlekeel.simulator.page import COLOURS, svg

SECONDS, READING = 900, 5
MOVES = 2


@dataclass(frozen=True, slots=True)
class Story:
    """A load of one broker over time. Each phase has a start, an end (seconds) and an excess: how far the broker's
    difference from the mean load is above the tolerance, in multiples of the tolerance.
    """

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
    """Return the text of docs/concepts/decision-rule.svg."""
    figure = Figure(figsize=(10, 2.5), layout="constrained")
    for axes, story in zip(figure.subplots(1, 2, sharey=True), STORIES, strict=True):
        _draw(axes, story)
    return svg(figure)


def _draw(axes: Axes, story: Story) -> None:
    price = calm.price_of(MOVES, Parameters().move_price)
    costs, acts = _costs(story, price)
    end, cost = costs[-1]
    axes.set_title(story.title, loc="left", fontweight="bold")
    for begin, until, _ in story.excess:
        axes.axvspan(begin, min(until, end), color=COLOURS[0], alpha=0.13, linewidth=0)
    axes.axhline(price, color=COLOURS[1], linestyle="--")
    axes.text(0, 1.03 * price, f"price of {MOVES} moves: {price:.0f}")
    axes.plot([second for second, _ in costs], [cost for _, cost in costs], color=COLOURS[0])
    if acts:
        axes.plot(end, cost, "o", color=COLOURS[1])
        axes.annotate("bundles move", (end, cost), xytext=(6, -12), textcoords="offset points")
    axes.set_xticks(range(0, SECONDS + 1, 180), [f"{second} s" for second in range(0, SECONDS + 1, 180)])
    axes.set_xlim(0, SECONDS)
    axes.set_ylim(0, 1.8 * price)
    axes.set_yticks([])


def _costs(story: Story, price: float) -> tuple[list[tuple[float, float]], bool]:
    """Return the points (second, cost) of the imbalance until bundles move, and whether they move at all."""
    params = Parameters()
    course, costs = BrokerCourse(level=0.5, until_ms=0, seconds=1.0), [(0.0, 0.0)]
    for second in range(READING, SECONDS + 1, READING):
        size = next((size for begin, end, size in story.excess if begin < second <= end), -1.0)
        course = replace(course, until_ms=1000 * second)
        course = calm.follow_excesses(
            {"b": course}, ["b"], np.array([True]), np.array([size]), np.array([float(READING)]), ()
        )["b"]
        cost = course.excess.owed if course.excess is not None else 0.0
        costs.append((second, cost))
        if course.excess is not None and cost >= price and not calm.held_seconds(course, params.swing_worth):
            return costs, True
    return costs, False
