"""ResourceGroups kept as declared: what is written, what is given back, what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest

from bundlekeel.core.codes import Code
from bundlekeel.core.quotas.groups import Group, Limits, Membership, resolve
from bundlekeel.core.quotas.native import (
    Kept,
    Put,
    ResourceGroup,
    defects,
    plan_native,
    resource_group_of,
)

GROUP = Group(name="acme", limits=Limits(publish_messages=100.9, dispatch_bytes=5e6), members=("t:acme",))
WANTED = ResourceGroup(100, -1, -1, 5_000_000)
MEMBERS = resolve([GROUP], ["acme"], ["acme/a", "acme/b"])
OURS = Kept(original=None, attached={"acme/a": "", "acme/b": "old"})


def test_as_declared() -> None:
    """Whole numbers; what is not limited stays so."""
    assert resource_group_of(GROUP) == WANTED


def test_first_time() -> None:
    """The group first, then its namespaces; what was there is kept."""
    found = plan_native(MEMBERS, {"acme": None}, {"acme/a": "", "acme/b": "old"}, {})
    assert found.puts == (Put("acme", WANTED), Put("acme", namespace="acme/a"), Put("acme", namespace="acme/b"))
    assert found.kept == {"acme": OURS} and not found.done


def test_as_it_is() -> None:
    """Nothing to write; and what was kept of another leader's first write is not overwritten by our own value."""
    found = plan_native(MEMBERS, {"acme": WANTED}, {"acme/a": "acme", "acme/b": "acme"}, {"acme": OURS})
    assert not found.puts and found.kept == {"acme": OURS}


def test_completed_after_a_crash() -> None:
    """Stored, the group written, one namespace attached: the other one follows."""
    found = plan_native(MEMBERS, {"acme": WANTED}, {"acme/a": "acme", "acme/b": "old"}, {"acme": OURS})
    assert found.puts == (Put("acme", namespace="acme/b"),) and found.kept == {"acme": OURS}


def test_somebody_changed_it() -> None:
    """It is declared otherwise: set again, the original stays what it was."""
    found = plan_native(MEMBERS, {"acme": ResourceGroup(5)}, {"acme/a": "acme", "acme/b": ""}, {"acme": OURS})
    assert found.puts == (Put("acme", WANTED), Put("acme", namespace="acme/b")) and found.kept == {"acme": OURS}


@pytest.mark.parametrize("original", [None, ResourceGroup(7)])
def test_removed(original: ResourceGroup | None) -> None:
    """Namespaces first: a group in use cannot be removed. What somebody attached elsewhere since is theirs."""
    kept = Kept(original=original, attached={**OURS.attached, "acme/c": ""})
    attached = {"acme/a": "acme", "acme/b": "acme", "acme/c": "theirs"}
    found = plan_native(Membership(), {"acme": WANTED}, attached, {"acme": kept})
    assert found.puts == (Put("", namespace="acme/a"), Put("old", namespace="acme/b"), Put("acme", original))
    assert found.done == ("acme",) and found.kept == {"acme": kept}


def test_removed_and_gone() -> None:
    """Somebody removed it already."""
    found = plan_native(Membership(), {"acme": None}, {"acme/a": "", "acme/b": "x"}, {"acme": OURS})
    assert not found.puts and found.done == ("acme",)


def test_what_was_not_read_is_left_alone() -> None:
    """Neither written nor forgotten."""
    assert plan_native(MEMBERS, {}, {}, {}).puts == ()
    found = plan_native(Membership(), {"acme": WANTED}, {"acme/a": "acme"}, {"acme": OURS})
    assert not found.puts and not found.done and found.kept == {"acme": OURS}


def test_a_namespace_leaves() -> None:
    """It gets back what it had; the others stay."""
    group = Group(name="acme", limits=GROUP.limits, members=("n:acme/a",))
    members = resolve([group], ["acme"], ["acme/a", "acme/b"])
    found = plan_native(members, {"acme": WANTED}, {"acme/a": "acme", "acme/b": "acme"}, {"acme": OURS})
    assert found.puts == (Put("old", namespace="acme/b"),)
    again = plan_native(members, {"acme": WANTED}, {"acme/a": "acme", "acme/b": "old"}, {"acme": OURS})
    assert again.kept == {"acme": Kept(original=None, attached={"acme/a": ""})}


def usage(*published: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """By broker, nothing else."""
    return np.array([[rate, 0.0, 0.0, 0.0] for rate in published])


PUBLISH_ONLY = Group(name="g", limits=Limits(publish_messages=100), members=("t:acme",))
DISPATCH_ONLY = Group(name="g", limits=Limits(dispatch_messages=100), members=("t:acme",))


@pytest.mark.parametrize(
    ("group", "rates", "gone", "exchanged", "codes"),
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
    group: Group, rates: tuple[float, ...], gone: tuple[str, ...], exchanged: bool, codes: list[Code]
) -> None:
    """Named only where they bite."""
    brokers = [f"b{number}" for number in range(len(rates))]
    found = defects(group, usage(*rates), brokers, gone, exchanged=exchanged)
    assert [item.code for item in found] == codes and all(item.group == "g" for item in found)
