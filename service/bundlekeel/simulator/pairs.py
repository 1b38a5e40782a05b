"""Pairs of shedder and placement, as Pulsar combines them, and the five properties by which PIP-364 compares them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.model.parameters import choices
from bundlekeel.simulator.run import Contender, Run, Source

RELEASE = "4.2"
RATE, USAGE, AVG = "least_long_term_message_rate", "least_resource_usage", "avg"

# Default placement of each shedder: the usual combination.
USUAL = {"avg": AVG, "threshold": USAGE, "overload": RATE, "uniform": RATE, "transfer": USAGE, "deviation": USAGE}
# PIP-364 compares three shedders with two placements each, and proposes AvgShedder; TransferShedder was added here.
ALL_PAIRS = (
    *(f"{shedder}+{placement}" for shedder in ("threshold", "overload", "uniform") for placement in (USAGE, RATE)),
    "avg+avg",
    "transfer",
)
# Shedders that Pulsar contains. `transfer` is part of the extensible load manager, which has only one placement. A pair
# with another strategy runs Bundlekeel's own cycle with that strategy ("corrected").
NATIVE = ("threshold", "overload", "uniform", "avg", "transfer")


def contender(strategy: str, source: Source = "counters") -> Contender:
    """Return Bundlekeel with this strategy as a balancer to compare. Raises ConfigError if the strategy is unknown."""
    _check_name(strategy, choices("strategy"), "strategy")
    return Contender(label=strategy, source=source, parameters={"strategy": strategy})


def native(strategy: str, release: str = RELEASE) -> Contender:
    """Return Pulsar's own shedder of this name as a balancer, with the placement that Pulsar usually combines with
    it."""
    _check_name(strategy, NATIVE, "strategy")
    return pair(f"{strategy}+{USUAL[strategy]}", release)


def pair(text: str, release: str = RELEASE) -> Contender:
    """Return the balancer for `shedder+placement`; without placement, the usual one. Raises ConfigError if a name is
    unknown."""
    shedder, _, placement = text.partition("+")
    _check_name(shedder, STRATEGIES, "pair")
    placement = placement or USUAL[shedder]
    _check_name(placement, (USUAL[shedder],) if shedder == "transfer" else PLACEMENTS, "pair")
    if shedder not in NATIVE:
        values = {"strategy": shedder, "placement": placement}
        return Contender(label=f"corrected {shedder}+{placement}", parameters=values, compared=True)
    own = "native" if release == RELEASE else f"native {release}"
    return Contender(
        label=f"{own} transfer" if shedder == "transfer" else f"{own} {shedder}+{placement}",
        kind="native",
        source="reports",
        compared=True,
        parameters={"strategy": shedder, "placement": placement, "compat": release},
    )


def pairs(text: str) -> list[Contender]:
    """Return the balancer for one pair; for `all`: the pairs that PIP-364 compares, AvgShedder and TransferShedder."""
    return [pair(item) for item in (ALL_PAIRS if text == "all" else (text,))]


def _check_name(name: str, allowed: tuple[str, ...], field: str) -> None:
    if name not in allowed:
        raise ConfigError(f"{field}: {name!r} is not one of {', '.join(allowed)}", field=field, value=name)


@dataclass(frozen=True, slots=True)
class PairProperty:
    """One of the five properties in PIP-364's table: the scenario that shows it, and the function that measures it."""

    scenario: str
    title: str
    unit: str
    figure: Callable[[Run], float]


def _busiest(run: Run) -> float:
    """Return the highest load of a broker at the end, in percent.

    A broker whose host is busy with other processes counts only if it received additional load, because no balancer
    can reduce that usage.
    """
    _, used, takes = run.curves.table()
    helpless = (run.curves.foreign[-1] > 0) & (used[-1] <= used[0] + 1e-9)
    return 100 * float(np.where(takes[-1] & ~helpless, used[-1], 0.0).max())


def _moves(run: Run) -> float:
    return float(run.measures.moves)


def _onto_loaded(run: Run) -> float:
    """Return the number of moves to a broker whose load was above the mean before the move."""
    times, used, takes = run.curves.table()
    mean = np.nanmean(np.where(takes, used, np.nan), axis=1)
    wrong = 0
    for move in run.cluster.moved:
        if move.by == "balancer" and move.target >= 0:
            # Use the sample before the move, because the one at that time already contains the move.
            row = max(0, int(np.searchsorted(times, move.at)) - 1)
            wrong += bool(used[row, move.target] > mean[row])
    return float(wrong)


def _needless(run: Run) -> float:
    """Return the moved load divided by the load that must move for perfect balance."""
    _, used, takes = run.curves.table()
    first = used[0][takes[0]]
    needed = float(np.maximum(first - first.mean(), 0.0).sum())
    return run.measures.moved_load / needed if needed else 0.0


def _time(run: Run) -> float:
    """Return the minute from which max/mean stays within the scenario's limit; infinite: never."""
    since = run.measures.balanced_minute
    return math.inf if since is None else since


PROPERTIES = (
    PairProperty("pip364-unequal", "heterogeneous environment", "most loaded broker it could have helped, %", _busiest),
    PairProperty("pip364-jitter", "load jitter", "moves in 3 h of a square wave", _moves),
    PairProperty("pip364-over-placement", "over placement", "moves onto brokers above the mean", _onto_loaded),
    PairProperty("pip364-over-unloading", "over unloading", "moved load, as multiple of the necessary load", _needless),
    PairProperty("pip364-slow", "slow load balancing", "minutes until balanced", _time),
)
