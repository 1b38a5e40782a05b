"""A migration of Pulsar's metadata to another store (PIP-454): nothing is changed from its beginning on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bundlekeel.leader.execution.intents import INTENT_SECONDS, settle_intents
from bundlekeel.leader.gate.gate import Action, GateQuestion
from bundlekeel.model.check import Check
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import Forbidden, SnapshotError, StoreMigrated
from bundlekeel.model.migration import StoreMigration
from bundlekeel.ports import Owner
from bundlekeel.ports.commands import LookAgain, Permit, no_look
from bundlekeel.pulsar.formats.records import decode_migration
from bundlekeel.requests.doctor import examine
from bundlekeel.requests.takeover import handback, takeover
from tests.support import split_bench
from tests.support.executor_bench import BUNDLE, A, B, Bench, C
from tests.support.memory_admin import MemoryAdmin
from tests.support.world import FakeCluster, FakeSidecar
from tests.unit.leader.execution.test_executor_intents import MARGIN, Successor, intent
from tests.unit.requests.test_takeover import Office

GOING = ("PREPARATION", "COPYING", "SOME_LATER_PHASE", "CHANGED", "UNREADABLE")
OVER = ("NOT_STARTED", "FAILED")


async def leader(mode: str = "act") -> FakeSidecar:
    """A sidecar that leads a cluster where bundles should move."""
    return await FakeSidecar(FakeCluster(), mode=mode).lead()


def check_of(checks: list[Check], name: str) -> Check:
    """The one check of this name."""
    return next(check for check in checks if check.name == name)


# --- the record -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "phase", "code"),
    [
        (b'{"phase":"NOT_STARTED","targetUrl":null}', "NOT_STARTED", None),
        (b'{"phase":"PREPARATION","targetUrl":"oxia://o:6648/mig"}', "PREPARATION", Code.STORE_MIGRATING),
        (b'{"phase":"COPYING","targetUrl":"oxia://o:6648/mig"}', "COPYING", Code.STORE_MIGRATING),
        (b'{"phase":"COMPLETED","targetUrl":"oxia://o:6648/mig"}', "COMPLETED", Code.STORE_MIGRATED),
        (b'{"phase":"FAILED","targetUrl":"oxia://o:6648/mig","more":1}', "FAILED", None),
        (b'{"phase":"CLEANUP"}', "CLEANUP", Code.STORE_MIGRATING),
        (b'{"targetUrl":"oxia://o:6648/mig"}', "UNREADABLE", Code.STORE_MIGRATING),
        (b'{"phase":7}', "UNREADABLE", Code.STORE_MIGRATING),
        (b"", "UNREADABLE", Code.STORE_MIGRATING),
        (b"\xff", "UNREADABLE", Code.STORE_MIGRATING),
        (b"[]", "UNREADABLE", Code.STORE_MIGRATING),
    ],
)
def test_n_p_a_record_that_is_not_known_to_be_harmless_counts_as_a_migration(
    data: bytes, phase: str, code: Code | None
) -> None:
    """Brokers write the record only when a migration begins."""
    item = decode_migration(data, stamp=5)
    assert (item.phase, item.code, item.stamp) == (phase, code, 5)


# --- acting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["act", "recommend"])
@pytest.mark.parametrize("phase", GOING)
async def test_n_p_nothing_moves_from_the_preparation_on(phase: str, mode: str) -> None:
    """The plan is still made and shown, with the code."""
    sidecar = await leader(mode)
    sidecar.cluster.metadata.migrate(phase)
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.plan.moves and sidecar.moves() == []
    assert report.obstacle is not None and report.obstacle.code is Code.STORE_MIGRATING
    assert phase in report.obstacle.detail and "oxia://o:6648/mig" in report.obstacle.detail
    assert sidecar.service.state().acting_obstacle == "StoreMigrating"
    assert not {call[0] for call in sidecar.admin.calls} & {"unload", "split", "claim"}
    assert 'code="StoreMigrating"' in sidecar.metric("obstacle_info")


@pytest.mark.parametrize("phase", [*GOING, "COMPLETED"])
@pytest.mark.parametrize("action", Action)
async def test_n_p_the_gate_stops_each_kind_of_action(phase: str, action: Action) -> None:
    """Also between two cycles, with the state of the watch or of a new read."""
    sidecar = await leader()
    await sidecar.cycle.turn()
    question = GateQuestion(action=action, epoch=sidecar.cycle.epoch)
    assert sidecar.gate.check(question) is None
    sidecar.cluster.metadata.migrate(phase)
    code = StoreMigration(phase=phase).code
    for item in (sidecar.gate.check(question), await sidecar.gate.check_anew(question)):
        assert item is not None and item.code is code
    with pytest.raises(Forbidden) as error:
        sidecar.gate.demand(question)
    assert error.value.code == code


async def test_n_p_the_state_is_read_right_before_a_move() -> None:
    """Not only in each cycle: the watch may arrive late."""
    sidecar = await leader()
    await sidecar.cycle.turn()
    metadata, question = sidecar.cluster.metadata, GateQuestion(action=Action.PLAN, epoch=sidecar.cycle.epoch)
    metadata.unseen = StoreMigration(phase="PREPARATION")
    assert sidecar.gate.check(question) is None
    item = await sidecar.gate.check_anew(question)
    assert item is not None and item.code is Code.STORE_MIGRATING
    metadata.suspended = True
    item = await sidecar.gate.check_anew(question)
    assert item is not None and item.code is Code.STORE_UNAVAILABLE


@pytest.mark.parametrize("phase", OVER)
async def test_n_p_after_a_migration_that_failed_fresh_reads_come_first(phase: str) -> None:
    """FAILED, or the record deleted: the brokers stay. Reads of the migration do not count."""
    sidecar = await leader()
    sidecar.cluster.metadata.migrate("COPYING")
    await sidecar.cycle.turn()
    sidecar.cluster.metadata.migrate(phase)
    question = GateQuestion(action=Action.REQUEST, epoch=sidecar.cycle.epoch)
    item = await sidecar.gate.check_anew(question)
    assert item is not None and item.code is Code.STORE_MIGRATING and "read" in item.detail
    report = await sidecar.cycle.turn()
    assert report.obstacle is None and report.acted and sidecar.moves()
    assert sidecar.gate.check(question) is None


# --- after it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["act", "recommend", "observe"])
async def test_n_p_after_a_completed_migration_the_store_is_refused(mode: str) -> None:
    """No picture, no plan, and the failsafe sees that no cycle is completed."""
    sidecar = await leader(mode)
    await sidecar.cycle.turn()
    before = len(sidecar.moves())
    sidecar.cluster.metadata.migrate("COMPLETED")
    report = await sidecar.cycle.turn()
    assert (report.code, report.plan, report.completed) == (Code.STORE_MIGRATED, None, False)
    assert report.obstacle is not None and report.obstacle.code is Code.STORE_MIGRATED
    assert 'code="StoreMigrated"' in sidecar.metric("obstacle_info")
    with pytest.raises(SnapshotError, match=r"another store.*oxia://o:6648/mig"):
        sidecar.cycle.demand_snapshot()
    assert len(sidecar.moves()) == before
    sidecar.cluster.metadata.migrate("FAILED")
    await sidecar.cycle.turn()
    assert sidecar.cycle.demand_snapshot().brokers


@pytest.mark.parametrize(
    ("phase", "ok", "severity"),
    [
        *((phase, True, "error") for phase in OVER),
        ("PREPARATION", False, "warning"),
        ("COPYING", False, "warning"),
        ("COMPLETED", False, "error"),
    ],
)
async def test_n_p_doctor_tells_the_migration(phase: str, ok: bool, severity: str) -> None:
    """An error once the store is stale; then the rest is not tested by it."""
    sidecar = await leader()
    sidecar.cluster.metadata.migrate(phase)
    checks = await examine(sidecar.doctor_context())
    item = check_of(checks, "store migration")
    assert (item.ok, item.severity) == (ok, severity) and (ok or item.fix)
    assert (checks[-1] is item) == (phase == "COMPLETED")


async def test_n_p_doctor_tells_that_the_migration_cannot_be_read() -> None:
    """Nothing is known of it then."""
    sidecar = await leader()
    sidecar.cluster.metadata.suspended = True
    assert not check_of(await examine(sidecar.doctor_context()), "store migration").ok


@pytest.mark.parametrize("phase", ["PREPARATION", "COPYING", "COMPLETED"])
async def test_n_p_a_takeover_is_refused_and_a_handback_waits_for_the_end(phase: str) -> None:
    """The brokers' shedding stays as it is. Afterwards a handback can turn it on: the brokers write to their new store.

    A handback without a takeover is refused, too: it restores limits of quota groups.
    """
    office = Office()
    await office.coordination.start()
    await takeover(office.context, split=False, reason="r", by="ann")
    office.metadata.migrate(phase)
    dynamic = dict(office.model.dynamic)
    with pytest.raises(StoreMigrated) as error:
        await takeover(office.context, split=True, reason="r", by="ann")
    assert error.value.code == StoreMigration(phase=phase).code and office.model.dynamic == dynamic
    if phase == "COMPLETED":
        result = await handback(office.context, reason="r", by="ann")
        assert result is not None and result.complete
        return
    for context in (office.context, Office().context):
        with pytest.raises(StoreMigrated):
            await handback(replace(context, metadata=office.metadata), reason="r", by="ann")
    assert office.model.dynamic == dynamic


async def test_n_p_a_handback_ends_when_a_migration_begins() -> None:
    """It checks before each write: the first one may take seconds."""
    office = Office()
    await office.coordination.start()
    await takeover(office.context, split=True, reason="r", by="ann")
    restored: list[str] = []

    class Overtaken(MemoryAdmin):
        async def delete_dynamic(self, key: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
            await super().delete_dynamic(key, permit=permit, look_again=look_again)
            restored.append(key)
            office.metadata.migrate("PREPARATION")

    with pytest.raises(StoreMigrated):
        await handback(replace(office.context, commands=Overtaken(office.model)), reason="r", by="ann")
    assert len(restored) == 1


# --- moves and splits in progress -------------------------------------------------------------------------------


@pytest.mark.parametrize("phases", [("PREPARATION",), ("COPYING", "COMPLETED"), ("PREPARATION", "FAILED")])
@pytest.mark.parametrize("mode", ["modular", "extensible"])
async def test_n_p_a_move_that_a_migration_overtakes_has_an_unknown_outcome(phases: tuple[str, ...], mode: str) -> None:
    """The brokers move the bundle in the new store, and the old one still names the source."""
    bench = await Bench(mode=mode).lead()

    def begin(bundle: str) -> None:
        for phase in phases:
            bench.metadata.migrate(phase)
        bench.model.owners[bundle] = Owner(broker_id=B)

    bench.model.after_unload = begin
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, outcome.landed_on) == ("unknown", Code.STORE_MIGRATING, "") or (
        phases[-1] == "COMPLETED" and (outcome.outcome, outcome.code) == ("unknown", Code.STORE_MIGRATED)
    )
    assert bench.unloads() == 1 and await bench.intents() == []
    assert "landed elsewhere" not in outcome.record()["sentence"]


async def test_n_p_a_third_broker_is_no_outcome_either() -> None:
    """Nor is a bundle that no broker owns in the old store."""
    bench = await Bench().lead()

    def end(bundle: str) -> None:
        bench.metadata.migrate("COMPLETED")
        bench.model.owners[bundle] = Owner(broker_id=A)

    bench.model.after_unload = end
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, outcome.landed_on) == ("unknown", Code.STORE_MIGRATED, "")


async def test_n_p_a_move_seen_at_its_destination_is_done() -> None:
    """The destination's own node was written after the unload."""
    bench = await Bench().lead()
    bench.model.after_unload = lambda _bundle: bench.metadata.migrate("PREPARATION")
    assert (await bench.move()).outcome == "done"


async def test_n_p_no_unload_is_sent_once_the_migration_has_begun() -> None:
    """Between the checks and the call: the watch stops it."""
    sidecar = await leader()

    async def begin(_bundle: str, _target: str) -> None:
        sidecar.cluster.metadata.migrate("PREPARATION")

    sidecar.executor.forbids = begin
    report = await sidecar.cycle.turn()
    assert {(outcome.outcome, outcome.code) for outcome in report.outcomes} == {("refused", Code.STORE_MIGRATING)}
    assert sidecar.cluster.model.unloads == []


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (Owner(broker_id=C), ("unknown", Code.STORE_MIGRATING, "")),
        (None, ("unknown", Code.STORE_MIGRATING, "")),
        (Owner(broker_id=B), ("done", "", B)),
    ],
)
async def test_n_p_intents_of_an_earlier_leader_are_not_settled_by_a_stale_owner(
    owner: Owner | None, expected: tuple[str, str, str]
) -> None:
    """Only the destination's own node shows where a bundle went."""
    successor = await Successor().start()
    await successor.find(intent().encode())
    if owner is not None:
        successor.ownership.owners[BUNDLE] = owner
    for _ in range(2):
        result = await settle_intents(
            successor.coordination,
            successor.ownership,
            epoch=2,
            clock=successor.clock,
            first_seen=successor.seen,
            margin_seconds=MARGIN,
            migration=StoreMigration(phase="COPYING"),
        )
        successor.outcomes.extend(result.settled)
        successor.clock.now += INTENT_SECONDS + MARGIN
    (outcome,) = successor.outcomes
    assert (outcome.outcome, outcome.code, outcome.landed_on) == expected


async def test_n_p_a_split_that_a_migration_overtakes_has_an_unknown_outcome() -> None:
    """The brokers store the new boundaries in the new store: the old ones do not show that nothing was split."""
    bench = await split_bench.Bench().lead()
    bench.model.after_split = lambda _bundle, _children: bench.metadata.migrate("COMPLETED")
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code) == ("unknown", Code.STORE_MIGRATED)
