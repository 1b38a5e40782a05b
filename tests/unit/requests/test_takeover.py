"""Takeover and handback of the cluster or of some namespaces: earlier settings come back exactly, nothing is hidden."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import pytest

from bundlekeel.leader.state.takeover_record import EXCLUDED, SPLITTING, decode_takeover, name_set, takeover_request
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminFault, AdminTimeout, AdminUnreachable, CodecError, Conflict, StaleWrite
from bundlekeel.ports.commands import LookAgain, Permit, no_look
from bundlekeel.requests.doctor import examine
from bundlekeel.requests.takeover import (
    ENABLED,
    LOAD_MANAGER,
    PLACEMENT,
    SHEDDING,
    TakeoverContext,
    handback,
    last_takeover,
    preview,
    read_record,
    takeover,
    unknown_namespaces,
)
from tests.support.memory_admin import BrokerModel, Fault, MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.memory_source import MemoryMetadata, RealClock
from tests.support.shedding import sheds_itself
from tests.support.world import BROKERS, FakeCluster, FakeSidecar

IDS = ("b1:8080", "b2:8080", "b3:8080")


class Office:
    """A desk over three brokers in memory."""

    def __init__(self) -> None:
        self.model = BrokerModel(IDS)
        self.admin = MemoryAdmin(self.model)
        self.admin.set_endpoints(self.model.endpoints())
        self.coordination = MemoryCoordination(MemoryStore())
        self.metadata = MemoryMetadata()
        self.context = TakeoverContext(
            admin=self.admin,
            commands=self.admin,
            coordination=self.coordination,
            metadata=self.metadata,
            endpoints=self.model.endpoints(),
            clock=RealClock(),
            verify_seconds=0.0,
        )

    def mutations(self) -> list[tuple[str, ...]]:
        return [call for call in self.admin.calls if call[0] in ("set_dynamic", "delete_dynamic")]


@pytest.fixture
async def office() -> Office:
    """A fresh office, connected."""
    result = Office()
    await result.coordination.start()
    return result


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("before", [None, "true", "false"], ids=["absent", "true", "false"])
async def test_round_trip_restores_exactly(office: Office, before: str | None, split: bool) -> None:
    """After takeover no broker sheds; after handback the overrides are what they were, absence included."""
    if before is not None:
        office.model.dynamic[SHEDDING] = before
    original = dict(office.model.dynamic)
    messages: list[str] = []
    context = replace(office.context, tell=messages.append)
    result = await takeover(context, split=split, reason="we balance now", by="ann")
    assert messages[-1] == f"{len(IDS)} of {len(IDS)} brokers verified"
    assert result.complete
    # Left there by a takeover whose record is lost, perhaps: the handback below would leave nothing that balances.
    assert [f"{SHEDDING} was false" in text for text in result.warnings] == ([True] if before == "false" else [])
    assert result.unverified == ()
    assert result.splits_by == ("none" if split else "brokers")
    assert await sheds_itself(office.admin, office.context.endpoints) == dict.fromkeys(IDS, False)
    assert office.model.dynamic == {SHEDDING: "false"} | ({SPLITTING: "false"} if split else {})
    back = await handback(office.context)
    assert back is not None
    assert back.complete
    assert office.model.dynamic == original
    assert await read_record(office.coordination) is None
    assert await handback(office.context) is None


@pytest.mark.parametrize("split", [False, True])
async def test_a_preview_warns_as_the_takeover_and_changes_nothing(office: Office, split: bool) -> None:
    """Also of a broker whose placement would be random, and of one whose reports never change."""
    office.model.static[IDS[0]][PLACEMENT] = "org.apache.pulsar.AvgShedder"
    office.model.static[IDS[1]][ENABLED] = "false"
    preview_result = await preview(office.context, split=split)
    assert office.mutations() == [] and await read_record(office.coordination) is None
    assert [(row.verified, row.detail, row.values[SHEDDING]) for row in preview_result.brokers] == [
        (True, "would be set", "false")
    ] * len(IDS)
    result = await takeover(office.context, split=split, reason="r", by="ann")
    assert len(preview_result.warnings) == 2
    assert (preview_result.warnings, preview_result.splits_by) == (result.warnings, result.splits_by)


async def test_a_preview_says_which_broker_could_not_be_asked(office: Office) -> None:
    """A takeover refuses then, so its row is not as wanted."""
    silent = Fault(error=AdminUnreachable("nobody answers"))
    office.admin.fail("runtime_configuration", None, None, silent, silent)
    preview_result = await preview(office.context, split=False)
    assert preview_result.unverified == (IDS[2],)
    assert preview_result.brokers[2].detail == "nobody answers"
    with pytest.raises(AdminUnreachable):
        await takeover(office.context, split=False, reason="r", by="ann")


async def test_a_second_takeover_keeps_what_was_there_before_the_first(office: Office) -> None:
    """The second one sees our own override. Who, why and when are its own, so that its line of the journal is."""
    await takeover(office.context, split=False, reason="first", by="ann")
    await takeover(office.context, split=True, reason="second", by="bob")
    result = await read_record(office.coordination)
    assert result is not None
    record = result[0]
    assert (record.by, record.reason) == ("bob", "second")
    assert record.overrides == {SHEDDING: None, SPLITTING: None}
    assert [record.runtime[b][SHEDDING] for b in IDS] == ["true"] * 3
    back = await handback(office.context)
    assert back is not None
    assert back.complete
    assert office.model.dynamic == {}


async def test_a_takeover_after_a_handback_records_anew(office: Office) -> None:
    """A closed record does not shine through."""
    await takeover(office.context, split=True, reason="first", by="ann")
    await handback(office.context)
    office.model.dynamic[SHEDDING] = "true"
    await takeover(office.context, split=False, reason="second", by="bob")
    record = await read_record(office.coordination)
    assert record is not None
    assert (record[0].by, record[0].overrides) == ("bob", {SHEDDING: "true"})


class _Interrupted(MemoryAdmin):
    """Cluster in which an operator hands back during the first read of a broker's settings."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def runtime_configuration(self, broker_id: str) -> dict[str, str]:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().runtime_configuration(broker_id)


async def test_a_handback_ends_while_a_takeover_begins(office: Office) -> None:
    office.model.dynamic[SHEDDING] = "true"
    await takeover(office.context, split=False, reason="first", by="ann")
    admin = _Interrupted(office.model)
    admin.set_endpoints(office.model.endpoints())
    admin.meanwhile = partial(handback, office.context)
    with pytest.raises(StaleWrite):
        await takeover(replace(office.context, admin=admin), split=False, reason="second", by="bob")
    assert office.model.dynamic == {SHEDDING: "true"}
    await takeover(office.context, split=False, reason="third", by="bob")
    await handback(office.context)
    assert office.model.dynamic == {SHEDDING: "true"}


async def test_the_record_is_written_before_anything_changes(office: Office) -> None:
    """A store that does not answer stops a takeover before its first mutation."""
    office.coordination.store.freeze()
    with pytest.raises(Exception, match="not connected"):
        await takeover(office.context, split=False, reason="r", by="ann")
    assert office.mutations() == []


async def test_an_unreadable_broker_stops_a_takeover_before_it_begins(office: Office) -> None:
    office.admin.fail("runtime_configuration", None, Fault(error=AdminUnreachable("down")))
    with pytest.raises(AdminUnreachable):
        await takeover(office.context, split=False, reason="r", by="ann")
    assert office.mutations() == []
    assert await read_record(office.coordination) is None


async def test_a_stubborn_broker_is_named_and_the_record_stays(office: Office) -> None:
    """A broker that does not take the setting is not verified; doing it again later completes."""
    office.model.stubborn.add(IDS[1])
    result = await takeover(office.context, split=False, reason="r", by="ann")
    assert (result.complete, result.unverified) == (False, (IDS[1],))
    assert result.brokers[1].detail == f"{SHEDDING} is true, not false"
    assert await sheds_itself(office.admin, office.context.endpoints) == {IDS[0]: False, IDS[1]: True, IDS[2]: False}
    assert await read_record(office.coordination) is not None
    office.model.stubborn.clear()
    assert (await takeover(office.context, split=False, reason="again", by="ann")).complete


async def test_a_setting_of_unknown_outcome_is_settled_by_reading(office: Office) -> None:
    office.admin.fail("set_dynamic", Fault(error=AdminTimeout("no answer"), after=True))
    result = await takeover(office.context, split=False, reason="r", by="ann")
    assert result.complete
    assert "no answer" in result.warnings[0]
    assert len(office.mutations()) == 1


async def test_a_failed_handback_can_be_repeated(office: Office) -> None:
    """The record stays until everything is back."""
    await takeover(office.context, split=True, reason="r", by="ann")
    office.admin.fail("delete_dynamic", Fault(error=AdminFault("broken")))
    first = await handback(office.context)
    assert first is not None
    assert not first.complete
    assert first.unverified == IDS
    assert await read_record(office.coordination) is not None
    second = await handback(office.context)
    assert second is not None
    assert second.complete
    assert office.model.dynamic == {}


async def test_a_restarted_broker_may_run_with_a_new_file(office: Office) -> None:
    """Without an override a broker runs with its own file, which may have changed with a restart meanwhile."""
    await takeover(office.context, split=False, reason="r", by="ann")
    office.model.static[IDS[2]][SHEDDING] = "false"
    same_run = await handback(office.context)
    assert same_run is not None
    assert same_run.unverified == (IDS[2],)
    restarted = {**office.context.endpoints, IDS[2]: replace(office.context.endpoints[IDS[2]], start_timestamp=7)}
    back = await handback(replace(office.context, endpoints=restarted))
    assert back is not None
    assert back.complete


async def test_a_restarted_broker_is_not_verified_where_nothing_could_be_restored(office: Office) -> None:
    """It has nothing to be compared with: that it does not shed may be the takeover's doing still."""
    await takeover(office.context, split=False, reason="r", by="ann")
    restarted = {**office.context.endpoints, IDS[2]: replace(office.context.endpoints[IDS[2]], start_timestamp=7)}
    context = replace(office.context, endpoints=restarted)
    office.admin.fail("delete_dynamic", Fault(error=AdminFault("broken")))
    first = await handback(context)
    assert first is not None and first.unverified == IDS
    assert first.brokers[2].detail == f"{SHEDDING} could not be restored"


async def test_warnings(office: Office) -> None:
    for broker in IDS:
        office.model.static[broker][PLACEMENT] = "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"
    office.model.static[IDS[0]][ENABLED] = "false"
    result = await takeover(office.context, split=False, reason="r", by="ann")
    assert [warning.split(" ")[0] for warning in result.warnings] == [PLACEMENT, ENABLED]
    # The setting is not dynamic in any release, so the takeover names what to do instead.
    assert "random" in result.warnings[0] and "LeastResourceUsageWithWeight in broker.conf" in result.warnings[0]
    assert PLACEMENT not in office.model.dynamic


async def test_the_extensible_load_manager_ignores_the_placement(office: Office) -> None:
    """It has one placement of its own, so there is nothing to warn of."""
    manager = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
    for broker in IDS:
        office.model.static[broker][PLACEMENT] = "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"
        office.model.static[broker][LOAD_MANAGER] = manager
    assert (await takeover(office.context, split=False, reason="r", by="ann")).warnings == ()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", json.dumps({"overrides": 1}).encode()])
async def test_a_record_nobody_can_read_is_never_overwritten(office: Office, data: bytes) -> None:
    await office.coordination.write_shared("takeover", data, version=None)
    with pytest.raises(CodecError):
        await takeover(office.context, split=False, reason="r", by="ann")
    with pytest.raises(CodecError):
        await handback(office.context)
    assert office.mutations() == []


class _Forgetful(MemoryAdmin):
    """Says that an override is gone, and keeps it."""

    async def delete_dynamic(self, key: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        await look_again()
        permit()
        self.calls.append(("delete_dynamic", key))


async def test_a_handback_reads_the_stored_overrides_back(office: Office) -> None:
    for settings in office.model.static.values():
        settings[SHEDDING] = "false"
    result = await takeover(office.context, split=False, reason="r", by="ann")
    assert result.overrides == {SHEDDING: None}
    office.model.dynamic[SHEDDING] = "false"
    back = await handback(replace(office.context, commands=_Forgetful(office.model)))
    assert back is not None and back.unverified == () and not back.complete
    assert await read_record(office.coordination) is not None
    done = await handback(office.context)
    assert done is not None and done.complete and office.model.dynamic == {}


NAMES = ("t/ns",)


async def desk_of(cluster: FakeCluster, release: str = "4.2") -> TakeoverContext:
    """A person's desk over the cluster; brokers before 4.2 do not have the setting."""
    for broker in BROKERS:
        if release == "4.2":
            cluster.model.static[broker].setdefault(EXCLUDED, "[]")
    admin, coordination = MemoryAdmin(cluster.model), MemoryCoordination(cluster.store)
    admin.set_endpoints(cluster.model.endpoints())
    await coordination.start()
    return TakeoverContext(
        admin=admin,
        commands=admin,
        coordination=coordination,
        metadata=cluster.metadata,
        endpoints=cluster.model.endpoints(),
        clock=cluster.clock,
        verify_seconds=0.0,
    )


@pytest.fixture
def cluster() -> FakeCluster:
    """Brokers that shed by their file, without overrides."""
    fake_cluster = FakeCluster(shedding=True)
    fake_cluster.model.dynamic.clear()
    return fake_cluster


@pytest.mark.parametrize("before", [None, "x/y", ""], ids=["absent", "other", "empty"])
async def test_round_trip(cluster: FakeCluster, before: str | None) -> None:
    """The brokers leave the named ones alone, and what they left alone before; handback restores exactly."""
    if before is not None:
        cluster.model.dynamic[EXCLUDED] = before
    original = dict(cluster.model.dynamic)
    context = await desk_of(cluster)
    preview_result = await preview(context, split=False, namespaces=NAMES)
    assert {(row.detail, row.values[SHEDDING]) for row in preview_result.brokers} == {
        ("would leave t/ns to Bundlekeel", "true")
    }
    result = await takeover(context, split=False, reason="try it", by="ann", namespaces=NAMES)
    assert preview_result.warnings == result.warnings
    assert result.complete and result.warnings[0] == (
        "the takeover covers only t/ns: the brokers continue to shed all other bundles, and they place new bundles of "
        "t/ns in turn (RoundRobinBrokerSelector) instead of by load"
    )
    assert SHEDDING not in cluster.model.dynamic
    assert name_set(cluster.model.dynamic[EXCLUDED]) == {"t/ns"} | ({"x/y"} if before == "x/y" else set())
    record = await read_record(context.coordination)
    assert record is not None and record[0].namespaces == NAMES
    back = await handback(context, reason="enough", by="bob")
    assert back is not None and back.complete
    assert cluster.model.dynamic == original
    document = await context.coordination.read("takeover")
    assert document is not None
    ended = decode_takeover(document.data).ended
    assert ended is not None and (ended.by, ended.reason, ended.deadman) == ("bob", "enough", False)


@pytest.mark.parametrize(("before", "value"), [(None, "a/b,k/l"), ("x/y", "k/l,x/y")], ids=["absent", "other"])
async def test_what_others_excluded_meanwhile_stays_excluded(
    cluster: FakeCluster, before: str | None, value: str
) -> None:
    if before is not None:
        cluster.model.dynamic[EXCLUDED] = before
    cluster.model.static[BROKERS[1]][EXCLUDED] = "[a/b]" if before is None else "[]"
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    cluster.model.dynamic[EXCLUDED] += ",k/l"
    back = await handback(context)
    assert back is not None and back.complete
    assert cluster.model.dynamic == {EXCLUDED: value}


async def test_what_others_excluded_stays_excluded_after_the_whole_cluster_was_taken_over(cluster: FakeCluster) -> None:
    """The record knows which exclusions are ours, although the takeover is no longer limited to them."""
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    cluster.model.dynamic[EXCLUDED] += ",k/l"
    await takeover(context, split=False, reason="all", by="ann")
    assert cluster.model.dynamic == {EXCLUDED: "k/l", SHEDDING: "false"}
    back = await handback(context)
    assert back is not None and back.complete
    assert cluster.model.dynamic == {EXCLUDED: "k/l"}


async def test_what_others_excluded_before_a_second_takeover_stays_excluded(cluster: FakeCluster) -> None:
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    cluster.model.dynamic[EXCLUDED] += ",k/l"
    await takeover(context, split=False, reason="more", by="bob", namespaces=(*NAMES, "k/l"))
    back = await handback(context)
    assert back is not None and back.complete
    assert cluster.model.dynamic == {EXCLUDED: "k/l"}


async def test_nothing_is_read_between_the_last_look_and_a_write(cluster: FakeCluster) -> None:
    context = await desk_of(cluster)
    await takeover(context, split=True, reason="r", by="ann", namespaces=NAMES)
    admin = MemoryAdmin(cluster.model)
    admin.set_endpoints(cluster.model.endpoints())

    async def look_again() -> None:
        admin.calls.append(("look",))

    assert await handback(replace(context, admin=admin, commands=admin), look_again=look_again) is not None
    steps = [call[0] for call in admin.calls]
    written = [number for number, step in enumerate(steps) if step in ("set_dynamic", "delete_dynamic")]
    assert len(written) == 2 and {steps[number - 1] for number in written} == {"look"}


async def test_what_the_brokers_file_excludes_stays_excluded(cluster: FakeCluster) -> None:
    """An override takes the place of the file's value, so it has to hold that too."""
    cluster.model.static[BROKERS[1]][EXCLUDED] = "[a/b, c/d]"
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    assert name_set(cluster.model.dynamic[EXCLUDED]) == {"a/b", "c/d", "t/ns"}
    back = await handback(context)
    assert back is not None and back.complete and cluster.model.dynamic == {}


async def test_more_namespaces_then_everything(cluster: FakeCluster) -> None:
    """A partial takeover grows, becomes a whole takeover, and all of it is undone at once."""
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    await takeover(context, split=False, reason="more", by="bob", namespaces=("t/other",))
    record = await read_record(context.coordination)
    assert record is not None and record[0].namespaces == ("t/ns", "t/other") and record[0].by == "bob"
    assert takeover_request(record[0])["sentence"] == "bob turned the brokers' own shedding off for t/ns, t/other: more"
    assert (await takeover(context, split=False, reason="all", by="bob")).complete
    assert cluster.model.dynamic == {SHEDDING: "false"}, "excluded bundles would be placed in turn"
    record = await read_record(context.coordination)
    assert record is not None and record[0].namespaces == ()
    with pytest.raises(Conflict, match="whole cluster"):
        await takeover(context, split=False, reason="less", by="bob", namespaces=NAMES)
    back = await handback(context)
    assert back is not None and back.complete and cluster.model.dynamic == {}


@pytest.mark.parametrize("ended", [False, True])
async def test_a_takeover_that_is_wider_than_the_last_says_so(cluster: FakeCluster, ended: bool) -> None:
    """Also when the last one has ended: whoever takes over again after the failsafe may mean the same namespaces."""
    context = await desk_of(cluster)
    with pytest.raises(Conflict, match="no takeover to repeat"):
        await last_takeover(context.coordination)
    await takeover(context, split=True, reason="r", by="ann", namespaces=NAMES)
    if ended:
        await handback(context, by="bob", deadman=True)
    assert await last_takeover(context.coordination) == (True, ("t/ns",))
    wider = "the previous takeover covered only t/ns; this one covers the whole cluster"
    assert wider not in (await preview(context, split=False, namespaces=("t/other",))).warnings
    assert wider in (await preview(context, split=False)).warnings
    assert wider in (await takeover(context, split=False, reason="all", by="ann")).warnings
    assert wider not in (await takeover(context, split=False, reason="all", by="ann")).warnings


async def test_a_misspelt_namespace_is_warned_of(cluster: FakeCluster) -> None:
    there = await cluster.metadata.namespaces()
    assert await unknown_namespaces(cluster.metadata, there) == [] and there
    misspelt = there[0] + "x"
    assert await unknown_namespaces(cluster.metadata, (misspelt,)) == [
        f"there is no namespace {misspelt} now; did you mean '{there[0]}'?"
    ]
    sidecar = await FakeSidecar(cluster).lead()
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=(misspelt,))
    check = next(item for item in await examine(sidecar.doctor_context()) if item.name == "takeover")
    assert (
        not check.ok
        and check.severity == "warning"
        and f"in force for {misspelt}, by ann" in check.detail
        and "takeover" in check.fix
    )


@pytest.mark.parametrize("mode", ["extensible", "modular"])
@pytest.mark.parametrize("names", [NAMES, ()])
async def test_doctor_names_a_partial_takeover_whose_bundles_are_not_seen(
    cluster: FakeCluster, mode: Literal["extensible", "modular"], names: tuple[str, ...]
) -> None:
    sidecar = await FakeSidecar(cluster, settings={"extensible.bundles": "top"}).lead()
    cluster.source.mode = mode
    await takeover(await desk_of(cluster), split=False, reason="r", by="ann", namespaces=names)
    check = next(item for item in await examine(sidecar.doctor_context()) if item.name == "takeover")
    unseen = mode == "extensible" and bool(names)
    assert check.ok != unseen and ("set `extensible.bundles: all`" in check.fix) == unseen


async def test_older_brokers_are_refused_before_anything_changes(cluster: FakeCluster) -> None:
    context = await desk_of(cluster, "4.0")
    with pytest.raises(Conflict, match="Pulsar 4"):
        await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    with pytest.raises(Conflict, match="Pulsar 4"):
        await preview(context, split=False, namespaces=NAMES)
    assert cluster.model.dynamic == {} and await read_record(context.coordination) is None


async def test_acts_on_the_named_ones_while_the_brokers_shed(cluster: FakeCluster) -> None:
    """Without the partial takeover nothing moves; with it, bundles of the namespace do."""
    context = await desk_of(cluster)
    sidecar = await FakeSidecar(cluster).lead()
    inputs = await sidecar.cycle.turn()
    assert inputs.obstacle is not None and inputs.obstacle.code is Code.BROKERS_SHED_THEMSELVES
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    await sidecar.shared_state.refresh()
    assert (await sidecar.cycle.turn()).outcomes


async def test_nothing_of_other_namespaces_is_planned_or_begun(cluster: FakeCluster) -> None:
    """The plan leaves them alone, and so does the hand, whoever asks."""
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=("t/other",))
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.obstacle is None and report.plan is not None and not report.plan.moves
    assert Code.NOT_TAKEN_OVER in {item.code for item in report.plan.refusals}
    assert Code.EXCLUDED not in {item.code for item in report.plan.refusals}
    refusal = await sidecar.executor._not_now(next(iter(cluster.owners())))
    assert refusal is not None and refusal.code is Code.NOT_TAKEN_OVER
    assert not cluster.model.unloads


async def test_what_is_not_taken_over_is_told_with_its_remedy(cluster: FakeCluster) -> None:
    """`why` and a drain name the takeover, and no exclusion of the settings, which do not have one."""
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=("t/other",))
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    bundle, owner = next(iter(cluster.owners().items()))
    answer = await sidecar.service.why(bundle)
    assert [(item.code, item.detail) for item in answer.codes] == [
        ("NotTakenOver", "until its namespace is taken over")
    ]
    assert answer.what_would_change_it == "take its namespace over too: `bundlekeel takeover --namespace t/ns`"
    dry = await sidecar.service.requests.drain(owner, dry_run=True, reason="disks", by="ann")
    assert {item.code for item in dry.refusals} == {"NotTakenOver"} and not dry.moves


@pytest.mark.parametrize(
    "spoil",
    [
        lambda model: model.stubborn.add(BROKERS[2]),
        lambda model: model.dynamic.update({EXCLUDED: "x/y"}),
    ],
    ids=["one broker does not know", "somebody changed it"],
)
async def test_one_broker_that_sheds_them_stops_us(cluster: FakeCluster, spoil: Callable[[object], None]) -> None:
    """Proof is what each broker runs with, read again and again."""
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    spoil(cluster.model)
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.obstacle is not None and report.obstacle.code is Code.BROKERS_SHED_THEMSELVES
