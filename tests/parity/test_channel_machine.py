"""The ownership channel as a state machine: brokers play their flows into our table and into Java's resolver.

`Racing` brokers act on what they saw a while ago, their messages are late, come twice, or are nonsense; after each
message both tables must be the same. `Orderly` ones act one after the other; then the channel is never at odds.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from bundlekeel.model.channel_states import ACTIVE, ChannelTable, ServiceUnit, UnitState
from bundlekeel.pulsar.channel.findings import Deadlines, FindingCode, findings
from bundlekeel.pulsar.formats.channel import decode_service_unit
from dev.oracle import Oracle
from tests.support.channel_flows import FLOWS, Message, Writer
from tests.support.service_units import encode_service_unit

BROKERS = ("b1:8080", "b2:8080", "b3:8080")
ROOTS = ("shop/a/0x00000000_0x80000000", "shop/a/0x80000000_0xffffffff")
# What the leader broker does about a dead one is to be rarer than what brokers do all day.
OFTEN = 3
TAKERS = st.sampled_from(BROKERS)
# A split of a split of a split is deep enough.
NARROWEST = 0x10000000
# Seconds on an idle machine; the JVM shares it with whatever else runs.
pytestmark = pytest.mark.timeout(600)
UNITS = st.builds(
    ServiceUnit,
    state=st.sampled_from(sorted(set(UnitState) - {UnitState.INIT})),
    destination=st.sampled_from([*BROKERS, ""]),
    source=st.sampled_from(BROKERS),
    force=st.booleans(),
    timestamp_ms=st.integers(0, 2**41),
    version=st.integers(1, 12),
).filter(lambda unit: unit.destination or unit.state not in (UnitState.OWNED, UnitState.ASSIGNING))


class Tables(RuleBasedStateMachine):
    """Our table and Java's, fed with the same messages."""

    oracle: ClassVar[Oracle]
    seen: ClassVar[Counter[str]]
    store: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.oracle.ask({"reset": {"kind": "channel", "store": self.store}})
        self.ours = ChannelTable(store=self.store)
        self.log: list[Message] = []
        self.views: list[dict[str, ServiceUnit]] = [{}]
        self.clock = 1

    def named(self) -> list[str]:
        """Every bundle that was ever named, and the roots."""
        names = {*ROOTS, *(bundle for bundle, _ in self.log)}
        return sorted(name for name in names if int(name[-8:], 16) - int(name[-19:-11], 16) > NARROWEST)

    def step(self, data: st.DataObject, bundle: str, taker: str, *, back: int = 0) -> tuple[str, list[Message]]:
        """A step that a broker can make that saw the table `back` messages ago, and what it publishes."""
        entry = self.views[max(0, len(self.views) - 1 - back)].get(bundle)
        self.clock += 1
        writer = Writer(bundle=bundle, target=taker, now_ms=self.clock)
        possible = {name: messages for name, flow in FLOWS.items() if (messages := flow(entry, writer))}
        names = [name for name in possible for _ in range(1 if name in ("override", "give_up") else OFTEN)]
        if not names:
            return "", []
        name = data.draw(st.sampled_from(names))
        return name, possible[name]

    def deliver(self, bundle: str, unit: ServiceUnit | None) -> bool:
        """Give one message to both; same verdict, same table, and `pulsar.formats` and Jackson write the same."""
        accepted = self.ours.apply(bundle, unit, self.clock)
        entry = b"null" if unit is None else encode_service_unit(unit)
        line = b'{"entries":[' + entry + b'],"messages":' + json.dumps([[bundle, 0]]).encode() + b"}"
        answer = self.oracle.ask(line)
        assert answer["keep"] == ("0" if accepted else "1")
        assert answer["table"] == {
            name: json.loads(encode_service_unit(table)) for name, table in self.ours.units.items()
        }
        self.log.append((bundle, unit))
        self.views.append(dict(self.ours.units))
        kind = "tombstone" if unit is None else f"{unit.state}{' by force' * unit.force}"
        self.seen[f"{kind} {'accepted' if accepted else 'rejected'}"] += 1
        return accepted

    @invariant()
    def ages_and_entries_go_together(self) -> None:
        """Whatever has an entry has an age, and the lost are few."""
        assert self.ours.units.keys() == self.ours.seen_ms.keys()
        assert len(self.ours.rejected) <= 100

    def teardown(self) -> None:
        """Whoever reads the same messages later has the same table, also after a compaction in between."""
        late = ChannelTable(store=self.store)
        for bundle, unit in self.log:
            late.apply(bundle, unit, 1)
        assert late.units == self.ours.units
        if self.store:
            return
        middle = len(self.log) // 2
        compacted = ChannelTable()
        for bundle, table in self.views[middle].items():
            assert compacted.apply(bundle, decode_service_unit(encode_service_unit(table)), 1)
        for bundle, unit in self.log[middle:]:
            compacted.apply(bundle, unit, 1)
        assert compacted.units == self.ours.units


class Racing(Tables):
    """Brokers that act on old views; messages late, twice, out of order, or nonsense."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Message] = []

    @rule(data=st.data(), taker=TAKERS, back=st.sampled_from([0, 0, 0, 1, 2, 5]), late=st.booleans())
    def act(self, data: st.DataObject, taker: str, back: int, late: bool) -> None:
        """One step of a flow; its messages arrive now, or some other time."""
        bundle = data.draw(st.sampled_from(self.named()))
        _, messages = self.step(data, bundle, taker, back=back)
        if late:
            self.waiting.extend(messages)
        else:
            for message in messages:
                self.deliver(*message)

    @rule(data=st.data(), first=TAKERS, second=TAKERS)
    def race(self, data: st.DataObject, first: str, second: str) -> None:
        """Two brokers act on the same view."""
        bundle = data.draw(st.sampled_from(self.named()))
        both = [*self.step(data, bundle, first)[1], *self.step(data, bundle, second)[1]]
        for message in both:
            self.deliver(*message)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """A late message is there."""
        self.deliver(*self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1))))

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A message comes again."""
        self.deliver(*data.draw(st.sampled_from(self.log[-10:])))

    @rule(bundle=st.sampled_from(ROOTS), unit=UNITS)
    def nonsense(self, bundle: str, unit: ServiceUnit) -> None:
        """Deliver an entry that no broker would write at this point."""
        self.deliver(bundle, unit)


class Orderly(Tables):
    """Brokers that see everything before they act; every message must be accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.current = set(ROOTS)

    @rule(data=st.data(), taker=TAKERS)
    def act(self, data: st.DataObject, taker: str) -> None:
        """One step; only bundles of the namespace are assigned, and a finished split changes which those are."""
        bundle = data.draw(st.sampled_from(sorted(self.current | self.ours.units.keys())))
        name, messages = self.step(data, bundle, taker)
        if name == "assign" and bundle not in self.current:
            return
        for message in messages:
            assert self.deliver(*message), message
            self.never_two_owners()
        if name == "finish":
            self.current = self.current - {bundle} | {child for child, _ in messages[:2]}

    @invariant()
    def never_two_owners(self) -> None:
        """No hash has two owners, but for the children of a split while their parent is still there."""
        problems = findings(self.ours.units, {}, self.ours.rejected, BROKERS, Deadlines(), 10**12)
        assert not [one for one in problems if one.code is FindingCode.OWNED_TWICE]
        owned = [
            (int(name[-19:-11], 16), int(name[-8:], 16))
            for name, unit in self.ours.units.items()
            if unit.state in ACTIVE - {UnitState.SPLITTING}
        ]
        owned.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(owned))


def play(machine: type[Tables], oracle: Oracle, examples: int, *, store: bool, same: bool = True) -> Counter[str]:
    """Run the machine with Hypothesis, in the same or in other games each time. Return the number of deliveries by
    outcome.
    """
    counts = Counter[str]()
    machine_class = type(machine.__name__, (machine,), {"oracle": oracle, "seen": counts, "store": store})
    limits = settings(
        max_examples=examples,
        stateful_step_count=40,
        derandomize=same,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    run_state_machine_as_test(machine_class, settings=limits)
    return counts


@pytest.mark.parametrize("store", [False, True])
def test_racing_brokers(oracle: Oracle, store: bool) -> None:
    """Same table after each message, whatever comes; every kind was accepted and rejected in the course of it."""
    counts = play(Racing, oracle, 60, store=store)
    for state in ("Owned", "Assigning", "Releasing", "Free"):
        assert counts[f"{state} accepted"] >= 5 and counts[f"{state} rejected"] >= 5, counts
    assert min(counts["tombstone accepted"], counts["Owned by force accepted"], counts["Splitting accepted"]) >= 5, (
        counts
    )


@pytest.mark.parametrize("store", [False, True])
def test_orderly_brokers(oracle: Oracle, store: bool) -> None:
    """Nothing is rejected, and no hash ever has two owners; splits within splits among it."""
    counts = play(Orderly, oracle, 60, store=store)
    assert not [kind for kind in counts if "rejected" in kind]
    for state in ("Owned", "Assigning", "Releasing", "Free", "Splitting", "Deleted", "Owned by force"):
        assert counts[f"{state} accepted"] >= 5, counts


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", [Racing, Orderly])
@pytest.mark.parametrize("store", [False, True])
def test_long_plays(oracle: Oracle, store: bool, machine: type[Tables]) -> None:
    assert play(machine, oracle, 1500, store=store, same=False).total() > 10_000
