"""The assignment pipeline, filter by filter: who is left after each step, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport, ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.filters.assign import Assignment, AssignmentInput, assign
from bundlekeel.planning.filters.versions import version_key
from bundlekeel.planning.ledger import Ledger
from tests.support.builders import NOW_MS, bundle_name, entry, report, snapshot

B = ("b1:8080", "b2:8080", "b3:8080")
MODES = ("modular", "extensible")
NEW = bundle_name(99, "t/new")
GOLD = IsolationPolicy(name="gold", namespaces=("t/gold.*",), primary=("b1",), secondary=("b2",), min_limit=1)


def brokers(**changes: Mapping[str, Any]) -> list[BrokerReport]:
    """Three idle brokers; `changes` by the broker's short name."""
    return [report(broker, {}, **changes.get(broker[:2], {})) for broker in B]


def ask(
    reports: Sequence[BrokerReport],
    bundle: str = NEW,
    *,
    ledger: Ledger | None = None,
    excluded: Sequence[ExcludedBroker] = (),
    non_persistent: bool = False,
    placement: str = "least_resource_usage",
    policies: Policies | None = None,
    mode: str = "modular",
    in_turn: frozenset[str] = frozenset(),
    **params: Any,
) -> Assignment:
    """One run of the pipeline of this load manager."""
    books = ledger or Ledger()
    draft = Draft(snapshot(reports, excluded=excluded, mode=mode), books, Parameters(**params))
    question = AssignmentInput(
        draft=draft, ledger=books, policies=policies or Policies(), placement=placement, in_turn=in_turn
    )
    return assign(question, bundle, non_persistent=non_persistent)


def dropped(assignment: Assignment, step: str) -> dict[str, Code]:
    return {item.broker: item.code for item in next(item for item in assignment.steps if item.name == step).dropped}


@pytest.mark.parametrize(
    ("namespace", "gold", "left", "codes"),
    [
        ("t/gold1", GOLD, B[:1], {B[1]: Code.SECONDARY_NOT_NEEDED, B[2]: Code.NOT_IN_POLICY}),
        ("t/golden/x", GOLD, B[:1], {B[1]: Code.SECONDARY_NOT_NEEDED, B[2]: Code.NOT_IN_POLICY}),
        ("t/new", GOLD, B[1:], {B[0]: Code.PRIMARY_OF_OTHERS}),
        ("t/gold1", ("b1", "b2", 2), B[:2], {B[2]: Code.NOT_IN_POLICY}),
        ("t/gold1", ("b9", "b[23]", 1), B[1:], {B[0]: Code.NOT_IN_POLICY}),
        ("t/gold1", ("b9", "b2", 0), (), dict.fromkeys((B[0], B[2]), Code.NOT_IN_POLICY)),
        ("t/gold1", ("b", "", 1), (), dict.fromkeys(B, Code.NOT_IN_POLICY)),
    ],
)
def test_isolation_policies(
    namespace: str, gold: IsolationPolicy | tuple[str, str, int], left: tuple[str, ...], codes: dict[str, Code]
) -> None:
    if not isinstance(gold, IsolationPolicy):
        primary, secondary, limit = gold
        gold = IsolationPolicy(
            name="gold", namespaces=("t/gold.*",), primary=(primary,), secondary=(secondary,), min_limit=limit
        )
    assignment = ask(brokers(), bundle_name(1, namespace), policies=Policies(isolation=(gold,)))
    assert next(step for step in assignment.steps if step.name == "policies").candidates == left
    assert codes.items() <= dropped(assignment, "policies").items()
    assert (assignment.chosen, assignment.code) == ((left[0], None) if left else (None, Code.NO_LEGAL_TARGET))


def test_the_first_matching_policy_counts() -> None:
    """Pulsar's map keeps the order it was written in."""
    silver = IsolationPolicy(name="silver", namespaces=("t/.*",), primary=("b3",), min_limit=1)
    assert ask(brokers(), bundle_name(1, "t/gold"), policies=Policies(isolation=(GOLD, silver))).chosen == B[0]
    assert ask(brokers(), bundle_name(1, "t/gold"), policies=Policies(isolation=(silver, GOLD))).chosen == B[2]


def test_a_primary_without_a_report_still_counts_as_available() -> None:
    """It is alive, so Pulsar sees enough primaries; only we cannot tell how loaded it is."""
    silent = ExcludedBroker(broker_id=B[0], code="NotJson")
    assignment = ask(brokers()[1:], bundle_name(1, "t/gold"), excluded=[silent], policies=Policies(isolation=(GOLD,)))
    assert assignment.code is Code.NO_LEGAL_TARGET
    assert dropped(assignment, "available") == {B[0]: Code.NOT_JSON}
    assert dropped(assignment, "policies")[B[1]] is Code.SECONDARY_NOT_NEEDED


@pytest.mark.parametrize(
    ("policies", "namespace"),
    [
        (Policies(unknown="the store does not answer"), "t/new"),
        (Policies(unreadable=frozenset({"t/new"})), "t/new"),
        (Policies(isolation=(IsolationPolicy(name="x", namespaces=("[",), primary=("b1",)),)), "t/new"),
        (Policies(isolation=(IsolationPolicy(name="x", namespaces=("t/.*",), primary=("[",)),)), "t/new"),
        (Policies(isolation=(IsolationPolicy(name="x", namespaces=("t/x",), primary=("[",)),)), "t/new"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_what_cannot_be_read_chooses_nobody(policies: Policies, namespace: str, mode: str) -> None:
    """No records, a broken record, and expressions that Python cannot match like Java."""
    assignment = ask(brokers(), bundle_name(1, namespace), policies=policies, mode=mode)
    assert (assignment.chosen, assignment.code, assignment.candidates) == (None, Code.POLICY_UNREADABLE, ())


@pytest.mark.parametrize(
    ("non_persistent", "namespace", "expected"),
    [
        (False, "t/new", {B[0]: Code.PERSISTENT_DISABLED}),
        (True, "t/new", {B[1]: Code.NON_PERSISTENT_DISABLED}),
        (False, "t/gold", {B[2]: Code.NOT_IN_POLICY}),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_kinds_of_topics(non_persistent: bool, namespace: str, expected: dict[str, Code], mode: str) -> None:
    reports = brokers(b1={"persistent_topics_enabled": False}, b2={"non_persistent_topics_enabled": False})
    both = IsolationPolicy(name="gold", namespaces=("t/gold",), primary=("b1", "b2"), min_limit=1)
    policies = Policies(isolation=(both,) if namespace == "t/gold" else ())
    assignment = ask(reports, bundle_name(1, namespace), non_persistent=non_persistent, policies=policies, mode=mode)
    assert dropped(assignment, "policies") == expected
    assert assignment.candidates == tuple(broker for broker in B if broker not in expected)


def grouped() -> Policies:
    """`t/a`, `t/b` and `t/new` are of one group, spelled differently; b1 and b2 make a failure domain."""
    return Policies(
        anti_affinity={"t/a": "g", "t/b": "G", "t/new": "g", "t/other": "h"},
        failure_domains={"east": B[:2], "west": B[2:]},
    )


@pytest.mark.parametrize(
    ("holders", "domains", "left"),
    [
        (("t/a", "t/b", "t/other"), False, B[2:]),
        (("t/a", "", "t/b"), False, (B[1],)),
        (("t/a", "", "t/b"), True, (B[1],)),
        (("t/a", "", ""), True, B[2:]),
        (("t/a", "", ""), False, B[1:]),
        (("t/a", "t/a", "t/b"), False, B),
        (("t/new", "", "t/b"), False, (B[1],)),
    ],
)
def test_anti_affinity(holders: tuple[str, str, str], domains: bool, left: tuple[str, ...]) -> None:
    """The fewest namespaces of the group, in the failure domain with the fewest when domains count; several bundles
    of one namespace count once."""
    reports = [
        report(broker, {bundle_name(2 * n, name): 0.1, bundle_name(2 * n + 1, name): 0.1} if name else {})
        for n, (broker, name) in enumerate(zip(B, holders, strict=True))
    ]
    policies = Policies(
        anti_affinity=grouped().anti_affinity,
        failure_domains=grouped().failure_domains,
        failure_domains_enabled=domains,
        distribute_evenly=False,
    )
    assignment = ask(reports, policies=policies)
    assert assignment.candidates == left
    codes = {**dropped(assignment, "anti-affinity"), **(dropped(assignment, "failure domains") if domains else {})}
    assert set(codes) == set(B) - set(left)
    assert set(codes.values()) <= {Code.MORE_OF_GROUP, Code.FULLER_DOMAIN}


@pytest.mark.parametrize(
    ("bundle", "evenly", "left"),
    [
        (NEW, True, B[2:]),
        (NEW, False, B),
        (bundle_name(1, "t/new"), True, B[1:]),
        (bundle_name(1, "t/else"), True, B),
        (bundle_name(1, "pulsar/system"), False, B[1:]),
    ],
)
def test_fewest_bundles_of_the_namespace(bundle: str, evenly: bool, left: tuple[str, ...]) -> None:
    """Reports and books count, the bundle itself does not; `pulsar/system` is always spread."""
    owned = {bundle_name(1, "t/new"): 0.0, bundle_name(2, "t/new"): 0.0, bundle_name(3, "pulsar/system"): 0.0}
    reports = [report(B[0], owned), report(B[1], {}), report(B[2], {})]
    books = Ledger(entries=(entry(bundle_name(7, "t/new"), B[0], B[1]),)) if bundle == NEW else Ledger()
    assignment = ask(reports, bundle, ledger=books, policies=Policies(distribute_evenly=evenly))
    assert assignment.candidates == left


def test_a_booked_move_to_a_broker_that_is_gone_counts_nowhere() -> None:
    books = Ledger(entries=(entry(bundle_name(7, "t/new"), B[0], "gone:8080"),))
    assert ask(brokers(), ledger=books, policies=Policies(distribute_evenly=True)).candidates == B


@pytest.mark.parametrize(("evenly", "message"), [(True, ("at most 0 of its bundles",)), (False, ("off",))])
def test_a_step_that_is_off_is_told(evenly: bool, message: tuple[str, ...]) -> None:
    assignment = ask(brokers(), policies=Policies(distribute_evenly=evenly))
    assert tuple(step.note for step in assignment.steps if step.name == "distribute evenly") == message


def test_refill_brings_back_what_policies_leave_and_no_more() -> None:
    reports = brokers(**{f"b{n}": {"load_manager": "m.Modular"} for n in (1, 2, 3)})
    assignment = ask(reports, policies=Policies(isolation=(GOLD,), load_manager="m.None"))
    assert assignment.candidates == B[1:]


def test_the_overloaded_choice_is_made_once_more_among_all() -> None:
    """The only broker without a bundle of the namespace is overloaded: all candidates of the policies come back."""
    full = bundle_name(1, "t/new")
    reports = [report(B[0], {}, cpu=0.9), report(B[1], {full: 0.5}), report(B[2], {bundle_name(2, "t/new"): 0.4})]
    assignment = ask(reports)
    assert assignment.steps[-1].name == "overload recheck"
    assert (assignment.chosen, assignment.candidates) == (B[2], B)


@pytest.mark.parametrize(
    ("cpu", "mode", "again"), [(0.85, "modular", False), (0.86, "modular", True), (0.86, "extensible", False)]
)
def test_only_a_modular_broker_above_the_threshold_is_chosen_again(cpu: float, mode: str, again: bool) -> None:
    """At the threshold is not above it, and the extensible load manager has no such step."""
    assignment = ask([report(broker, {}, cpu=cpu) for broker in B], mode=mode)
    assert ("overload recheck" in {step.name for step in assignment.steps}) is again
    assert assignment.chosen == B[0]


def test_a_bundle_on_its_way_gets_the_same_answer_again() -> None:
    """Preallocated until it has landed, whatever the filters say."""
    reports = brokers(b1={"cpu": 0.1})
    for landed_ms, expected in ((0, (B[0], B[0])), (NOW_MS, (None, B[1]))):
        assignment = ask(reports, ledger=Ledger(entries=(entry(NEW, B[0], B[0], landed_ms=landed_ms),)))
        assert (assignment.preallocated, assignment.chosen) == expected


@pytest.mark.parametrize(
    ("placement", "choice"),
    [
        ("least_resource_usage", B[1]),
        ("least_long_term_message_rate", B[0]),
        ("round_robin", B[0]),
        ("avg", B[2]),
        ("somebody_elses", B[1]),
    ],
)
def test_placements(placement: str, choice: str) -> None:
    """Each chooses by its own figure; one we do not know falls back to the least usage."""
    reports = [
        report(B[0], {bundle_name(1): 0.1}, cpu=0.6),
        report(B[1], {bundle_name(2): 0.3}, cpu=0.2),
        report(B[2], {bundle_name(3): 0.2}, cpu=0.4),
    ]
    assert ask(reports, placement=placement).chosen == choice


def test_versions_are_ordered_as_semver_says() -> None:
    """semver.org, section 11."""
    ordered = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
    ordered += ["1.0.0-rc.1", "1.0.0", "1.9.0", "1.10.0"]
    keys = [version_key(text) for text in ordered]
    assert all(key is not None for key in keys)
    assert sorted(ordered, key=lambda text: version_key(text) or ()) == ordered
    assert version_key("1.0.0+build") == version_key("1.0.0")
    assert version_key("4.2") is None


# --- where Pulsar draws ----------------------------------------------------------------------------------------


def loaded(*shares: float) -> list[BrokerReport]:
    """Three brokers with one bundle each; 0: an idle one."""
    return [
        report(broker, {bundle_name(row): share} if share else {})
        for row, (broker, share) in enumerate(zip(B, shares, strict=True))
    ]


@pytest.mark.parametrize(
    ("placement", "shares", "one_of"),
    [
        ("least_long_term_message_rate", (0.2, 0.2, 0.5), B[:2]),
        ("least_long_term_message_rate", (0.2, 0.3, 0.5), ()),
        ("least_long_term_message_rate", (0.9, 0.87, 0.86), B),
        ("least_long_term_message_rate", (0.9, 0.0, 0.0), B[1:]),
        ("least_resource_usage", (0.1, 0.2, 0.6), B[:2]),
        ("least_resource_usage", (0.25, 0.3, 0.35), B),
        ("least_resource_usage", (0.1, 0.4, 0.4), ()),
        ("round_robin", (0.1, 0.4, 0.4), B),
        ("avg", (0.1, 0.4, 0.4), B),
        ("a.plugin.OfTheBrokers", (0.1, 0.4, 0.4), B),
    ],
)
def test_n_n_the_brokers_among_which_pulsar_draws(
    placement: str, shares: tuple[float, float, float], one_of: tuple[str, ...]
) -> None:
    """Equal lowest rates; all brokers well below the mean, or all; in turn; by a hash: nothing shows which is next."""
    answer = ask(loaded(*shares), placement=placement)
    assert answer.one_of == one_of
    assert not one_of or answer.chosen in one_of


def test_n_n_a_bundle_that_is_preallocated_is_not_drawn() -> None:
    """It has one destination, as has a bundle with one candidate; without a candidate there is none."""
    going = Ledger(entries=(entry(NEW, B[0], B[1]),))
    assert ask(brokers(), ledger=going).one_of == ()
    assert ask(brokers(), bundle_name(1, "t/gold"), policies=Policies(isolation=(GOLD,))).one_of == ()
    assert ask([]).one_of == ()
