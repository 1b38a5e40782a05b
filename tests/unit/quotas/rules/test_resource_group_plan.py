"""ResourceGroups kept as declared: writes, restores and errors."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.quotas.rules.groups import Membership, QuotaGroup, QuotaLimits, resolve
from bundlekeel.quotas.rules.resource_group_plan import (
    GroupBrokers,
    NativePlan,
    OwnedResourceGroup,
    ResourceGroup,
    defects,
    plan_native,
    resource_group_of,
    serving_after,
)

GROUP = QuotaGroup(name="acme", limits=QuotaLimits(publish_messages=100.9, dispatch_bytes=5e6), members=("t:acme",))
WANTED = ResourceGroup(100, -1, -1, 5_000_000)
MEMBERS = resolve([GROUP], ["acme"], ["acme/a", "acme/b"])
OURS = OwnedResourceGroup(original=None, attached={"acme/a": "", "acme/b": "old"})


def puts(plan: NativePlan) -> list[tuple[str, ResourceGroup | str | None]]:
    return [(put.what, put.name if put.namespace else put.group) for put in plan.puts]


def test_as_declared() -> None:
    assert resource_group_of(GROUP) == WANTED


def test_first_time() -> None:
    plan = plan_native(MEMBERS, {"acme": None}, {"acme/a": "", "acme/b": "old"}, {})
    assert puts(plan) == [("acme", WANTED), ("acme/a", "acme"), ("acme/b", "acme")]
    assert [(put.before, put.leaves) for put in plan.puts] == [(None, ""), (None, ""), (None, "old")]
    assert plan.kept == {"acme": OURS} and not plan.done


def test_as_it_is() -> None:
    plan = plan_native(MEMBERS, {"acme": WANTED}, {"acme/a": "acme", "acme/b": "acme"}, {"acme": OURS})
    assert not plan.puts and plan.kept == {"acme": OURS}


def test_completed_after_a_crash() -> None:
    """Stored, the group written, one namespace attached: the other one follows."""
    plan = plan_native(MEMBERS, {"acme": WANTED}, {"acme/a": "acme", "acme/b": "old"}, {"acme": OURS})
    assert puts(plan) == [("acme/b", "acme")] and plan.kept == {"acme": OURS}


def test_somebody_changed_it() -> None:
    """It is declared otherwise: set again, the original stays what it was."""
    plan = plan_native(MEMBERS, {"acme": ResourceGroup(5)}, {"acme/a": "acme", "acme/b": ""}, {"acme": OURS})
    assert puts(plan) == [("acme", WANTED), ("acme/b", "acme")] and plan.kept == {"acme": OURS}
    assert plan.puts[0].before == ResourceGroup(5)


@pytest.mark.parametrize("original", [None, ResourceGroup(7)])
def test_removed(original: ResourceGroup | None) -> None:
    group = OwnedResourceGroup(original=original, attached={**OURS.attached, "acme/c": ""})
    attached = {"acme/a": "acme", "acme/b": "acme", "acme/c": "theirs"}
    plan = plan_native(Membership(), {"acme": WANTED}, attached, {"acme": group})
    assert puts(plan) == [("acme/a", ""), ("acme/b", "old"), ("acme", original)]
    assert plan.done == ("acme",) and plan.kept == {
        "acme": OwnedResourceGroup(original=original, attached=OURS.attached)
    }


def test_removed_and_gone() -> None:
    plan = plan_native(Membership(), {"acme": None}, {"acme/a": "", "acme/b": "x"}, {"acme": OURS})
    assert not plan.puts and plan.done == ("acme",)


def test_what_was_not_read_is_left_alone() -> None:
    assert plan_native(MEMBERS, {}, {}, {}).puts == ()
    plan = plan_native(Membership(), {"acme": WANTED}, {"acme/a": "acme"}, {"acme": OURS})
    assert puts(plan) == [("acme/a", "")] and not plan.done and plan.kept == {"acme": OURS}


def test_a_namespace_leaves() -> None:
    """It gets back what it had; the others stay."""
    group = QuotaGroup(name="acme", limits=GROUP.limits, members=("n:acme/a",))
    members = resolve([group], ["acme"], ["acme/a", "acme/b"])
    plan = plan_native(members, {"acme": WANTED}, {"acme/a": "acme", "acme/b": "acme"}, {"acme": OURS})
    assert puts(plan) == [("acme/b", "old")] and plan.kept == {"acme": OURS}
    again = plan_native(members, {"acme": WANTED}, {"acme/a": "acme", "acme/b": "old"}, {"acme": OURS})
    assert again.kept == {"acme": OwnedResourceGroup(original=None, attached={"acme/a": ""})}


@pytest.mark.parametrize("declared", [True, False])
def test_a_deleted_namespace_is_done(declared: bool) -> None:
    """It keeps neither the other one nor the group."""
    members = resolve([GROUP], ["acme"], ["acme/a"]) if declared else Membership()
    plan = plan_native(members, {"acme": WANTED}, {"acme/a": "acme"}, {"acme": OURS}, {"acme/b"})
    if declared:
        assert not plan.puts and plan.kept == {"acme": OwnedResourceGroup(attached={"acme/a": ""})}
    else:
        assert puts(plan) == [("acme/a", ""), ("acme", None)] and plan.done == ("acme",)


class World:
    """ResourceGroups and namespaces as brokers keep them. A write that they would refuse fails the test."""

    def __init__(self, **attached: str) -> None:
        self.groups: dict[str, ResourceGroup] = {}
        self.attached = {f"acme/{name}": there for name, there in attached.items()}
        self.kept: dict[str, OwnedResourceGroup] = {}

    def plan(self, *groups: QuotaGroup) -> NativePlan:
        names = {group.name for group in groups} | set(self.kept)
        names |= {was for remaining in self.kept.values() for was in remaining.attached.values()}
        there = {name: self.groups.get(name) for name in names}
        return plan_native(resolve(groups, ["acme"], list(self.attached)), there, self.attached, self.kept)

    def cycle(self, *groups: QuotaGroup, fails: Collection[str] = ()) -> None:
        """Plan, store and write; these namespaces refuse."""
        plan = self.plan(*groups)
        self.kept = dict(plan.kept)
        for put in plan.puts:
            if put.namespace and put.namespace not in fails:
                assert not put.name or put.name in self.groups
                self.attached[put.namespace] = put.name
            elif not put.namespace and put.group is not None:
                self.groups[put.name] = put.group
            elif not put.namespace and not any(item.leaves == put.name for item in plan.moves if item.what in fails):
                assert put.name not in self.attached.values()
                del self.groups[put.name]
        if not fails:
            self.kept = {name: remaining for name, remaining in self.kept.items() if name not in plan.done}


def named(name: str, *members: str) -> QuotaGroup:
    """A group."""
    return QuotaGroup(name=name, limits=QuotaLimits(publish_messages=100), members=members or ("t:acme",))


@pytest.mark.parametrize("before", ["", "old"])
def test_renamed(before: str) -> None:
    world = World(x=before)
    world.groups |= {"old": ResourceGroup(9)}
    world.cycle(named("alpha"))
    plan = world.plan(named("beta"))
    assert puts(plan) == [("beta", ResourceGroup(100)), ("acme/x", "beta"), ("alpha", None)]
    world.cycle(named("beta"))
    assert world.kept == {"beta": OwnedResourceGroup(attached={"acme/x": before})}
    world.cycle()
    assert world.attached == {"acme/x": before} and world.groups == {"old": ResourceGroup(9)} and not world.kept


def test_moved_between_groups() -> None:
    """Forth and back."""
    world = World(x="", y="")
    alpha, beta = named("alpha", "n:acme/x", "n:acme/y"), named("beta", "n:acme/z")
    world.cycle(alpha, beta)
    world.cycle(named("alpha", "n:acme/x"), named("beta", "n:acme/y"))
    assert world.attached == {"acme/x": "alpha", "acme/y": "beta"}
    world.cycle(alpha, beta)
    assert world.attached == {"acme/x": "alpha", "acme/y": "alpha"}
    world.cycle(alpha, beta)
    assert [dict(world.kept[name].attached) for name in ("alpha", "beta")] == [{"acme/x": "", "acme/y": ""}, {}]
    world.cycle()
    assert world.attached == {"acme/x": "", "acme/y": ""} and not world.groups


def test_renamed_while_a_namespace_refuses() -> None:
    """It stays attached to the first group, which stays as well; it goes back even if the second is removed."""
    world = World(x="", y="")
    world.cycle(named("alpha"))
    world.cycle(named("beta"), fails=["acme/x"])
    assert world.attached == {"acme/x": "alpha", "acme/y": "beta"} and set(world.groups) == {"alpha", "beta"}
    world.cycle()
    assert world.attached == {"acme/x": "", "acme/y": ""} and not world.groups and not world.kept


def test_what_was_before_is_gone() -> None:
    world = World(x="old")
    world.groups["old"] = ResourceGroup(9)
    world.cycle(named("alpha"))
    del world.groups["old"]
    world.cycle()
    assert world.attached == {"acme/x": ""} and not world.groups


def test_those_tried_the_longest_ago_come_first() -> None:
    world = World(x="", y="")
    world.cycle(named("alpha"))
    plan = world.plan(named("beta"))
    first = [{put.what for put in plan.chosen(most, {})} for most in range(5)]
    assert first == [
        set(),
        {"beta"},
        {"beta", "acme/x"},
        {"beta", "acme/x", "acme/y"},
        {"beta", "acme/x", "acme/y", "alpha"},
    ]
    assert {put.what for put in plan.chosen(2, {"acme/x": 1})} == {"beta", "acme/y"}
    assert {put.what for put in plan.chosen(1, {"beta": 1})} == {"beta"}
    assert {put.what for put in plan.chosen(3, {"acme/x": 1})} == {"beta", "acme/x", "acme/y"}


def test_dead_brokers_count_until_all_others_have_restarted() -> None:
    """Each keeps what a dead one said until it restarts itself; who is back speaks for itself."""
    there = serving_after(GroupBrokers(), ["b1", "b2"], {"b1": 10, "b2": 20, "b3": 30})
    assert there == GroupBrokers(brokers=("b1", "b2"), newest=30)
    dead = serving_after(there, ["b1"], {"b1": 10, "b3": 30})
    assert dead == GroupBrokers(brokers=("b1",), newest=30, gone={"b2": 30})
    one = serving_after(dead, ["b1"], {"b1": 40, "b3": 30, "b4": 35})
    assert one.gone == {"b2": 30}
    assert not serving_after(one, ["b1"], {"b1": 40, "b3": 50, "b4": 35}).gone
    assert not serving_after(one, ["b1"], {"b1": 40, "b2": 60, "b3": 30}).gone


def usage(*published: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array([[rate, 0.0, 0.0, 0.0] for rate in published])


BYTES_ONLY = QuotaGroup(name="g", limits=QuotaLimits(publish_bytes=1e6), members=("t:acme",))


@pytest.mark.parametrize(
    ("messages", "size", "starved"),
    [(0.001, 1.0, True), (0.2, 200.0, True), (50.0, 50e3, False), (1.0, 400e3, False), (0.0, 0.0, False)],
)
def test_starved_of_bytes(messages: float, size: float, starved: bool) -> None:
    """Pulsar gives such a broker 1 byte/s if only bytes are limited, and an occasional message passes."""
    rates = np.array([[600.0, 600e3, 0.0, 0.0], [messages, size, 0.0, 0.0]])
    result = defects(BYTES_ONLY, rates, ["b0", "b1"], (), exchanged=True)
    assert [(item.code, item.detail) for item in result] == [(Code.STARVED_AFTER_MOVE, "b1")] * starved


PUBLISH_ONLY = QuotaGroup(name="g", limits=QuotaLimits(publish_messages=100), members=("t:acme",))
DISPATCH_ONLY = QuotaGroup(name="g", limits=QuotaLimits(dispatch_messages=100), members=("t:acme",))


@pytest.mark.parametrize(
    ("group", "rates", "absent", "exchanged", "codes"),
    [
        (PUBLISH_ONLY, (50.0, 40.0), (), True, []),
        (PUBLISH_ONLY, (50.0, 40.0), (), False, [Code.USAGE_NOT_EXCHANGED]),
        (PUBLISH_ONLY, (50.0,), (), False, []),
        (PUBLISH_ONLY, (50.0, 40.0), ("b9",), True, [Code.DEAD_BROKER_COUNTED]),
        (PUBLISH_ONLY, (90.0, 1.0), (), True, [Code.STARVED_AFTER_MOVE]),
        (PUBLISH_ONLY, (90.0, 0.0), (), True, []),
        (PUBLISH_ONLY, (10.0, 1.0), (), True, []),
        (DISPATCH_ONLY, (10.0, 1.0), (), True, [Code.DISPATCH_NOT_ENFORCED]),
    ],
)
def test_defects(
    group: QuotaGroup, rates: tuple[float, ...], absent: tuple[str, ...], exchanged: bool, codes: list[Code]
) -> None:
    """Named only where they bite."""
    brokers = [f"b{number}" for number in range(len(rates))]
    result = defects(group, usage(*rates), brokers, absent, exchanged=exchanged)
    assert [item.code for item in result] == codes and all(item.group == "g" for item in result)
