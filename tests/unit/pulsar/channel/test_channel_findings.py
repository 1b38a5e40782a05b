"""Findings of the ownership channel: when they come, since when, and what they advise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from bundlekeel.model.channel_states import ChannelTable, RejectedUnit, ServiceUnit, UnitState
from bundlekeel.pulsar.channel.findings import (
    FINDINGS,
    Absences,
    ChannelFinding,
    Deadlines,
    FindingCode,
    Watching,
    findings,
)

NOW = 1_000_000_000
PARENT = "shop/a/0x00000000_0x80000000"
CHILDREN = ("shop/a/0x00000000_0x40000000", "shop/a/0x40000000_0x80000000")
HALVES = {child.rpartition("/")[2]: "" for child in CHILDREN}
ALIVE = ("b1:8080", "b2:8080")
OWNED = ServiceUnit(state=UnitState.OWNED, destination="b1:8080", version=5)
ASSIGNING = ServiceUnit(state=UnitState.ASSIGNING, destination="b2:8080", version=5)
RELEASING = ServiceUnit(state=UnitState.RELEASING, destination="b2:8080", source="b1:8080", version=6)
SPLITTING = ServiceUnit(state=UnitState.SPLITTING, source="b1:8080", children=HALVES, version=6)
DELETED = ServiceUnit(state=UnitState.DELETED, source="b1:8080", version=7)
FREE = ServiceUnit(state=UnitState.FREE, source="b1:8080", version=7)


def look(
    units: Mapping[str, ServiceUnit],
    ages: Mapping[str, int] | int = 0,
    *,
    rejected: Sequence[RejectedUnit] = (),
    registered: Sequence[str] | None = ALIVE,
    boundaries: Mapping[str, Sequence[int]] | None = None,
    watching: Watching | None = None,
    now_ms: int = NOW,
) -> tuple[ChannelFinding, ...]:
    """Findings with ages in ms, one for all or by bundle."""
    current = {bundle: NOW - (ages if isinstance(ages, int) else ages[bundle]) for bundle in units}
    return findings(
        units, current, rejected, registered, Deadlines(), now_ms, boundaries, watching=watching or Watching()
    )


def codes(result: Sequence[ChannelFinding]) -> list[tuple[str, str]]:
    """(code, bundle) of each."""
    return [(one.code.value, one.bundle) for one in result]


def test_every_code_is_explained() -> None:
    """In one sentence."""
    assert set(FINDINGS) == set(FindingCode) and all(FINDINGS.values())


def test_a_sound_channel() -> None:
    """Owned, in flight for a moment, free for a while, and a split under way."""
    sound = {PARENT: SPLITTING, CHILDREN[0]: OWNED, "shop/b/" + PARENT[-21:]: RELEASING, "shop/c/" + PARENT[-21:]: FREE}
    assert look(sound, 29_000) == ()


# --- in flight ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [ASSIGNING, RELEASING, replace(SPLITTING, children={})])
def test_in_flight_too_long(unit: ServiceUnit) -> None:
    """Rule: from 30 s on, the monitor's next run repairs it; otherwise an operator must."""
    assert look({PARENT: unit}, 30_000) == ()
    (results,) = look({PARENT: unit}, 30_001)
    assert results.code is FindingCode.IN_FLIGHT_TOO_LONG and results.state is unit.state
    assert (results.since_ms, results.deadline_ms) == (NOW - 30_001, NOW - 30_001 + 90_000)
    mends = "starts the split again" if unit.state is UnitState.SPLITTING else "makes a broker own it"
    assert results.remedy.startswith(f"nothing: the leader broker's monitor (every 60 s) {mends}")
    assert look({PARENT: unit}, 90_000)[0].remedy == results.remedy
    (later,) = look({PARENT: unit}, 90_001)
    assert "pulsar-admin brokers leader-broker" in later.remedy and results.detail == later.detail


@pytest.mark.parametrize(
    ("unit", "brokers"),
    [
        (RELEASING, ("b1:8080", "b2:8080")),
        (replace(RELEASING, state=UnitState.ASSIGNING), ("b2:8080", "b1:8080")),
        (ASSIGNING, ("b2:8080",)),
    ],
)
def test_the_broker_that_a_bundle_in_flight_waits_for_is_first(unit: ServiceUnit, brokers: tuple[str, ...]) -> None:
    """The source closes the topics, the destination takes them."""
    (results,) = look({PARENT: unit}, 31_000)
    assert results.brokers == brokers
    way = "from b1:8080 to b2:8080" if unit.source else "to b2:8080"
    assert results.detail == f"{unit.state} {way} for more than 30 s, waiting for {brokers[0]}"


# --- whose clock -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [0, 1, NOW + 10**9])
def test_our_clock_counts_once_we_watch(written: int) -> None:
    """A writer's slow or fast clock makes nothing too long that came a second ago."""
    unit = replace(RELEASING, timestamp_ms=written)
    assert look({PARENT: unit}, 1000, watching=Watching(from_ms=NOW - 5000)) == ()
    (results,) = look({PARENT: unit}, 31_000, watching=Watching(from_ms=NOW - 60_000))
    assert results.since_ms == NOW - 31_000


def test_what_was_there_before_us_is_as_old_as_its_writer_says() -> None:
    began = Watching(from_ms=NOW - 1000)
    (results,) = look({PARENT: replace(RELEASING, timestamp_ms=NOW - 45_000)}, 1000, watching=began)
    assert results.since_ms == NOW - 45_000
    assert look({PARENT: replace(RELEASING, timestamp_ms=NOW + 45_000)}, 1000, watching=began) == ()
    (ahead,) = look({PARENT: replace(RELEASING, timestamp_ms=NOW + 45_000)}, 31_000, watching=Watching(from_ms=NOW))
    assert ahead.since_ms == NOW - 31_000
    (timeless,) = look({PARENT: RELEASING}, 31_000, watching=Watching(from_ms=NOW))
    assert timeless.since_ms == NOW - 31_000


# --- brokers that are gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "code"),
    [
        (replace(OWNED, destination="b3:8080"), FindingCode.OWNER_NOT_ALIVE),
        (replace(RELEASING, source="b3:8080"), FindingCode.OWNER_NOT_ALIVE),
        (replace(SPLITTING, source="b3:8080"), FindingCode.OWNER_NOT_ALIVE),
        (replace(RELEASING, destination="b3:8080"), FindingCode.TARGET_NOT_ALIVE),
        (replace(ASSIGNING, destination="b3:8080"), FindingCode.TARGET_NOT_ALIVE),
    ],
)
def test_a_broker_that_is_not_registered(unit: ServiceUnit, code: FindingCode) -> None:
    (results,) = look({PARENT: unit}, 0)
    assert results.code is code and results.brokers == ("b3:8080",) and "b3:8080 is not registered" in results.detail
    assert results.remedy.startswith("nothing:") and results.deadline_ms == NOW + 90_000
    watching = Watching(gone_ms={"b3:8080": NOW - 91_000})
    late = next(one for one in look({PARENT: unit}, 200_000, watching=watching) if one.code is code)
    assert late.since_ms == NOW - 91_000 and late.remedy.startswith("start b3:8080 again, or restart the leader")


def test_who_is_alive_may_be_unknown() -> None:
    assert look({PARENT: OWNED}, registered=None) == ()
    assert codes(look({PARENT: OWNED}, registered=())) == [("OwnerNotAlive", PARENT)]


def test_an_unload_needs_no_target() -> None:
    """Releasing without destination has no target, and the source of an owned entry is ignored."""
    assert look({PARENT: replace(RELEASING, destination="")}) == ()
    assert look({PARENT: replace(OWNED, source="b3:8080")}) == ()


def test_owned_by_nobody() -> None:
    (results,) = look({PARENT: replace(OWNED, destination="", source="b1:8080")}, 91_000)
    assert results.code is FindingCode.OWNER_NOT_ALIVE and "no broker is not registered" in results.detail
    assert results.remedy.startswith("restart the leader")


def test_absences_begin_when_they_are_seen() -> None:
    """And end with the broker's return; who was never there is not missed."""
    absences = Absences()
    assert absences.note(ALIVE, 100) == {}
    assert absences.note(["b1:8080"], 200) == {"b2:8080": 200}
    assert absences.note(["b1:8080"], 300) == {"b2:8080": 200}
    assert absences.note(ALIVE, 400) == {}
    assert absences.note([], 500) == {"b1:8080": 500, "b2:8080": 500}


# --- splits and tombstones ---------------------------------------------------------------------------------


def test_children_of_a_split_that_no_broker_owns() -> None:
    """Splitting for too long without them; one that has an entry, or was split itself, is there."""
    results = look({PARENT: SPLITTING, CHILDREN[0]: OWNED}, 31_000)
    assert codes(results) == [("InFlightTooLong", PARENT), ("SplitChildrenMissing", PARENT)]
    assert CHILDREN[1][-21:] in results[1].detail and CHILDREN[0][-21:] not in results[1].detail
    assert "starts the split again" in results[1].remedy
    parts = {PARENT: SPLITTING, CHILDREN[0]: OWNED, "shop/a/0x60000000_0x80000000": OWNED}
    assert codes(look(parts, 31_000)) == [("InFlightTooLong", PARENT)]


@pytest.mark.parametrize(
    ("bounds", "remedy"),
    [
        (None, "nothing: the leader broker's monitor"),
        ([0, 2**31, 2**32 - 1], "nothing: the leader broker's monitor"),
        ([0, 2**30, 2**31, 2**32 - 1], "nothing: the next lookup"),
    ],
)
def test_a_deleted_parent_without_children(bounds: list[int] | None, remedy: str) -> None:
    """Once the namespace is cut, lookups place the children; before, the parent's entry must go first."""
    boundaries = None if bounds is None else {"shop/a": bounds}
    assert look({PARENT: DELETED}, 30_000, boundaries=boundaries) == ()
    (results,) = look({PARENT: DELETED}, 31_000, boundaries=boundaries)
    assert results.code is FindingCode.SPLIT_CHILDREN_MISSING and results.remedy.startswith(remedy)
    assert results.deadline_ms in (0, NOW - 31_000 + 3_660_000)
    assert look({PARENT: DELETED, CHILDREN[0]: OWNED}, 31_000, boundaries=boundaries) == ()


@pytest.mark.parametrize(("unit", "harm"), [(FREE, "a lookup still assigns it"), (DELETED, "lookups of it fail")])
def test_tombstone_overdue(unit: ServiceUnit, harm: str) -> None:
    """An hour and the monitor's interval."""
    units = {PARENT: unit, CHILDREN[0]: OWNED}
    assert look(units, 3_660_000) == ()
    (results,) = look(units, 3_660_001)
    assert results.code is FindingCode.TOMBSTONE_OVERDUE and harm in results.detail
    assert (results.since_ms, results.deadline_ms) == (NOW - 3_660_001, NOW - 1)
    assert "restart the leader broker" in results.remedy


# --- owned twice -------------------------------------------------------------------------------------------


def test_overlapping_entries() -> None:
    """Both active and none of them a split's parent, for longer than two writes take."""
    units = {PARENT: OWNED, CHILDREN[1]: replace(OWNED, destination="b2:8080")}
    assert look(units, {PARENT: 100_000, CHILDREN[1]: 1_999}) == ()
    (results,) = look(units, {PARENT: 100_000, CHILDREN[1]: 2_000})
    assert (results.code, results.bundle, results.since_ms) == (FindingCode.OWNED_TWICE, CHILDREN[1], NOW - 2_000)
    assert results.brokers == ALIVE and PARENT in results.detail and results.deadline_ms == 0
    assert "pulsar-admin namespaces bundles shop/a" in results.remedy
    assert look({PARENT: DELETED, CHILDREN[1]: OWNED}, 5_000) == ()
    assert look({PARENT: OWNED, CHILDREN[1]: FREE}, 5_000) == ()


def test_a_running_split_covers_only_what_lies_inside() -> None:
    """A range that begins inside its parent and ends beyond it is none of its children."""
    beyond = "shop/a/0x40000000_0xc0000000"
    assert codes(look({PARENT: SPLITTING, CHILDREN[0]: OWNED, beyond: OWNED}, 5_000)) == [("OwnedTwice", beyond)]


@pytest.mark.parametrize(
    ("bounds", "broker", "left"), [([0, 2**30, 2**31], "b1:8080", PARENT), ([0, 2**31], "b2:8080", CHILDREN[1])]
)
def test_the_namespace_tells_which_is_left_over(bounds: list[int], broker: str, left: str) -> None:
    units = {PARENT: OWNED, CHILDREN[1]: replace(OWNED, destination="b2:8080")}
    (results,) = look(units, 5_000, boundaries={"shop/a": bounds})
    assert results.remedy.startswith(f"restart {broker}, which gives {left} up")
    (neither,) = look(units, 5_000, boundaries={"shop/a": [0, 2**32 - 1]})
    assert neither.remedy.startswith("pulsar-admin namespaces bundles")


def test_neighbours_and_other_namespaces_do_not_overlap() -> None:
    """Nor does a name that has a namespace's as its beginning."""
    rest = "0x80000000_0xffffffff"
    units = dict.fromkeys((PARENT, f"shop/a/{rest}", "shop/ab/" + PARENT[-21:], "shop/a/x/" + PARENT[-21:]), OWNED)
    assert look(units, 5_000) == ()


def lost(broker: str, version: int, age_ms: int) -> RejectedUnit:
    """A claim of ownership that lost."""
    unit = ServiceUnit(state=UnitState.OWNED, destination=broker, version=version)
    return RejectedUnit(bundle=PARENT, unit=unit, wall_ms=NOW - age_ms)


def test_a_claim_that_lost() -> None:
    """For a minute, or until the entry has moved on."""
    again = [lost("b2:8080", 5, 40_000), lost("b2:8080", 5, 10_000)]
    (results,) = look({PARENT: OWNED}, 100_000, rejected=again)
    assert (results.code, results.since_ms) == (FindingCode.OWNED_TWICE, NOW - 40_000)
    assert results.brokers == ("b2:8080", "b1:8080") and results.deadline_ms == NOW + 20_000
    assert f"pulsar-admin namespaces unload shop/a --bundle {PARENT[-21:]}" in results.remedy
    assert look({PARENT: replace(OWNED, version=6)}, rejected=again) == ()
    assert len(look({PARENT: OWNED}, rejected=[lost("b2:8080", 5, 60_000)])) == 1
    assert look({PARENT: OWNED}, rejected=[lost("b2:8080", 5, 60_001)]) == ()
    assert look({PARENT: OWNED}, rejected=[lost("b1:8080", 5, 0)]) == ()
    assert look({}, rejected=again) == ()
    other = RejectedUnit(bundle=PARENT, unit=ASSIGNING, wall_ms=NOW)
    assert look({PARENT: OWNED}, rejected=[other]) == ()


def test_a_race_as_the_table_tells_it() -> None:
    """Two brokers own the same version: the second one is found out."""
    table = ChannelTable()
    assigning = replace(ASSIGNING, version=4, destination="b1:8080")
    for unit in (assigning, OWNED, replace(OWNED, destination="b2:8080")):
        table.apply(PARENT, unit, NOW)
    results = findings(table.units, table.seen_ms, table.rejected, ALIVE, Deadlines(), NOW)
    assert codes(results) == [("OwnedTwice", PARENT)]


# --- the whole ---------------------------------------------------------------------------------------------


def test_order_and_steadiness() -> None:
    units = {
        f"shop/{space}/0x00000000_0xffffffff": unit for space, unit in zip("dcba", [RELEASING, OWNED] * 2, strict=True)
    }
    first = look(units, 40_000, registered=["b1:8080"])
    assert [one.code.value for one in first] == ["InFlightTooLong"] * 2 + ["TargetNotAlive"] * 2
    assert [one.bundle[5] for one in first] == ["b", "d", "b", "d"]
    assert look(units, 40_000, registered=["b1:8080"], now_ms=NOW + 1000) == first


def test_a_large_channel() -> None:
    """Many namespaces, half of the owners dead: each entry is found once."""
    units = {
        f"shop/ns{space}/0x{at * 0x400000:08x}_0x{(at + 1) * 0x400000:08x}": replace(
            OWNED, destination=f"b{at % 4}:8080"
        )
        for space in range(20)
        for at in range(1000)
    }
    results = look(units, registered=["b0:8080", "b1:8080"])
    assert len(results) == 10_000 and {one.brokers for one in results} == {("b2:8080",), ("b3:8080",)}


def test_a_made_up_channel() -> None:
    units = {f"shop/a/0x{at:08x}_0x{2**31 - at:08x}": OWNED for at in range(500)}
    results = look(units, 5_000)
    assert {one.bundle for one in results} == set(sorted(units)[1:]) and len(results) <= 8 * 500


# --- deadlines ---------------------------------------------------------------------------------------------


def test_deadlines_of_a_broker() -> None:
    assert (
        Deadlines.of({})
        == Deadlines()
        == Deadlines(in_flight_ms=30_000, monitor_ms=60_000, tombstone_ms=3_600_000, load_data_ms=1_800_000)
    )
    output = {
        "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": "5000",
        "loadBalancerServiceUnitStateMonitorIntervalInSeconds": 7,
        "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds": "90",
        "loadBalancerBrokerLoadDataTTLInSeconds": "100",
    }
    assert Deadlines.of(output) == Deadlines(
        in_flight_ms=5_000, monitor_ms=7_000, tombstone_ms=90_000, load_data_ms=100_000
    )
    for rubbish in ("", "0", "-1", "x", None, "1e3", 10**400):
        assert Deadlines.of(dict.fromkeys(output, rubbish)) == Deadlines()
