"""The mask of namespaces by brokers that may take them, and how a plan uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it
from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport, ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.model.snapshot import Bools, Snapshot
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.filters.allowed import limits_of, with_policies
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.whatif import without_brokers
from tests.support.builders import EAGER, bundle_name, entry, report, snapshot

B = ("b1:8080", "b2:8080", "b3:8080", "b4:8080")
STRATEGIES = ("avg", "threshold", "uniform")
KEEN: dict[str, Any] = {**EAGER, "threshold_percent": 1.0, "throughput_multiple": 1.1, "msg_rate_difference_percent": 1}


def mask_of(current: Snapshot, policies: Policies, ledger: Ledger | None = None) -> Bools | None:
    """The mask of `limits_of` alone."""
    limits = limits_of(current, policies, ledger)
    return None if limits is None else limits.mask


def policy(namespaces: str, primary: str, *, secondary: str = "", limit: int = 0, name: str = "p") -> IsolationPolicy:
    """One policy of single expressions."""
    seconds = (secondary,) if secondary else ()
    return IsolationPolicy(name=name, namespaces=(namespaces,), primary=(primary,), secondary=seconds, min_limit=limit)


def placed(*owned: Sequence[str], share: float = 0.1, **changes: Any) -> list[BrokerReport]:
    """One broker for each list of namespaces, with one bundle of each of them."""
    created, number = [], 0
    for broker, names in zip(B, owned, strict=False):
        bundles = {}
        for name in names:
            bundles[bundle_name(number, name)] = share
            number += 1
        created.append(report(broker, bundles, **changes))
    return created


def rows(reports: Sequence[BrokerReport], policies: Policies, ledger: Ledger | None = None) -> Mapping[str, str] | None:
    """The mask as text: which brokers, by their number, each namespace may live on."""
    current = snapshot(reports)
    mask = mask_of(current, policies, ledger)
    if mask is None:
        return None
    columns = [broker[1] for broker in current.brokers.ids]
    return {
        name: "".join(column for column, ok in zip(columns, mask[row].tolist(), strict=True) if ok)
        for row, name in enumerate(current.bundles.namespaces)
    }


def planned(reports: Sequence[BrokerReport], policies: Policies, ledger: Ledger | None = None, **p: Any) -> PlanResult:
    """An eager plan under these policies."""
    params = Parameters(**{**KEEN, **p})
    return plan(PlanInput(snapshot=snapshot(reports), params=params, policies=policies, ledger=ledger or Ledger()))


def test_nothing_restricted_is_none() -> None:
    """No policies: no mask, and nothing to pay for it."""
    assert rows(placed(["t/a"], ["t/b"]), Policies()) is None
    assert rows(placed(["t/a"], ["t/b"]), Policies(failure_domains={"x": B}, failure_domains_enabled=True)) is None


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        ((policy("t/a", "b1"),), {"t/a": "1", "t/b": "234"}),
        ((policy("t/.", "b[12]"),), {"t/a": "12", "t/b": "12"}),
        ((policy("t/a", "b1", secondary="b2", limit=2),), {"t/a": "12", "t/b": "234"}),
        ((policy("t/a", "b1", secondary="b2", limit=1),), {"t/a": "1", "t/b": "234"}),
        ((policy("t/a", "b1"), policy("t/.*", "b2")), {"t/a": "1", "t/b": "2"}),
        ((policy("t/a", "b9"),), {"t/a": "", "t/b": "1234"}),
    ],
)
def test_isolation(isolation: tuple[IsolationPolicy, ...], expected: dict[str, str]) -> None:
    assert rows(placed(["t/a"], ["t/b"], [], []), Policies(isolation=isolation)) == expected


def test_brokers_that_serve_no_persistent_topics_take_nothing() -> None:
    """Also where an isolation policy names them: the moved topics could not be loaded there."""
    reports = placed(["t/a"], [], [], [])
    reports[1] = replace(reports[1], persistent_topics_enabled=False)
    assert rows(reports, Policies()) == {"t/a": "134"}
    assert rows(reports, Policies(isolation=(policy("t/a", "b[12]"),))) == {"t/a": "1"}
    rest = without_brokers(snapshot(reports), [B[0]], Parameters(), Policies())[0]
    assert rest.brokers.takes_persistent().tolist() == [False, True, True]
    assert rest.brokers.takes_non_persistent().all()


@pytest.mark.parametrize(
    ("owned", "domains", "expected"),
    [
        ((["t/a"], ["t/b"], [], ["t/x"]), False, {"t/a": "134", "t/b": "234", "t/x": "1234"}),
        ((["t/a"], ["t/b"], ["t/c"]), False, {"t/a": "1", "t/b": "2", "t/c": "3"}),
        ((["t/a", "t/b"], ["t/c"], ["t/d"]), False, {"t/a": "123", "t/b": "123", "t/c": "2", "t/d": "3"}),
        ((["t/a", "t/a"], ["t/a"], []), False, {"t/a": "123"}),
        ((["t/a"], [], ["t/b"], []), True, {"t/a": "12", "t/b": "34"}),
        ((["t/a", "t/b"], [], [], []), True, {"t/a": "34", "t/b": "34"}),
    ],
)
def test_anti_affinity(owned: tuple[list[str], ...], domains: bool, expected: dict[str, str]) -> None:
    """Only where the fewest others of the group live; its own bundles elsewhere do not count against it."""
    groups = {"t/a": "g", "t/b": "G", "t/c": "g", "t/d": "g"}
    policies = Policies(
        anti_affinity=groups, failure_domains={"east": B[:2], "west": B[2:]}, failure_domains_enabled=domains
    )
    assert rows(placed(*owned), policies) == expected


def test_a_move_under_way_counts_at_its_target() -> None:
    books = Ledger(entries=(entry(bundle_name(0, "t/a"), B[0], B[2]),))
    policies = Policies(anti_affinity={"t/a": "g", "t/b": "g"})
    reports = placed(["t/a"], ["t/b"], [])
    assert rows(reports, policies) == {"t/a": "13", "t/b": "23"}
    assert rows(reports, policies, books) == {"t/a": "13", "t/b": "2"}


@pytest.mark.parametrize(
    ("policies", "unknown"),
    [
        (Policies(unknown="away"), {"t/a", "t/b"}),
        (Policies(unreadable=frozenset({"t/a"})), {"t/a"}),
        (Policies(isolation=(policy("t/a", "b[1-2]"), policy("[", "b3"))), {"t/b"}),
        (Policies(isolation=(policy("t/a", "["),)), {"t/a", "t/b"}),
        (Policies(isolation=(policy("t/a", "b1", secondary="["),)), {"t/a"}),
    ],
)
def test_what_cannot_be_read_goes_nowhere(policies: Policies, unknown: set[str]) -> None:
    reports = placed(["t/a"] * 4 + ["t/b"] * 4, [], [], [])
    limits = limits_of(snapshot(reports), policies)
    assert limits is not None
    assert {name for name, ok in zip(("t/a", "t/b"), limits.unknown.tolist(), strict=True) if ok} == unknown
    assert not limits.mask[limits.unknown].any()
    result = planned(reports, policies).plan
    assert not {move.bundle.rpartition("/")[0] for move in result.moves} & unknown
    refused = {item.bundle.rpartition("/")[0] for item in result.refusals if item.code is Code.POLICY_UNREADABLE}
    assert refused == unknown


def test_an_available_primary_without_a_report_keeps_secondaries_out() -> None:
    """Pulsar counts it; so would a lookup."""
    current = snapshot(placed([], ["t/a"], [])[1:], excluded=[ExcludedBroker(broker_id=B[0], code="NotJson")])
    limits = limits_of(current, Policies(isolation=(policy("t/a", "b1", secondary="b2", limit=1),)))
    assert limits is not None and not limits.mask.any()


def test_who_has_policies() -> None:
    current = snapshot(placed(["t/a", "t/b"], ["t/c", "t/d"]))
    names = current.bundles.namespaces
    policies = Policies(isolation=(policy("t/a", "b1"),), anti_affinity={"t/b": "g"}, unreadable=frozenset({"t/c"}))
    allowed = with_policies(current, policies)
    assert [name for name, has in zip(names, allowed.tolist(), strict=True) if has] == ["t/a", "t/b", "t/c"]
    assert with_policies(current, Policies(unknown="x")).all()
    assert not with_policies(current, Policies()).any()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_one_legal_broker_means_no_unload(strategy: str) -> None:
    """Scenario 12: whatever the load, bundles that only their broker may hold stay, with the reason."""
    reports = placed(["t/a"] * 5, ["t/b"], [], [], share=0.12)
    policies = Policies(isolation=(policy("t/a", "b1"),))
    assert planned(reports, Policies(), strategy=strategy).plan.moves
    result = planned(reports, policies, strategy=strategy).plan
    assert not result.moves
    assert [item.code for item in result.refusals if item.bundle.startswith("t/a/")] == [Code.POLICY_FORBIDS] * 5


@pytest.mark.parametrize("strategy", ("avg", "threshold"))
def test_bundles_of_a_policy_stay_among_its_brokers(strategy: str) -> None:
    reports = placed(["t/a"] * 6, [], ["t/b"] * 6, [])
    result = planned(reports, Policies(isolation=(policy("t/a", "b[12]"),)), strategy=strategy).plan
    ways = {(move.bundle[:3], move.target) for move in result.moves}
    assert ways == {("t/a", B[1]), ("t/b", B[3])}


@pytest.mark.parametrize("strategy", ("avg", "threshold"))
def test_one_move_of_a_group_at_a_time(strategy: str) -> None:
    """Three namespaces of one group share the hot broker: one leaves, the others wait with a code of their own."""
    reports = placed(["t/a", "t/b", "t/c"], [], [], share=0.2)
    groups = Policies(anti_affinity=dict.fromkeys(("t/a", "t/b", "t/c"), "g"))
    first = planned(reports, groups, strategy=strategy)
    (move,) = first.plan.moves
    waiting = {item.bundle for item in first.plan.refusals if item.code is Code.ANTI_AFFINITY}
    assert waiting == {bundle_name(n, f"t/{name}") for n, name in enumerate("abc")} - {move.bundle}
    begun = entry(move.bundle, move.source, move.target, traffic=move.traffic, pressure=move.pressure)
    second = planned(reports, groups, Ledger(entries=(begun,)), strategy=strategy)
    assert move.target not in {item.target for item in second.plan.moves}


def test_mask_of_an_empty_cluster() -> None:
    mask = mask_of(snapshot([]), Policies(isolation=(policy("t/a", "b1"),)))
    assert mask is not None and mask.shape == (0, 0)
    assert mask.dtype == np.bool_


@pytest.mark.parametrize("strategy", ["uniform", "threshold", "overload"])
def test_an_emptier_broker_that_policies_forbid_hides_nobody(strategy: str) -> None:
    """Rule: the target is the least loaded of those that may take, not the least loaded of all."""
    bundles = {bundle_name(n, "t/a"): 0.15 for n in range(6)}
    reports = [report(B[0], bundles), report(B[1], {}), report(B[2], {bundle_name(9, "t/b"): 0.1})]
    result = planned(reports, Policies(isolation=(policy("t/a", "b[13]"),)), strategy=strategy).plan
    assert {move.target for move in result.moves} == {B[2]}


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        ((policy("(?!t/b).*", "b[12]"),), {"t/a": "12", "t/b": "34"}),
        ((policy("t/b", "(?!b1|b2).*"),), {"t/a": "12", "t/b": "34"}),
        ((policy("t/b", "b3", secondary="(?!b[123]).*", limit=2),), {"t/a": "124", "t/b": "34"}),
        # It is not certain which brokers this policy matches. All others are free for other namespaces.
        ((policy("t/b", "b3(x)\\1"),), {"t/a": "124", "t/b": ""}),
        ((policy("t/b(x)\\1|y", "b3"), policy("t/a", "b1")), {"t/a": "", "t/b": ""}),
        ((policy("t/b(x)\\1", "b3"), policy("t/a", "b1")), {"t/a": "1", "t/b": ""}),
    ],
)
def test_n_m_a_policy_freezes_only_what_it_names(
    isolation: tuple[IsolationPolicy, ...], expected: dict[str, str]
) -> None:
    reports = placed(["t/a"], ["t/b"], [], [])
    assert rows(reports, Policies(isolation=isolation)) == expected
    limits = limits_of(snapshot(reports), Policies(isolation=isolation))
    assert limits is not None and limits.unknown.tolist() == [not expected[name] for name in ("t/a", "t/b")]


@pytest.mark.parametrize("compat", ("none", "4.2"))
@pytest.mark.parametrize("strategy", (*STRATEGIES, "overload", "transfer", "deviation"))
@pytest.mark.parametrize("hosts", (("b1:8080", "b2:8080"), ("b9", "broker-.*")))
def test_n_m_a_policy_without_brokers_is_named(strategy: str, compat: str, hosts: tuple[str, str]) -> None:
    """Pulsar matches hosts without ports; after an unload no broker could own the bundle."""
    if compat != "none" and strategy == "deviation":
        return
    reports = placed(["t/a"] * 9, ["t/b"], [], share=0.1)
    gold = policy("t/a", hosts[0], secondary=hosts[1], limit=1, name="gold")
    keen: dict[str, Any] = {
        "transfer_hit_count": 0,
        "move_price": 0,
        "transfer_target_std": 0.01,
        "deviation_threshold": 0.5,
        "strategy": strategy,
    }
    decision = planned(reports, Policies(isolation=(gold,)), compat=compat, **keen, bundles_with_policies=True).plan
    assert not decision.moves
    refusals = {(item.code, item.detail) for item in decision.refusals if item.bundle.startswith("t/a/")}
    assert refusals <= {(Code.POLICY_WITHOUT_BROKERS, "isolation policy gold matches no broker")}
    assert refusals or compat == "4.2"


def test_n_m_a_broker_without_a_report_is_matched() -> None:
    """It is live, and may take bundles soon: the policy is not wrong."""
    cluster = snapshot(placed([], ["t/a"], [])[1:], excluded=[ExcludedBroker(broker_id=B[0], code="NotJson")])
    limits = limits_of(cluster, Policies(isolation=(policy("t/a", "b1"),)))
    assert limits is not None and not limits.unmatched
