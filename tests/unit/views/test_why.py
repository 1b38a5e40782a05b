"""`why` of names that are in no load report, and of bundles whose rates are limited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bundlekeel.leader.state.documents import Desired, LastingRequest
from bundlekeel.leader.state.responses import EndedView
from bundlekeel.leader.state.takeover_record import TakeoverRecord
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import NotFound
from bundlekeel.model.plan import GroupVerdict, Verdict
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.model.text_format import clock_text
from bundlekeel.planning.guard.state import RecentMove
from tests.support.world import BROKERS, FakeCluster, FakeSidecar


async def test_why_of_what_does_not_exist_is_an_error() -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.cluster.metadata.bundle_boundaries["t/ns"] = [0, 0x80000000, 0xFFFFFFFF]
    await sidecar.cycle.turn()
    for name in ("nosuch/ns/0x00000000_0x10000000", "t/ns/0x80000000_0x90000000", "persistent://t/no/x"):
        with pytest.raises(NotFound) as caught:
            await sidecar.service.why(name)
        assert ("nearest: t/ns/0x80000000_0xffffffff" in str(caught.value)) == name.startswith("t/ns/0x")
        assert ("namespace t/no does not exist, or has no bundles yet; did you mean 't/ns'?" in str(caught.value)) == (
            "t/no" in name
        )
    with pytest.raises(NotFound, match=r"^'0x80000000_0xffffffff' is not a bundle: write tenant/namespace/ before it"):
        await sidecar.service.why("0x80000000_0xffffffff")
    with pytest.raises(NotFound, match=r"^namespace t/nx does not exist.*did you mean 't/ns'"):
        await sidecar.service.why("t/nx/0x80000000_0xffffffff")
    later = await sidecar.service.why("persistent://t/ns/later")
    assert later.sentence.startswith("there is no topic persistent://t/ns/later yet; of its bundle: ")


async def test_a_hash_range_in_upper_case_is_the_bundle() -> None:
    """It was taken for a topic that does not exist yet, in a bundle that happened to be the right one."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.cluster.metadata.bundle_boundaries["t/ns"] = [0, 0xC0000000, 0xFFFFFFFF]
    await sidecar.cycle.turn()
    bundle = "t/ns/0xc0000000_0xffffffff"
    for name in (bundle, "t/ns/0xC0000000_0xFFFFFFFF"):
        answer = await sidecar.service.why(name)
        assert (answer.kind, answer.name, "topic" in answer.sentence) == ("bundle", bundle, False)


async def test_why_of_an_idle_bundle_names_its_owner() -> None:
    """Load reports leave out bundles without traffic; the metadata store knows who owns them."""
    cluster, bundle = FakeCluster(), "t/idle/0x00000000_0xffffffff"
    cluster.metadata.bundle_boundaries["t/idle"] = [0, 0xFFFFFFFF]
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    alone = await sidecar.service.why(bundle)
    assert (alone.broker, alone.codes) == (None, []) and "no broker owns" in alone.sentence
    cluster.model.own(bundle, BROKERS[2])
    owned = await sidecar.service.why(bundle)
    assert owned.broker == BROKERS[2] and owned.sentence.startswith(f"{BROKERS[2]} owns it")
    assert [item.code for item in owned.codes] == ["Idle"]


async def test_a_broker_is_named_by_its_whole_id() -> None:
    """The beginning of one is an error that names the brokers that begin so."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    with pytest.raises(NotFound, match=f"^no broker '{BROKERS[1][:2]}'; nearest: {BROKERS[1]};"):
        await sidecar.service.why(BROKERS[1][:2])


async def test_a_balanced_broker_is_not_told_to_wait_for_others() -> None:
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await sidecar.cycle.turn()
    report, snapshot = sidecar.cycle.report, sidecar.cycle.snapshot
    assert report is not None and report.plan is not None and snapshot is not None
    pair = [Verdict(code=Code.HIT_COUNT, sentence="waits", broker=broker) for broker in BROKERS[:2]]
    even = Verdict(code=Code.BALANCED, sentence="even", broker=BROKERS[2])
    report.plan = replace(report.plan, verdict=pair[0], brokers=(*pair, even), moves=())
    output = [(await sidecar.service.why(broker)).what_would_change_it for broker in BROKERS]
    assert [text.split(":")[0] for text in output] == [*["wait for the remaining fresh reports"] * 2, "nothing to do"]
    # The same of a bundle there that nothing else holds.
    hot = replace(even, broker=BROKERS[0])
    report.plan = replace(report.plan, brokers=(hot, *pair[1:], even), refusals=())
    bundle = snapshot.bundles.names[snapshot.bundles.owner.tolist().index(snapshot.brokers.ids.index(BROKERS[0]))]
    assert "a larger difference" in (await sidecar.service.why(bundle)).what_would_change_it


async def test_the_only_open_broker_is_told_that_the_others_are_closed() -> None:
    """No difference would move anything then, however large."""
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await sidecar.cycle.turn()
    report = sidecar.cycle.report
    assert report is not None and report.plan is not None
    even = Verdict(code=Code.BALANCED, sentence="even", broker=BROKERS[0])
    report.plan = replace(report.plan, verdict=even, brokers=(even,), moves=(), closed=frozenset(BROKERS[1:]))
    assert (await sidecar.service.why(BROKERS[0])).what_would_change_it == (
        "open another broker: all others are drained, cordoned or excluded; see `bundlekeel operations`"
    )


@pytest.mark.parametrize(
    ("limited", "times", "why"),
    [(False, 1, ""), (True, 2, "; 2 times as long, as a quota group limits its rates (cool_down_limited_factor)")],
)
async def test_why_tells_when_a_cool_down_ends(limited: bool, times: int, why: str) -> None:
    """The time it ends, as the settings have it, and where quotas make it longer the factor with its parameter."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    snapshot, state = sidecar.cycle.snapshot, sidecar.cycle.cycle_state
    assert snapshot is not None
    moved = {entry.bundle for entry in state.ledger.entries}
    bundle = next(name for name in snapshot.bundles.names if name not in moved)
    recent = {**state.recent, bundle: RecentMove(at_ms=snapshot.wall_ms, source="")}
    sidecar.cycle.adopt(replace(state, recent=recent), sidecar.cycle.epoch)
    if limited:
        sidecar.cycle.guard_memory.limited = lambda namespaces: namespaces
    answer = (await sidecar.service.why(bundle)).codes[0]
    ends = clock_text(snapshot.wall_ms + int(1000 * times * sidecar.cycle.params.cool_down_seconds))
    assert answer.code == "CoolDown" and answer.detail.endswith(f"until {ends}{why}")


async def test_why_tells_what_holds_a_bundle_beside_its_cool_down() -> None:
    """Both codes; the action is about what stays when the cool-down is over."""
    cluster = FakeCluster()
    only_first = IsolationPolicy(name="gold", namespaces=("t/ns",), primary=("b1",), min_limit=1)
    cluster.metadata.isolation["local"] = (only_first,)
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    snapshot, state = sidecar.cycle.snapshot, sidecar.cycle.cycle_state
    assert snapshot is not None
    bundle = snapshot.bundles.names[0]
    recent = {**state.recent, bundle: RecentMove(at_ms=snapshot.wall_ms, source="")}
    sidecar.cycle.adopt(replace(state, recent=recent), sidecar.cycle.epoch)
    answer = await sidecar.service.why(bundle)
    assert [item.code for item in answer.codes] == ["CoolDown", "PolicyForbids"]
    assert "policy" in answer.what_would_change_it


@pytest.mark.parametrize("name", [BROKERS[0], "bundle"])
async def test_a_follower_tells_what_holds_the_leader_back(name: str) -> None:
    cluster = FakeCluster(shedding=True)
    leader, other = [await FakeSidecar(cluster, which).lead() for which in "ab"]
    await other.cycle.turn()
    assert other.cycle.report is not None and other.cycle.report.plan is not None
    name = other.cycle.report.plan.moves[0].bundle if name == "bundle" else name
    early = await other.service.why(name)
    assert early.what_would_change_it == "the leader executes it; `bundlekeel status` shows which sidecar leads"
    assert "NotLeader" in [item.code for item in early.codes]
    await leader.cycle.turn()
    await other.shared_state.refresh()
    for sidecar in (leader, other):
        answer = await sidecar.service.why(name)
        assert answer.what_would_change_it == "turn the brokers' own shedding off: `bundlekeel takeover`"
        assert [item.code for item in answer.codes if item.code in ("BrokersShedThemselves", "NotLeader")] == [
            "BrokersShedThemselves"
        ]


async def test_after_the_failsafe_the_last_takeover_is_repeated() -> None:
    """With its namespaces: without `--again` it would be one of the whole cluster."""
    sidecar = await FakeSidecar(FakeCluster(shedding=True)).lead()
    ended = EndedView(by="deadman", reason="r", wall_ms=1, deadman=True)
    record = TakeoverRecord(by="a", reason="r", wall_ms=1, overrides={}, runtime={}, active=False, ended=ended)
    await sidecar.coordination.write_shared("takeover", record.encode(), version=None)
    await sidecar.shared_state.refresh()
    await sidecar.cycle.turn()
    answer = await sidecar.service.why(BROKERS[0])
    assert answer.what_would_change_it == "turn the brokers' own shedding off again: `bundlekeel takeover --again`"


async def test_a_lower_mode_of_a_follower_holds_nothing_back() -> None:
    cluster = FakeCluster()
    leader, other = await FakeSidecar(cluster).lead(), await FakeSidecar(cluster, "b", mode="recommend").lead()
    await other.cycle.turn()
    await leader.cycle.turn()
    await other.shared_state.refresh()
    answer = await other.service.why(BROKERS[0])
    assert "RecommendOnly" not in [item.code for item in answer.codes]


async def test_a_pin_is_told_before_what_ends_by_itself() -> None:
    """A bundle that has just moved waits for the reports; the pin keeps it for longer, and a person may end it."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    bundle = sidecar.cycle.cycle_state.ledger.entries[0].bundle
    assert (await sidecar.service.why(bundle)).codes[0].code == "Unsettled"
    sidecar.shared_state.desired = Desired(pinned={bundle: LastingRequest(by="ann", reason="vip", since_ms=1)})
    answer = await sidecar.service.why(bundle)
    assert [item.code for item in answer.codes] == ["Pinned"]
    assert answer.codes[0].detail == "until an operator ends it, by ann: vip"


async def test_n_h_why_uses_the_verdict_of_the_brokers_group() -> None:
    """The verdict and the moves of other groups do not explain a broker or a bundle."""
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await sidecar.cycle.turn()
    report, snapshot = sidecar.cycle.report, sidecar.cycle.snapshot
    assert report is not None and report.plan is not None and report.plan.moves and snapshot is not None
    even, waits = Verdict(Code.BALANCED, "even here"), Verdict(Code.HIT_COUNT, "waits there")
    groups = GroupVerdict((BROKERS[0],), even), GroupVerdict(BROKERS[1:], waits)
    moves = tuple(replace(move, source=BROKERS[1], target=BROKERS[2]) for move in report.plan.moves)
    report.plan = replace(report.plan, verdict=waits, groups=groups, brokers=(), moves=moves, refusals=())
    answer = await sidecar.service.why(BROKERS[0])
    assert answer.sentence.endswith("even here")
    assert answer.what_would_change_it.startswith("nothing to do: a larger difference")
    names = [move.bundle for move in moves]
    bundle = next(
        name
        for name, row in zip(snapshot.bundles.names, snapshot.bundles.owner.tolist(), strict=True)
        if snapshot.brokers.ids[row] == BROKERS[0] and name not in names
    )
    assert "even here" in (await sidecar.service.why(bundle)).sentence
