"""Rows of the fault checklist that need real processes; docs/reference/failure-tests.md lists all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.chaos.ground import RULES, open_ground, prepare
from tests.chaos.stage import Stage, until
from tests.support.chaos.history import History
from tests.support.chaos.judging import judge
from tests.support.chaos.runner import Ground, boot, leads
from tests.support.chaos.schedule import Fault, Schedule, What

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SESSION_SECONDS, TICK_SECONDS = 3.0, 0.5


@pytest.fixture(scope="module")
def ground(whole_stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Three sidecars behind proxies."""
    whole_stage.gather()
    with open_ground(whole_stage, tmp_path_factory.mktemp("rows")) as ground:
        yield ground


def played(stage: Stage, ground: Ground, *faults: Fault, seconds: float = 5.0) -> tuple[float, History]:
    """Execute exactly these faults during moves. Return when they began, and the history. Fails if a rule is broken."""
    prepare(stage, ground)
    began, first = boot(), ground.owners()
    before = len(stage.unloads())
    # An intent alone is not enough: cut off right behind the first one, a leader asks for no unload.
    until(lambda: len(stage.unloads()) > before and ground.witness.open_intents(), "a batch is under way", within=60)
    ground.break_all(Schedule(seed=0, seconds=seconds, faults=faults))
    history = ground.history(began, first, RULES)
    assert not (problems := judge(history)), "\n".join(map(str, problems))
    assert [item for item in history.attempts if item.verb == "unload"], "it happened amid moves"
    return began, history


def aimed(what: What, seconds: float = 0.0, at: float = 0.0) -> Fault:
    """It hits whoever leads right behind an intent."""
    return Fault(at=at, what=what, target="A", seconds=seconds, aimed=True)


def test_a1_session_expiry_while_leader(whole_stage: Stage, ground: Ground) -> None:
    """A second client with the same id and password ends the leader's session: another term begins in time."""
    began, history = played(whole_stage, ground, aimed(What.EXPIRE_SIDECAR), seconds=SESSION_SECONDS + 2.0)
    ended = [term for term in history.terms if term.ended is not None and term.ended >= began]
    assert ended, "the leader's node is gone with the session"
    following = [term.begun for term in history.terms if term.begun >= ended[0].ended]  # type: ignore[operator]
    assert following
    assert min(following) - ended[0].ended <= SESSION_SECONDS + 1.0  # type: ignore[operator]


def test_a4_two_leaders_believed(whole_stage: Stage, ground: Ground) -> None:
    """Nothing passes between the leader and ZooKeeper, and no connection breaks: it cannot learn of its successor, and
    no two of them act at once. (Deaf only, its attempts to connect would reach the server and keep its session.)"""
    silent = aimed(What.SILENT_SIDECAR, 2 * SESSION_SECONDS)
    began, history = played(whole_stage, ground, silent, seconds=2 * SESSION_SECONDS + 4.0)
    late = [term for term in history.terms if term.ended is None or term.ended >= began]
    assert len({term.member for term in late}) >= 2, "another one took over"
    for one, two in zip(history.terms, history.terms[1:], strict=False):
        assert one.ended is not None
        assert one.ended <= two.begun


@pytest.mark.parametrize("calls", [2, *(pytest.param(calls, marks=pytest.mark.nightly) for calls in (1, 3))])
def test_a7_lease_lost_amid_a_batch(whole_stage: Stage, ground: Ground, calls: int) -> None:
    """After `calls` unloads the leader's connection is cut for longer than its session. The remaining moves are omitted
    and done later.
    """
    prepare(whole_stage, ground)
    began, first = boot(), ground.owners()
    before = len(whole_stage.unloads())
    until(lambda: len(whole_stage.unloads()) >= before + calls, "the batch is under way", within=60)
    leader = next(item for item in ground.sidecars.values() if item.state().get("role") == "leader")
    proxy = ground.proxies[leader.name]
    proxy.refuse()
    time.sleep(SESSION_SECONDS + TICK_SECONDS + 1.0)
    proxy.heal()
    until(lambda: leads(ground), "everybody is well", within=60)
    history = ground.history(began, first, RULES)
    assert not (problems := judge(history)), "\n".join(map(str, problems))
    assert history.terms[-1].member != leader.name or len(history.terms) > 1
