"""Brokers whose clocks differ from ours and from each other's: no decision depends on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bundlekeel.simulator.pairs import Contender
from bundlekeel.simulator.run import Run, simulate
from bundlekeel.simulator.scenario import BrokerGroup, Event, Scenario, Tenant


def run(strategy: str, skews: tuple[float, ...], *events: Event) -> Run:
    """Forty bundles on the first of three brokers; `skews`: how far their clocks are ahead, in seconds."""
    scenario = Scenario(
        name="clocks",
        title="clocks",
        minutes=20.0,
        brokers=tuple(BrokerGroup(skew_seconds=skew) for skew in skews),
        tenants=(Tenant(name="t/a", bundles=40, usage=0.35, owners=(0,)),),
        events=events,
    )
    # Counters take the start of a broker for its identity, and a scenario that sets a clock changes it.
    source = "reports" if events else "counters"
    return simulate(scenario, Contender(label=strategy, parameters={"strategy": strategy}, source=source), 1)


@pytest.mark.parametrize(
    ("strategy", "skews", "events"),
    [
        ("avg", (0, 0, 1800), ()),
        ("avg", (0, 0, 120), ()),
        ("avg", (0, 0, -1800), ()),
        ("avg", (-7200, 86_400, 40), ()),
        # Some broker's clock is set while its moves are in the ledger.
        ("avg", (0, 0, 0), (Event(at=1.5, do="skew", brokers=(0, 1), seconds=-600),)),
        ("avg", (0, 0, 0), (Event(at=1.5, do="skew", brokers=(0, 1), seconds=600),)),
        ("threshold", (-1800, 0, 1800), ()),
        ("deviation", (-1800, 0, 1800), ()),
        ("uniform", (-1800, 0, 1800), ()),
        ("transfer", (-3600, 0, 3600), ()),
    ],
)
def test_n_f_clocks_of_brokers_change_no_move(
    strategy: str, skews: tuple[float, ...], events: tuple[Event, ...]
) -> None:
    """Every move is the one that is scenario with right clocks, at the same time."""
    right = run(strategy, (0, 0, 0), *(replace(event, seconds=0) for event in events))
    wrong = run(strategy, skews, *events)
    assert right.cluster.moved and right.measures.moved_twice == 0
    assert wrong.cluster.moved == right.cluster.moved
    assert wrong.digest == right.digest
