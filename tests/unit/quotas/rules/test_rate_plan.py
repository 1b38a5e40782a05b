"""The enforcer's plan: which topic policies are written, left and given back."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from bundlekeel.quotas.rules.groups import Membership, QuotaGroup, QuotaLimits, resolve
from bundlekeel.quotas.rules.rate_plan import (
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
from bundlekeel.quotas.rules.shares import Shares

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
    owned: Mapping[PolicyKey, OwnedRate] | None = None,
    write_budget: WriteBudget = THRIFT,
    partitions: int = 1,
) -> EnforcerPlan:
    """The plan of these shares of published messages."""
    return plan_writes(shares(of, partitions=partitions), MEMBERS, in_force, owned or {}, write_budget)


def build_owned(*ours: Rate, original: Rate | None = None) -> OwnedRate:
    """Written by us."""
    return OwnedRate(group="g", original=original, ours=ours)


class TestWrites:
    def test_first_time(self) -> None:
        enforcer_plan = plan({T: 50.9}, {HERE: NOTHING})
        assert [(item.place, item.before, item.rate) for item in enforcer_plan.changes] == [(HERE, None, Rate(50))]
        assert enforcer_plan.owned == {HERE: build_owned(Rate(50))}
        assert not enforcer_plan.left

    def test_partitions(self) -> None:
        """Each gets its part, and never less than 1: Pulsar reads 0 as no limit."""
        assert plan({T: 50.9}, {HERE: NOTHING}, partitions=4).changes[0].rate == Rate(12)
        assert plan({T: 2}, {HERE: NOTHING}, partitions=4).changes[0].rate == Rate(1)

    def test_what_cutting_leaves(self) -> None:
        """Is given out in ones, first to whom it takes most; the sum stays below that of the shares."""
        enforcer_plan = plan({T: 13.9, U: 7.6}, {HERE: NOTHING, THERE: NOTHING})
        assert {item.place: item.rate for item in enforcer_plan.changes} == {HERE: Rate(14), THERE: Rate(7)}

    def test_dispatch(self) -> None:
        place = PolicyKey(topic=T, side=DISPATCH)
        members = Membership(groups=(QuotaGroup(name="g", limits=QuotaLimits(dispatch_bytes=1e6), members=()),))
        result = plan_writes(shares({T: 4e5}, column=3), members, {place: NOTHING}, {}, THRIFT)
        assert [(item.place, item.rate) for item in result.changes] == [(place, Rate(-1, 400_000))]

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
        enforcer_plan = plan({T: 50}, {HERE: there})
        assert [item.rate for item in enforcer_plan.changes] == ([] if rate is None else [rate])
        assert [item.why for item in enforcer_plan.left] == ([STRICTER] if rate is None else [])
        if rate is not None:
            assert enforcer_plan.owned[HERE].original == there.topic

    def test_refusals(self) -> None:
        assert plan({T: 50}, {HERE: InForce(allowed=False)}).left[0].why == POLICIES_OFF
        assert plan({T: 50}, {HERE: InForce(topic=Rate(5, 5, relative=True))}).left[0].why == RELATIVE
        assert plan({T: 50}, {}).left[0].why == NOT_READ

    @pytest.mark.parametrize(("share", "written"), [(54, False), (56, True), (48, False), (47, True)])
    def test_only_real_changes(self, share: float, written: bool) -> None:
        """10 % up, 5 % down."""
        force = {HERE: InForce(topic=Rate(50)), THERE: InForce(topic=Rate(100))}
        enforcer_plan = plan({T: share, U: 100}, force, {HERE: build_owned(Rate(50)), THERE: build_owned(Rate(100))})
        assert bool(enforcer_plan.changes) is written
        assert [item.why for item in enforcer_plan.left] == ([UNCHANGED] if written else [UNCHANGED, UNCHANGED])

    def test_many_small_rises(self) -> None:
        force = {HERE: InForce(topic=Rate(50)), THERE: InForce(topic=Rate(100))}
        enforcer_plan = plan({T: 54, U: 109}, force, {HERE: build_owned(Rate(50)), THERE: build_owned(Rate(100))})
        assert {item.place: item.rate for item in enforcer_plan.changes} == {HERE: Rate(54), THERE: Rate(109)}

    def test_repeated(self) -> None:
        first = plan({T: 50, U: 3}, {HERE: NOTHING, THERE: NOTHING})
        after = {item.place: InForce(topic=item.rate) for item in first.changes}
        second = plan({T: 50, U: 3}, after, first.owned)
        assert not second.changes
        assert second.owned == first.owned

    def test_budget(self) -> None:
        force = {HERE: InForce(topic=Rate(10)), THERE: InForce(topic=Rate(50))}
        before = {HERE: build_owned(Rate(10)), THERE: build_owned(Rate(50))}
        enforcer_plan = plan({T: 50, U: 10}, force, before, WriteBudget(most=1))
        assert [item.place for item in enforcer_plan.changes] == [THERE]
        assert [(item.place, item.why) for item in enforcer_plan.left] == [(HERE, BUDGET)]
        assert enforcer_plan.owned == {HERE: build_owned(Rate(10)), THERE: build_owned(Rate(50), Rate(10))}

    def test_a_restore_goes_before_a_rise(self) -> None:
        force = {HERE: InForce(topic=Rate(10)), THERE: InForce(topic=Rate(50))}
        before = {HERE: build_owned(Rate(10)), THERE: build_owned(Rate(50), original=Rate(90))}
        enforcer_plan = plan({T: 90, U: 500}, force, before, WriteBudget(most=1))
        assert [(item.place, item.restores) for item in enforcer_plan.changes] == [(THERE, True)]
        assert [(item.place, item.why) for item in enforcer_plan.left] == [(HERE, BUDGET)]


class TestForeign:
    """Another client writes the same policies."""

    def test_taken_as_original(self) -> None:
        before = {HERE: build_owned(Rate(50), original=Rate(90))}
        assert plan({T: 50}, {HERE: InForce(topic=Rate(20))}, before).left[0].why == STRICTER
        enforcer_plan = plan({T: 50}, {HERE: InForce(topic=Rate(200))}, before)
        assert enforcer_plan.owned[HERE] == build_owned(Rate(50), original=Rate(200))

    def test_removed(self) -> None:
        """Our policy was removed by hand: it is written again, and nothing will be given back."""
        enforcer_plan = plan({T: 50}, {HERE: NOTHING}, {HERE: build_owned(Rate(50), original=Rate(90))})
        assert enforcer_plan.changes[0].rate == Rate(50)
        assert enforcer_plan.owned[HERE].original is None

    def test_never_restored_away(self) -> None:
        enforcer_plan = give_back({HERE: build_owned(Rate(50), original=None)}, {HERE: InForce(topic=Rate(7))}, 10)
        assert not enforcer_plan.changes
        assert not enforcer_plan.owned


class TestGivingBack:
    """Removing a group leaves every topic policy as it was before."""

    def test_group_removed(self) -> None:
        """The old policies return, also none; places that cannot be read now are kept for later."""
        before = {HERE: build_owned(Rate(50), original=Rate(90, 5)), THERE: build_owned(Rate(50))}
        later = PolicyKey(topic=U, side=DISPATCH)
        force = {HERE: InForce(topic=Rate(50)), THERE: InForce(topic=Rate(50))}
        result = plan_writes(shares({}), Membership(), force, before | {later: build_owned(Rate(1))}, THRIFT)
        assert [(item.place, item.rate, item.restores) for item in result.changes] == [
            (HERE, Rate(90, 5), True),
            (THERE, None, True),
        ]
        assert result.forget == (HERE, THERE)
        assert set(result.owned) == {HERE, THERE, later}

    def test_absent_topic_is_left(self) -> None:
        """A topic of a group that has no share now (it is on its way) keeps its rate."""
        enforcer_plan = plan({}, {HERE: InForce(topic=Rate(50))}, {HERE: build_owned(Rate(50))})
        assert not enforcer_plan.changes
        assert [item.why for item in enforcer_plan.left] == [ABSENT]
        assert enforcer_plan.owned == {HERE: build_owned(Rate(50))}

    def test_namespace_left_the_group(self) -> None:
        """Only its topics are given back."""
        place = PolicyKey(topic=GONE, side=PUBLISH)
        force = {place: InForce(topic=Rate(5)), HERE: InForce(topic=Rate(50))}
        enforcer_plan = plan({T: 50}, force, {place: build_owned(Rate(5)), HERE: build_owned(Rate(50))})
        assert [(item.place, item.rate) for item in enforcer_plan.changes] == [(place, None)]

    def test_share_above_what_was_there(self) -> None:
        """A share that does not bind any more: the original returns."""
        enforcer_plan = plan(
            {T: 500}, {HERE: InForce(topic=Rate(50))}, {HERE: build_owned(Rate(50), original=Rate(90))}
        )
        assert [(item.rate, item.restores) for item in enforcer_plan.changes] == [(Rate(90), True)]
        assert enforcer_plan.forget == (HERE,)


class TestKilledBetween:
    """A sidecar that dies between two writes leaves what the next leader completes."""

    @pytest.mark.parametrize("written", [0, 1, 2])
    def test_completed(self, written: int) -> None:
        """Whatever was written of the plan: the next plan and the way back come to the same end."""
        places = [HERE, THERE]
        original = {HERE: Rate(90), THERE: None}
        first = plan({T: 50, U: 5}, {place: InForce(topic=original[place]) for place in places})
        done = {item.place: item.rate for item in first.changes[:written]}
        result = {place: InForce(topic=done.get(place, original[place])) for place in places}
        second = plan({T: 50, U: 5}, result, first.owned)
        assert {item.place for item in second.changes} == {item.place for item in first.changes[written:]}
        assert {place: item.original for place, item in second.owned.items()} == original
        back = give_back(first.owned, result, 10)
        assert {item.place: item.rate for item in back.changes} == {place: original[place] for place in done}

    @pytest.mark.parametrize("at", [Rate(50), Rate(30)])
    def test_second_write(self, at: Rate) -> None:
        """Before or after the second write: both values are known as ours."""
        before = plan({T: 30}, {HERE: InForce(topic=Rate(50))}, {HERE: build_owned(Rate(50), original=Rate(90))}).owned
        enforcer_plan = plan({T: 30}, {HERE: InForce(topic=at)}, before)
        assert bool(enforcer_plan.changes) is (at == Rate(50))
        assert enforcer_plan.owned[HERE].original == Rate(90)

    def test_a_superseded_value_is_no_longer_ours(self) -> None:
        first = plan({T: 30}, {HERE: InForce(topic=Rate(50))}, {HERE: build_owned(Rate(50))}).owned
        second = plan({T: 10}, {HERE: InForce(topic=Rate(30))}, first).owned
        enforcer_plan = plan({T: 10}, {HERE: InForce(topic=Rate(50))}, second)
        assert enforcer_plan.owned[HERE].original == Rate(50)
        back = give_back(second, {HERE: InForce(topic=Rate(50))}, 10)
        assert not back.changes
        assert not back.owned


def test_stricter() -> None:
    assert stricter([Rate(5, -1), Rate(-1, 7), Rate(6, 8), Rate(1, 1, relative=True)]) == Rate(5, 7)
    assert stricter([]) == FREE
    assert Rate(100, 5, period=10).per_second() == Rate(10, 1)
    assert Rate(-1, 50, period=0).per_second() == Rate(-1, 50)
