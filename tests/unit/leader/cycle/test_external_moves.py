"""External moves: their bundles are not touched, and a client that repeatedly undoes moves stops them."""

from __future__ import annotations

import pytest

from bundlekeel.leader.cycle.external_moves import second_balancer
from bundlekeel.leader.state.documents import Desired, Pause
from bundlekeel.model.codes import Code
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.guard import external_moves
from bundlekeel.planning.guard.external_moves import (
    REST_MS,
    UNDONE_MS,
    ExternalMove,
    ExternalMoves,
    Landing,
    SeenOwners,
)
from bundlekeel.ports.commands import by_person
from tests.support.builders import bundle_name, report, snapshot
from tests.support.memory_admin import MemoryAdmin
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params

A, B, C = BROKERS
T0 = 1_790_000_000_000
NAME = bundle_name(0)
PARAMS = with_params(cool_down_seconds=60, max_moves_per_source=100, max_moves_per_target=100)


def picture(owner: str, at: int) -> Snapshot:
    """One bundle at its owner, reported just now."""
    return snapshot([report(b, {NAME: 0.1} if b == owner else {}, last_update=at) for b in BROKERS], wall_ms=at)


def starts(**changed: int) -> dict[str, int]:
    """All brokers run since the same moment, unless said."""
    return {A: 1, B: 1, C: 1} | {f"{name}:8080": start for name, start in changed.items()}


def after(*owners: str, landings: dict[str, Landing] | None = None, **changed: int) -> tuple[ExternalMove, ...]:
    """Return the findings of the last poll for a bundle seen at these owners, a minute apart; `changed` at the last
    poll.
    """
    current, seen_owners = SeenOwners(), ()
    for number, owner in enumerate(owners):
        last = number == len(owners) - 1
        starts_by_name = starts(**changed) if last else starts()
        expected_keys = (landings or {}) if last else {}
        current, seen_owners = external_moves.look(
            current, picture(owner, T0 + number * 60_000), starts_by_name, expected_keys, ()
        )
    return seen_owners


def test_a_changed_owner_without_a_move_of_ours() -> None:
    assert after(A) == () and after(A, A) == ()
    (change,) = after(A, B)
    assert (change.source, change.target, change.undone) == (A, B, False)
    assert after(A, B, B) == (), "told once"


def test_our_own_moves_are_not_foreign() -> None:
    assert after(A, B, landings={NAME: Landing(source=A, landed_on=B, at_ms=T0 + 30_000)}) == ()


def test_taken_back_before_the_reports_showed_our_move() -> None:
    """Seen at A before and after, although our move had landed at B."""
    (change,) = after(A, A, landings={NAME: Landing(source=A, landed_on=B, at_ms=T0 + 30_000)})
    assert (change.source, change.target, change.undone) == (B, A, True)
    (other,) = after(A, C, landings={NAME: Landing(source=A, landed_on=B, at_ms=T0 + 30_000)})
    assert (other.source, other.target, other.undone) == (B, C, False)


def test_a_move_of_ours_that_somebody_followed_up_is_over() -> None:
    ours = {NAME: Landing(source=A, landed_on=B, at_ms=T0 + 30_000)}
    assert after(A, C, C, landings=ours) == (), "told once"
    (change,) = after(A, C, B, landings=ours)
    assert (change.source, change.target, change.undone) == (C, B, False)


def test_a_report_older_than_our_move_says_nothing() -> None:
    """The books were closed by the clock; the source still lists it."""
    assert after(A, A, landings={NAME: Landing(source=A, landed_on=B, at_ms=T0 + 90_000)}) == ()


@pytest.mark.parametrize("changed", [{"b1": 2}])
def test_a_broker_that_restarted_gave_nothing_away(changed: dict[str, int]) -> None:
    assert after(A, B, **changed) == ()


def test_a_broker_that_died_gave_nothing_away() -> None:
    """It is not registered any more."""
    findings, _ = external_moves.look(SeenOwners(), picture(A, T0), starts(), {}, ())
    absent = {B: 1, C: 1}
    assert external_moves.look(findings, picture(B, T0 + 60_000), absent, {}, ())[1] == ()


def test_unsettled_bundles_wait() -> None:
    results, _ = external_moves.look(SeenOwners(), picture(A, T0), starts(), {}, ())
    results, findings = external_moves.look(results, picture(B, T0 + 60_000), starts(), {}, {NAME})
    assert findings == ()
    assert len(external_moves.look(results, picture(B, T0 + 120_000), starts(), {}, ())[1]) == 1


def test_what_was_undone_is_forgotten_after_ten_minutes() -> None:
    book = ExternalMoves(undone=((NAME, T0),))
    assert external_moves.noted(book, (), T0 + 599_999) == book
    assert external_moves.noted(book, (), T0 + 600_000) == ExternalMoves()


@pytest.mark.parametrize(("undone", "message"), [(False, "moved"), (True, "undid Bundlekeel's move of")])
def test_the_journal_tells_whose_move_it_was(undone: bool, message: str) -> None:
    line = ExternalMove(bundle=NAME, source=A, target=B, at_ms=T0, undone=undone).record()
    assert line["sentence"] == f"another tool {message} {NAME}: {A} -> {B}; it is not moved for now"
    assert (line["source"], line["destination"], line["undone"], line["wall_ms"]) == (A, B, undone, T0)


def test_rounds_within_the_window_mean_a_rest() -> None:
    """Three times within ten minutes; a whole namespace at one moment is one time."""

    def undone(at: int, number: int = 0) -> ExternalMove:
        return ExternalMove(bundle=bundle_name(number), source=B, target=A, at_ms=at, undone=True)

    book = external_moves.noted(ExternalMoves(), [undone(T0, number) for number in range(10)], T0)
    assert book.rest_until_ms == 0 and len(book.undone) == 10
    book = external_moves.noted(book, [undone(T0 + 70_000)], T0 + 70_000)
    assert book.rest_until_ms == 0
    third = external_moves.noted(book, [undone(T0 + 140_000)], T0 + 140_000)
    assert third.rest_until_ms == T0 + 140_000 + REST_MS
    obstacle = second_balancer(third, T0 + 150_000)
    assert obstacle is not None and obstacle.code is Code.SECOND_BALANCER and bundle_name(0) in obstacle.detail
    assert second_balancer(third, third.rest_until_ms) is None
    late = T0 + UNDONE_MS + 80_000
    assert external_moves.noted(book, [undone(late)], late).rest_until_ms == 0, "the first ones are long ago"
    other = ExternalMove(bundle=NAME, source=A, target=C, at_ms=T0)
    assert external_moves.noted(ExternalMoves(), [other], T0) == ExternalMoves(), "moved by somebody, but not undone"


async def manual_move(cluster: FakeCluster, bundle: str, target: str) -> None:
    """A person moves a bundle."""
    admin = MemoryAdmin(cluster.model)
    admin.set_endpoints(cluster.model.endpoints())
    await admin.unload(bundle, destination=target, at=cluster.model.leader, permit=by_person)
    cluster.model.own(bundle, target)


async def later(cluster: FakeCluster, sidecar: FakeSidecar, seconds: float) -> None:
    """Time passes, all brokers report."""
    cluster.clock.offset += seconds
    cluster.publish()
    await sidecar.leadership.turn()
    await sidecar.shared_state.refresh()


async def watching(cluster: FakeCluster) -> FakeSidecar:
    """A leader that has acted for so long that every report is newer than its start."""
    sidecar = await FakeSidecar(cluster, params=PARAMS).lead()
    await sidecar.cycle.turn()
    await later(cluster, sidecar, 200)
    await sidecar.cycle.turn()
    return sidecar


async def test_what_happened_before_we_acted_is_no_foreign_hand() -> None:
    """Paused, a person moves bundles; the reports that show it come after the pause."""
    cluster = FakeCluster({A: [0.1, 0.1], B: [0.1, 0.1], C: [0.1, 0.1]})
    sidecar = await watching(cluster)
    pause = Pause(reason="r", by="me", since_ms=0)
    await sidecar.shared_state.change_desired(lambda _: Desired(pause=pause))
    await sidecar.cycle.turn()
    bundle = next(name for name, owner in cluster.owners().items() if owner == A)
    await manual_move(cluster, bundle, B)
    await sidecar.shared_state.change_desired(lambda _: Desired())
    for _ in range(3):
        await sidecar.cycle.turn()
        await later(cluster, sidecar, 50)
    assert not sidecar.journal.tail(10, kind="external_move")


async def test_a_bundle_a_person_moved_cools_down() -> None:
    """Recorded, counted, and not moved by us for its cool-down."""
    cluster = FakeCluster({A: [0.1, 0.1, 0.1], B: [0.1, 0.1, 0.1], C: [0.1, 0.1, 0.1]})
    sidecar = await watching(cluster)
    bundle = next(name for name, owner in cluster.owners().items() if owner == A)
    await manual_move(cluster, bundle, B)
    await later(cluster, sidecar, 10)
    report = await sidecar.cycle.turn()
    (record,) = sidecar.journal.tail(10, kind="external_move")
    assert (record["bundle"], record["source"], record["destination"], record["undone"]) == (bundle, A, B, False)
    assert bundle not in {outcome.bundle for outcome in report.outcomes}
    assert sidecar.cycle.cycle_state.recent[bundle].source == A
    assert 'undone="false"} 1.0' in sidecar.metric("external_moves_total")


async def test_what_the_store_does_not_confirm_is_not_recorded() -> None:
    """A report that is older than it looks: the owner is who it was."""
    cluster = FakeCluster({A: [0.1, 0.1], B: [0.1, 0.1], C: [0.1, 0.1]})
    sidecar = await watching(cluster)
    bundle = next(name for name, owner in cluster.owners().items() if owner == A)
    await manual_move(cluster, bundle, B)
    await later(cluster, sidecar, 10)
    cluster.model.own(bundle, A)
    await sidecar.cycle.turn()
    assert not sidecar.journal.tail(10, kind="external_move")


async def test_our_moves_and_a_dead_broker_are_nobody_else_s() -> None:
    """A whole plan, and what a broker's death scatters: no external moves."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, params=PARAMS).lead()
    for _ in range(4):
        await sidecar.cycle.turn()
        await later(cluster, sidecar, 200)
    assert len(sidecar.moves()) > 0
    for bundle, owner in cluster.owners().items():
        if owner == C:
            cluster.model.own(bundle, A)
    cluster.publish()
    cluster.source.remove(C)
    await sidecar.cycle.turn()
    assert not sidecar.journal.tail(10, kind="external_move")


async def test_a_second_balancer_stops_us_and_the_next_leader_too() -> None:
    """Whatever we move comes back, again and again: verdict SecondBalancer, also after a fail-over."""
    cluster = FakeCluster()
    params = with_params(cool_down_seconds=1, no_return_seconds=1, max_moves_per_cycle=1)
    first, second = [await FakeSidecar(cluster, name, params=params).lead() for name in "ab"]
    for _ in range(8):
        report = await first.cycle.turn()
        if report.obstacle is not None:
            break
        for outcome in report.outcomes:
            await manual_move(cluster, outcome.bundle, outcome.source)
        await later(cluster, first, 140)
    assert report.obstacle is not None and report.obstacle.code is Code.SECOND_BALANCER
    assert {item["undone"] for item in first.journal.tail(10, kind="external_move")} == {True}
    cluster.store.expire(first.coordination)
    await second.leadership.turn()
    await second.cycle.turn()
    assert second.cycle.report is not None and second.cycle.report.obstacle is not None
    assert second.cycle.report.obstacle.code is Code.SECOND_BALANCER
