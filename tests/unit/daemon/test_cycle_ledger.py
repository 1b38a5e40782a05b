"""The ledger of a cycle: stored before anything is called, of one term only, without moves that came to nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import LeadershipLost
from bundlekeel.core.model.plan import Move, Plan, Refusal
from bundlekeel.daemon.execution.intents import MoveOutcome
from bundlekeel.daemon.state.documents import LeaderState, decode, join
from bundlekeel.daemon.state.shared_state import STATE
from bundlekeel.ports.commands import Permit, UnloadAnswer
from tests.support.builders import bundle_name
from tests.support.memory_admin import MemoryAdmin
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params

B1, B2, _ = BROKERS
BUNDLE = bundle_name(0)
COOL_DOWN_MS = 600_000


class _Reading(MemoryAdmin):
    """Reads what is stored whenever it is asked to unload."""

    read: Any

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        await self.read()
        return await super().unload(bundle, destination=destination, at=at, permit=permit)


class Watched(FakeSidecar):
    """Notes the stored ledger at each unload."""

    def reach(self) -> MemoryAdmin:
        """How it reaches the brokers."""
        admin = _Reading(self.cluster.model)
        admin.read, self.seen = self._read, list[frozenset[str]]()
        return admin

    async def _read(self) -> None:
        state = decode(join(await self.coordination.read_tree(STATE)), LeaderState)
        self.seen.append(frozenset(state.ledger.bundles()) if state is not None else frozenset())


async def test_the_ledger_is_stored_before_the_first_unload() -> None:
    """Whoever leads next must know what may be under way."""
    sidecar = Watched(FakeCluster())
    await sidecar.lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.plan.moves
    assert sidecar.seen[0] >= {move.bundle for move in report.plan.moves}


async def test_a_term_won_during_a_cycle_is_not_that_of_its_state() -> None:
    """The state of the term before must not be acted on, nor stored over what was taken over."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    made = (await sidecar.cycle.turn()).plan
    assert made is not None
    first, stored = sidecar.cycle.epoch, sidecar.shared_state.shared
    unloads = len(sidecar.cluster.model.unloads)

    async def lost_and_won_again() -> tuple[tuple[Move, ...], Plan | None]:
        sidecar.clock.offset += 60.0
        await sidecar.leadership.turn()
        assert sidecar.leadership.leading and sidecar.leadership.epoch != first
        return made.moves, None

    with pytest.raises(LeadershipLost):
        await sidecar.cycle.execute(lost_and_won_again)
    assert not sidecar.cycle.leads
    assert len(sidecar.cluster.model.unloads) == unloads
    assert sidecar.shared_state.shared.wall_ms == stored.wall_ms


async def outcome(**known: Any) -> tuple[FakeSidecar, int]:
    """A leader that booked this outcome of a move of its own, and when."""
    sidecar = await FakeSidecar(FakeCluster(), params=with_params(cool_down_seconds=COOL_DOWN_MS / 1000)).lead()
    report = await sidecar.cycle.turn()
    move = report.outcomes[0]
    entry = next(item for item in sidecar.cycle.cycle_state.ledger.entries if item.bundle == move.bundle)
    ledger = replace(sidecar.cycle.cycle_state.ledger, entries=(replace(entry, landed_ms=0),))
    sidecar.cycle.adopt(replace(sidecar.cycle.cycle_state, ledger=ledger, recent={}), sidecar.cycle.epoch)
    ended = MoveOutcome(bundle=move.bundle, source=move.source, destination=move.destination, **known)
    if known.get("landed_on") == "source":
        ended = replace(ended, landed_on=move.source)
    sidecar.cycle.book(ended)
    return sidecar, sidecar.clock.wall_ms()


async def test_a_released_bundle_leaves_the_ledger() -> None:
    """No broker owns it: no broker carries what the move was to bring."""
    sidecar, _ = await outcome(outcome="released", code=Code.RELEASED)
    assert sidecar.cycle.cycle_state.ledger.entries == ()


async def test_a_bundle_that_stayed_rests_for_a_minute() -> None:
    """It has not moved, so it does not rest as one that has; but it is not tried again in every cycle either."""
    sidecar, now = await outcome(outcome="landed_elsewhere", code=Code.STILL_AT_SOURCE, landed_on="source")
    (moved,) = sidecar.cycle.cycle_state.recent.values()
    rests = moved.at_ms + COOL_DOWN_MS - now
    assert 50_000 < rests <= 60_000
    assert sidecar.cycle.cycle_state.ledger.entries == ()


@pytest.mark.parametrize(
    ("codes", "at_once"),
    [
        ({Code.BUDGET_PER_CYCLE}, True),
        ({Code.BUDGET_PER_CYCLE, Code.BUDGET_OF_TRAFFIC}, False),
        ({Code.BUDGET_PER_CYCLE, Code.ADAPTIVE_RATE}, False),
        ({Code.NO_GAIN}, False),
    ],
)
async def test_what_a_gentle_budget_holds_back_is_not_hurried(codes: set[Code], at_once: bool) -> None:
    """The rest of a plan follows at once where a cycle's own budgets cut it off, and later where traffic does."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.outcomes
    refusals = tuple(Refusal(code=code, bundle=BUNDLE) for code in codes)
    report.plan = replace(report.plan, refusals=refusals)
    assert sidecar.cycle.cut_off is at_once
