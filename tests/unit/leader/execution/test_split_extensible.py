"""Splits in extensible mode: one position at the owner, verified by the boundaries and by the ownership channel."""

from __future__ import annotations

import pytest

from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminTimeout
from tests.support.executor_bench import B, C
from tests.support.extensible_brokers import ExtensibleModel
from tests.support.memory_admin import Fault
from tests.support.split_bench import BUNDLE, CHILDREN, POSITION, TWO_HOT, Bench, topic


class Reluctant(ExtensibleModel):
    """Cluster whose boundaries change while the channel does not."""

    then: tuple[tuple[str, UnitState, str, str], ...] = ()

    def _divide(self, bundle: str, positions: list[int]) -> None:
        super()._divide(bundle, positions)
        for change in self.then:
            self.publish(*change)


async def bench_of(model: type[ExtensibleModel] = ExtensibleModel) -> tuple[Bench, ExtensibleModel]:
    """A leading bench over such brokers."""
    bench = Bench(mode="extensible", model=model)
    await bench.lead()
    assert isinstance(bench.model, ExtensibleModel)
    return bench, bench.model


async def test_done_when_both_children_are_owned_and_the_parent_is_gone() -> None:
    """One position in one call at the owner; the children stay there."""
    bench, model = await bench_of()
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, outcome.children) == ("done", "", CHILDREN)
    assert [(split.at, split.positions) for split in model.splits] == [(B, (POSITION,))]
    assert {bundle: owner.broker_id for bundle, owner in model.owners.items()} == dict.fromkeys(CHILDREN, B)
    assert await bench.intents() == []


@pytest.mark.parametrize(
    ("then", "named"),
    [
        (((CHILDREN[1], UnitState.FREE, "", B),), CHILDREN[1]),
        (((CHILDREN[0], UnitState.ASSIGNING, C, ""),), CHILDREN[0]),
        (((BUNDLE, UnitState.SPLITTING, "", B),), BUNDLE),
    ],
    ids=["child free", "child on its way", "parent still splitting"],
)
async def test_boundaries_alone_are_not_enough(then: tuple[tuple[str, UnitState, str, str], ...], named: str) -> None:
    """The broker answered and the boundaries are there: without the channel's word it is unknown, and says why."""
    bench, model = await bench_of(Reluctant)
    assert isinstance(model, Reluctant)
    model.then = then
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code) == ("unknown", Code.SPLIT_UNFINISHED)
    assert named in outcome.error
    assert outcome.seconds == pytest.approx(10, abs=0.5)
    assert bench.calls() == 1


async def test_a_child_may_have_moved_on() -> None:
    """Owned is owned: the split is done, wherever a child is by now."""
    bench, model = await bench_of(Reluctant)
    assert isinstance(model, Reluctant)
    model.then = ((CHILDREN[1], UnitState.OWNED, C, B),)
    assert (await bench.split()).outcome == "done"


@pytest.mark.parametrize(
    ("state", "destination", "code"),
    [
        (UnitState.SPLITTING, "", Code.IN_TRANSIT),
        (UnitState.RELEASING, C, Code.IN_TRANSIT),
        (UnitState.FREE, "", Code.UNOWNED),
        (UnitState.OWNED, C, Code.OWNER_CHANGED),
    ],
)
async def test_refused_before_any_call(state: UnitState, destination: str, code: Code) -> None:
    """A broker asked to split an unowned bundle would assign it first; one on its way is left alone."""
    bench, model = await bench_of()
    model.publish(BUNDLE, state, destination, B)
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, bench.calls()) == ("refused", code, 0)


@pytest.mark.parametrize(("after", "expected"), [(True, ("done", "")), (False, ("unknown", Code.NO_ANSWER))])
async def test_a_lost_answer_is_settled_by_reading(after: bool, expected: tuple[str, str]) -> None:
    """Never asked for again."""
    bench, _ = await bench_of()
    bench.admin.fail("split", Fault(error=AdminTimeout("?"), after=after))
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, bench.calls()) == (*expected, 1)


async def test_three_hot_topics_are_parted_one_cut_at_a_time() -> None:
    """Brokers refuse several positions, so there is one a call; the children are cut in later cycles."""
    bench = await Bench(*TWO_HOT, topic(0x30000000, 50), mode="extensible").lead()
    outcome = await bench.split()
    assert (outcome.outcome, len(outcome.positions), len(outcome.children)) == ("done", 1, 2)
