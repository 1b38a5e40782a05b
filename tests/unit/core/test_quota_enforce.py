"""The enforcer's plan: which topic policies are written, left and given back."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from bundlekeel.core.quotas.enforce import (
    ABSENT,
    BUDGET,
    DISPATCH,
    FREE,
    NOT_READ,
    POLICIES_OFF,
    PUBLISH,
    RELATIVE,
    STRICTER,
    UNCHANGED,
    EnforcerPlan,
    InForce,
    OwnedRate,
    PolicyKey,
    Rate,
    WriteBudget,
    give_back,
    plan_writes,
    stricter,
)
from bundlekeel.core.quotas.groups import Membership, QuotaGroup, QuotaLimits, resolve
from bundlekeel.core.quotas.shares import Shares

T = "persistent://acme/ns/t"
U = "persistent://acme/ns/u"
GONE = "persistent://other/ns/t"
HERE, THERE = PolicyKey(topic=T, side=PUBLISH), PolicyKey(topic=U, side=PUBLISH)
NOTHING = InForce()
GROUP = QuotaGroup(name="g", limits=QuotaLimits(publish_messages=100), members=("t:acme",))
MEMBERS = resolve([GROUP], ["acme"], ["acme/ns"])
THRIFT = WriteBudget()


def shares(
    of: Mapping[str, float], *, partitions: int = 1, column: int = 0, content: Mapping[str, float] | None = None
) -> Shares:
    """Shares of one kind, the others are free. `content`: of topics that are not held back, what they pass."""
    matrix = np.full((len(of), 4), math.inf)
    matrix[:, column] = list(of.values())
    none = np.full((1, 4), math.inf)
    passed = np.zeros((len(of), 4))
    passed[:, column] = [(content or {}).get(topic, 0.0) for topic in of]
    return Shares(
        keys=tuple(("g", topic) for topic in of),
        group=np.zeros(len(of), dtype=np.int64),
        share=matrix,
        partitions=np.full(len(of), partitions, dtype=np.int64),
        level=none,
        excess=np.zeros((1, 4)),
        content=passed,
    )


def plan(
    of: Mapping[str, float],
    in_force: Mapping[PolicyKey, InForce],
    held: Mapping[PolicyKey, OwnedRate] | None = None,
    write_budget: WriteBudget = THRIFT,
    partitions: int = 1,
) -> EnforcerPlan:
    """The plan of these shares of published messages."""
    return plan_writes(shares(of, partitions=partitions), MEMBERS, in_force, held or {}, write_budget)


def held(*ours: Rate, original: Rate | None = None) -> OwnedRate:
    """Written by us."""
    return OwnedRate(group="g", original=original, ours=ours)


class TestWrites:
    """What is written."""

    def test_first_time(self) -> None:
        """Whole numbers, cut; what was there is kept before the write."""
        found = plan({T: 50.9}, {HERE: NOTHING})
        assert [(item.place, item.before, item.rate) for item in found.changes] == [(HERE, None, Rate(50))]
        assert found.owned == {HERE: held(Rate(50))}
        assert not found.left

    def test_partitions(self) -> None:
        """Each gets its part, and never less than 1: Pulsar reads 0 as no limit."""
        assert plan({T: 50.9}, {HERE: NOTHING}, partitions=4).changes[0].rate == Rate(12)
        assert plan({T: 2}, {HERE: NOTHING}, partitions=4).changes[0].rate == Rate(1)

    def test_what_cutting_leaves(self) -> None:
        """Is given out in ones, first to whom it takes most; the sum stays below that of the shares."""
        found = plan({T: 13.9, U: 7.6}, {HERE: NOTHING, THERE: NOTHING})
        assert {item.place: item.rate for item in found.changes} == {HERE: Rate(14), THERE: Rate(7)}

    def test_dispatch(self) -> None:
        """The other side, in bytes."""
        place = PolicyKey(topic=T, side=DISPATCH)
        members = Membership(groups=(QuotaGroup(name="g", limits=QuotaLimits(dispatch_bytes=1e6), members=()),))
        found = plan_writes(shares({T: 4e5}, column=3), members, {place: NOTHING}, {}, THRIFT)
        assert [(item.place, item.rate) for item in found.changes] == [(place, Rate(-1, 400_000))]

    @pytest.mark.parametrize(
        ("there", "rate"),
        [
            (InForce(topic=Rate(20, 5000)), None),
            (InForce(topic=Rate(80, 5000)), Rate(50, 5000)),
            (InForce(around=(Rate(20),)), None),
            (InForce(around=(Rate(-1, 900),)), Rate(50, 900)),
            (InForce(around=(Rate(70, 900), Rate(60, 800))), Rate(50, 800)),
            (InForce(topic=Rate(80), around=(Rate(20),)), Rate(50)),
            (InForce(topic=FREE, around=(Rate(20),)), None),
        ],
    )
    def test_the_stricter_wins(self, there: InForce, rate: Rate | None) -> None:
        """Never looser than what is in force; a topic policy hides those around it, so they are repeated in it."""
        found = plan({T: 50}, {HERE: there})
        assert [item.rate for item in found.changes] == ([] if rate is None else [rate])
        assert [item.why for item in found.left] == ([STRICTER] if rate is None else [])
        if rate is not None:
            assert found.owned[HERE].original == there.topic

    def test_refusals(self) -> None:
        """Where it cannot be done it is told."""
        assert plan({T: 50}, {HERE: InForce(allowed=False)}).left[0].why == POLICIES_OFF
        assert plan({T: 50}, {HERE: InForce(topic=Rate(5, 5, relative=True))}).left[0].why == RELATIVE
        assert plan({T: 50}, {}).left[0].why == NOT_READ

    @pytest.mark.parametrize(("share", "written"), [(54, False), (56, True), (48, False), (47, True)])
    def test_only_real_changes(self, share: float, written: bool) -> None:
        """10 % up, 5 % down."""
        force = {HERE: InForce(topic=Rate(50)), THERE: InForce(topic=Rate(100))}
        found = plan({T: share, U: 100}, force, {HERE: held(Rate(50)), THERE: held(Rate(100))})
        assert bool(found.changes) is written
        assert [item.why for item in found.left] == ([UNCHANGED] if written else [UNCHANGED, UNCHANGED])

    def test_many_small_rises(self) -> None:
        """None of them is worth a write, all together are: else a group could stay a tenth below its limit for good."""
        force = {HERE: InForce(topic=Rate(50)), THERE: InForce(topic=Rate(100))}
        found = plan({T: 54, U: 109}, force, {HERE: held(Rate(50)), THERE: held(Rate(100))})
        assert {item.place: item.rate for item in found.changes} == {HERE: Rate(54), THERE: Rate(109)}

    def test_repeated(self) -> None:
        """The same shares again: nothing to do."""
        first = plan({T: 50, U: 3}, {HERE: NOTHING, THERE: NOTHING})
        after = {item.place: InForce(topic=item.rate) for item in first.changes}
        second = plan({T: 50, U: 3}, after, first.owned)
        assert not second.changes
        assert second.owned == first.owned

    def test_budget(self) -> None:
        """Decreases first: they keep the limit. What waits is told, and nothing of it is remembered."""
        force = {HERE: InForce(topic=Rate(10)), THERE: InForce(topic=Rate(50))}
        before = {HERE: held(Rate(10)), THERE: held(Rate(50))}
        found = plan({T: 50, U: 10}, force, before, WriteBudget(most=1))
        assert [item.place for item in found.changes] == [THERE]
        assert [(item.place, item.why) for item in found.left] == [(HERE, BUDGET)]
        assert found.owned == {HERE: held(Rate(10)), THERE: held(Rate(50), Rate(10))}

    def test_a_restore_goes_before_a_rise(self) -> None:
        """What is no longer ours to limit is given back first, however large the rise that waits."""
        force = {HERE: InForce(topic=Rate(10)), THERE: InForce(topic=Rate(50))}
        before = {HERE: held(Rate(10)), THERE: held(Rate(50), original=Rate(90))}
        found = plan({T: 90, U: 500}, force, before, WriteBudget(most=1))
        assert [(item.place, item.restores) for item in found.changes] == [(THERE, True)]
        assert [(item.place, item.why) for item in found.left] == [(HERE, BUDGET)]


class TestForeign:
    """Somebody else writes too."""

    def test_taken_as_original(self) -> None:
        """A stricter policy of a person stays; a looser one is cut, and is what is given back."""
        before = {HERE: held(Rate(50), original=Rate(90))}
        assert plan({T: 50}, {HERE: InForce(topic=Rate(20))}, before).left[0].why == STRICTER
        found = plan({T: 50}, {HERE: InForce(topic=Rate(200))}, before)
        assert found.owned[HERE] == held(Rate(50), original=Rate(200))

    def test_removed(self) -> None:
        """Our policy was removed by hand: it is written again, and nothing will be given back."""
        found = plan({T: 50}, {HERE: NOTHING}, {HERE: held(Rate(50), original=Rate(90))})
        assert found.changes[0].rate == Rate(50)
        assert found.owned[HERE].original is None

    def test_never_restored_away(self) -> None:
        """What somebody else put there stays when the group goes."""
        found = give_back({HERE: held(Rate(50), original=None)}, {HERE: InForce(topic=Rate(7))}, 10)
        assert not found.changes
        assert not found.owned


class TestGivingBack:
    """Removing a group leaves every topic policy as it was before."""

    def test_group_removed(self) -> None:
        """The old policies return, also none; places that cannot be read now are kept for later."""
        before = {HERE: held(Rate(50), original=Rate(90, 5)), THERE: held(Rate(50))}
        later = PolicyKey(topic=U, side=DISPATCH)
        force = {HERE: InForce(topic=Rate(50)), THERE: InForce(topic=Rate(50))}
        found = plan_writes(shares({}), Membership(), force, before | {later: held(Rate(1))}, THRIFT)
        assert [(item.place, item.rate, item.restores) for item in found.changes] == [
            (HERE, Rate(90, 5), True),
            (THERE, None, True),
        ]
        assert found.forget == (HERE, THERE)
        assert set(found.owned) == {HERE, THERE, later}

    def test_absent_topic_is_left(self) -> None:
        """A topic of a group that has no share now (it is on its way) keeps its rate."""
        found = plan({}, {HERE: InForce(topic=Rate(50))}, {HERE: held(Rate(50))})
        assert not found.changes
        assert [item.why for item in found.left] == [ABSENT]
        assert found.owned == {HERE: held(Rate(50))}

    def test_namespace_left_the_group(self) -> None:
        """Only its topics are given back."""
        place = PolicyKey(topic=GONE, side=PUBLISH)
        force = {place: InForce(topic=Rate(5)), HERE: InForce(topic=Rate(50))}
        found = plan({T: 50}, force, {place: held(Rate(5)), HERE: held(Rate(50))})
        assert [(item.place, item.rate) for item in found.changes] == [(place, None)]

    def test_share_above_what_was_there(self) -> None:
        """A share that does not bind any more: the original returns."""
        found = plan({T: 500}, {HERE: InForce(topic=Rate(50))}, {HERE: held(Rate(50), original=Rate(90))})
        assert [(item.rate, item.restores) for item in found.changes] == [(Rate(90), True)]
        assert found.forget == (HERE,)


class TestKilledBetween:
    """A sidecar that dies between two writes leaves what the next leader completes."""

    @pytest.mark.parametrize("written", [0, 1, 2])
    def test_completed(self, written: int) -> None:
        """Whatever was written of the plan: the next plan and the way back come to the same end."""
        places = [HERE, THERE]
        original = {HERE: Rate(90), THERE: None}
        first = plan({T: 50, U: 5}, {place: InForce(topic=original[place]) for place in places})
        done = {item.place: item.rate for item in first.changes[:written]}
        found = {place: InForce(topic=done.get(place, original[place])) for place in places}
        second = plan({T: 50, U: 5}, found, first.owned)
        assert {item.place for item in second.changes} == {item.place for item in first.changes[written:]}
        assert {place: item.original for place, item in second.owned.items()} == original
        back = give_back(first.owned, found, 10)
        assert {item.place: item.rate for item in back.changes} == {place: original[place] for place in done}

    @pytest.mark.parametrize("at", [Rate(50), Rate(30)])
    def test_second_write(self, at: Rate) -> None:
        """Before or after the second write: both values are known as ours."""
        before = plan({T: 30}, {HERE: InForce(topic=Rate(50))}, {HERE: held(Rate(50), original=Rate(90))}).owned
        found = plan({T: 30}, {HERE: InForce(topic=at)}, before)
        assert bool(found.changes) is (at == Rate(50))
        assert found.owned[HERE].original == Rate(90)

    def test_a_superseded_value_is_no_longer_ours(self) -> None:
        """Once the newest write was read back, whoever puts an older value there is somebody else."""
        first = plan({T: 30}, {HERE: InForce(topic=Rate(50))}, {HERE: held(Rate(50))}).owned
        second = plan({T: 10}, {HERE: InForce(topic=Rate(30))}, first).owned
        found = plan({T: 10}, {HERE: InForce(topic=Rate(50))}, second)
        assert found.owned[HERE].original == Rate(50)
        back = give_back(second, {HERE: InForce(topic=Rate(50))}, 10)
        assert not back.changes
        assert not back.owned


def test_stricter() -> None:
    """By column, relative rates have no say."""
    assert stricter([Rate(5, -1), Rate(-1, 7), Rate(6, 8), Rate(1, 1, relative=True)]) == Rate(5, 7)
    assert stricter([]) == FREE
    assert Rate(100, 5, period=10).per_second() == Rate(10, 1)
    assert Rate(-1, 50, period=0).per_second() == Rate(-1, 50)
