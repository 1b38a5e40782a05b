"""The assignment pipeline of each load manager: for every filter the value at which it begins to drop a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport, ExcludedBroker
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.filters.assign import Assignment
from bundlekeel.planning.ledger import Ledger
from tests.support.builders import NOW_MS, bundle_name, entry, report
from tests.unit.planning.test_assign import MODES, B, brokers, dropped
from tests.unit.planning.test_assign import ask as run

GOLD = IsolationPolicy(name="gold", namespaces=("t/new",), primary=("b1", "b2"), secondary=("b3",), min_limit=2)
GROUP = {"t/new": "g", "t/a": "G", "t/b": "g"}


def ask(mode: str, reports: Sequence[BrokerReport], **more: Any) -> Assignment:
    """One run of a load manager's pipeline for a bundle that no broker owns."""
    return run(reports, mode=mode, **more)


def test_each_load_manager_has_its_own_steps() -> None:
    """`selectBroker` of the modular one; the order in which the extensible one adds its filters."""
    result = {mode: [step.name for step in ask(mode, brokers()).steps] for mode in MODES}
    assert result["modular"] == [
        "available", "policies", "max topics", "anti-affinity", "distribute evenly", "load manager class", "version",
    ]  # fmt: skip
    assert result["extensible"] == [
        "available", "load manager class", "max topics", "version", "anti-affinity", "policies",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "topics", "absent", "left"),
    [
        ("modular", (9, 10, 11), B[2:], B[:2]),
        ("extensible", (9, 10, 11), B[1:], B[:1]),
        ("modular", (11, 11, 11), (), B),
        ("extensible", (10, 10, 10), B, ()),
    ],
)
def test_max_topics(mode: str, topics: tuple[int, ...], absent: tuple[str, ...], left: tuple[str, ...]) -> None:
    """Modular: above the limit, and no broker when all are. Extensible: at the limit, and then there is no owner."""
    reports = brokers(**{f"b{n}": {"num_topics": count} for n, count in enumerate(topics, start=1)})
    assignment = ask(mode, reports, max_topics_per_broker=10)
    assert dropped(assignment, "max topics") == dict.fromkeys(absent, Code.MAX_TOPICS)
    assert assignment.candidates == left
    assert assignment.code is (None if left else Code.NO_LEGAL_TARGET)


@pytest.mark.parametrize(
    ("mode", "manager", "left"),
    [
        ("modular", "m.Here", B[:2]),
        ("extensible", "m.Here", B[:2]),
        ("modular", "m.None", B),
        ("extensible", "m.None", ()),
        ("modular", "", B),
        ("extensible", "", B),
    ],
)
def test_load_manager_class(mode: str, manager: str, left: tuple[str, ...]) -> None:
    reports = brokers(**{f"b{n}": {"load_manager": name} for n, name in enumerate(("m.Here", "m.Here", "m.Other"), 1)})
    assignment = ask(mode, reports, policies=Policies(load_manager=manager))
    assert assignment.candidates == left
    refilled = "refill" in {step.name for step in assignment.steps}
    assert refilled is ((mode, manager) == ("modular", "m.None"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("versions", "later", "left"),
    [
        (("4.2.4", "4.2.5-rc.1", "4.2.5"), True, B[2:]),
        (("4.2.5-rc.1", "4.2.5", "4.2.10"), True, B[2:]),
        (("4.2.5", "4.2.5", "4.2.4"), True, B[:2]),
        (("4.2.4", "nightly", "4.2.5"), True, B),
        (("4.2.4", "4.2.5", "4.2.5"), False, B),
    ],
)
def test_version(mode: str, versions: tuple[str, ...], later: bool, left: tuple[str, ...]) -> None:
    reports = brokers(**{f"b{n}": {"version": version} for n, version in enumerate(versions, start=1)})
    assert ask(mode, reports, policies=Policies(prefer_later_versions=later)).candidates == left


def test_an_unreadable_version_brings_back_nobody_in_the_extensible_pipeline() -> None:
    reports = brokers(b1={"num_topics": 10, "version": "4.2.5"}, b2={"version": "nightly"}, b3={"version": "4.2.4"})
    policies = Policies(prefer_later_versions=True)
    assert ask("extensible", reports, policies=policies, max_topics_per_broker=10).candidates == B[1:]
    above = [replace(reports[0], num_topics=11), *reports[1:]]
    assert ask("modular", above, policies=policies, max_topics_per_broker=10).candidates == B


@pytest.mark.parametrize(
    ("mode", "holders", "left"),
    [
        # b1: two bundles of one namespace of the group; b2: one of each of two; b3: one of one.
        ("modular", (("t/a", "t/a"), ("t/a", "t/b"), ("t/b",)), (B[0], B[2])),
        ("extensible", (("t/a", "t/a"), ("t/a", "t/b"), ("t/b",)), B[2:]),
        ("modular", (("t/a", "t/a"), ("t/a",), ("t/a",)), B),
        ("extensible", (("t/a", "t/a"), ("t/a",), ("t/a",)), B[1:]),
        ("modular", (("t/a",), (), ("t/other",)), B[1:]),
        ("extensible", (("t/a",), (), ("t/other",)), B[1:]),
        ("modular", (("t/new",), (), ()), B[1:]),
        ("extensible", (("t/new",), (), ()), B[1:]),
    ],
)
def test_anti_affinity(mode: str, holders: Sequence[Sequence[str]], left: tuple[str, ...]) -> None:
    """The modular load manager counts namespaces of the group, the extensible one their bundles."""
    numbers = iter(range(50))
    reports = [
        report(broker, {bundle_name(next(numbers), name): 0.1 for name in names})
        for broker, names in zip(B, holders, strict=True)
    ]
    assert ask(mode, reports, policies=Policies(anti_affinity=GROUP, distribute_evenly=False)).candidates == left


@pytest.mark.parametrize(
    ("mode", "landed_ms", "left"),
    [("modular", 0, B[1:2]), ("modular", NOW_MS, B[1:2]), ("extensible", 0, B), ("extensible", NOW_MS, B[:2])],
)
def test_a_move_counts_for_anti_affinity(mode: str, landed_ms: int, left: tuple[str, ...]) -> None:
    """Preallocated at its target, and reported by its source: both count in the modular load manager. In the
    extensible one the bundle is Owned nowhere, then at its target."""
    moving = bundle_name(1, "t/a")
    books = Ledger(entries=(entry(moving, B[0], B[2], landed_ms=landed_ms),))
    reports = [report(B[0], {moving: 0.1}), report(B[1], {}), report(B[2], {})]
    policies = Policies(anti_affinity=GROUP, distribute_evenly=False)
    assert ask(mode, reports, ledger=books, policies=policies).candidates == left


@pytest.mark.parametrize(
    ("mode", "full", "left"),
    [
        ("modular", 0, B[:2]),
        ("extensible", 0, B[:2]),
        # A primary that an earlier filter dropped: one of two is not enough, so the secondary may.
        ("modular", 99, (B[1],)),
        ("extensible", 99, B[1:]),
    ],
)
def test_isolation_policies(mode: str, full: int, left: tuple[str, ...]) -> None:
    """Primaries are counted first in the modular pipeline, and last, among those still left, in the extensible one."""
    reports = brokers(b1={"num_topics": full})
    assignment = ask(mode, reports, policies=Policies(isolation=(GOLD,)), max_topics_per_broker=10)
    assert assignment.candidates == left
    assert dropped(assignment, "policies") == ({B[2]: Code.SECONDARY_NOT_NEEDED} if B[2] not in left else {})


@pytest.mark.parametrize(
    ("mode", "code", "left"),
    [
        ("modular", Code.NOT_JSON, B[1:2]),
        ("extensible", Code.NO_LOAD_DATA, B[1:2]),
        ("modular", Code.MIXED_LOAD_MANAGERS, B[1:2]),
        ("extensible", Code.MIXED_LOAD_MANAGERS, B[1:]),
    ],
)
def test_a_primary_without_a_report(mode: str, code: Code, left: tuple[str, ...]) -> None:
    """It is alive and counts; one of another load manager has been dropped by then in the extensible pipeline."""
    silent = ExcludedBroker(broker_id=B[0], code=code)
    assignment = ask(mode, brokers()[1:], excluded=[silent], policies=Policies(isolation=(GOLD,)))
    assert assignment.candidates == left


@pytest.mark.parametrize(("mode", "left"), [("modular", B[1:]), ("extensible", B)])
def test_only_modular_brokers_spread_a_namespace(mode: str, left: tuple[str, ...]) -> None:
    """The extensible load manager does not read loadBalancerDistributeBundlesEvenlyEnabled."""
    reports = [report(B[0], {bundle_name(1, "t/new"): 0.1}), *brokers()[1:]]
    assert ask(mode, reports, policies=Policies(distribute_evenly=True)).candidates == left


@pytest.mark.parametrize(
    ("mode", "placement", "choice"), [("modular", "round_robin", B[0]), ("extensible", "least_resource_usage", B[2])]
)
def test_the_placement_of_extensible_brokers_is_not_configurable(mode: str, placement: str, choice: str | None) -> None:
    assignment = ask(mode, brokers(b1={"cpu": 0.5}, b2={"cpu": 0.4}, b3={"cpu": 0.3}), placement="round_robin")
    assert (assignment.placement, assignment.chosen) == (placement, choice)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("in_turn", "placement", "choice"), [("t/new", "round_robin", None), ("t/n", "least_resource_usage", B[2])]
)
def test_bundles_that_brokers_do_not_shed_are_placed_in_turn(
    mode: str, in_turn: str, placement: str, choice: str | None
) -> None:
    reports = brokers(b1={"cpu": 0.5}, b2={"cpu": 0.4}, b3={"cpu": 0.3})
    assignment = ask(mode, reports, in_turn=frozenset({in_turn}))
    assert (assignment.placement, assignment.chosen, assignment.candidates, assignment.code) == (
        placement,
        choice,
        B,
        None,
    )


@pytest.mark.parametrize(("mode", "left"), [("modular", B), ("extensible", B[:2])])
def test_in_turn_the_busiest_candidate_may_be_next(mode: str, left: tuple[str, ...]) -> None:
    """It is overloaded: then modular brokers choose once more, among all candidates of the policies."""
    reports = brokers(b1={"cpu": 0.9, "version": "4.2.5"}, b2={"version": "4.2.5"}, b3={"version": "4.2.4"})
    assignment = ask(mode, reports, policies=Policies(prefer_later_versions=True), in_turn=frozenset({"t/new"}))
    assert (assignment.chosen, assignment.candidates) == (None, left)


@pytest.mark.parametrize("mode", MODES)
def test_in_turn_the_only_candidate_is_next(mode: str) -> None:
    """Then there is no turn to know."""
    policies = Policies(isolation=(replace(GOLD, primary=("b2",), min_limit=1),))
    assignment = ask(mode, brokers(), policies=policies, in_turn=frozenset({"t/new"}))
    assert (assignment.placement, assignment.chosen) == ("round_robin", B[1])


@pytest.mark.parametrize("mode", MODES)
def test_nobody_is_there(mode: str) -> None:
    policies = Policies(anti_affinity=GROUP, prefer_later_versions=True, isolation=(GOLD,))
    assignment = ask(mode, [], policies=policies)
    assert (assignment.chosen, assignment.code) == (None, Code.NO_LEGAL_TARGET)
