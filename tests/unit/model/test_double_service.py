"""Topics that two brokers serve at the same time: which readings show it, and what does not look like it."""

from __future__ import annotations

import pytest

from bundlekeel.model.counters import CounterReading, measured
from bundlekeel.model.double_service import CLEAR_READINGS, EXPIRY_MS, DoubleService, Growth
from tests.unit.model.test_counters import HALVES, HIGH, LOW, reading

TOPIC, OTHER, UPPER = 7, 8, 0x90000000


class Readers:
    """Readings of brokers, in the order of the calls. A reading takes 100 ms."""

    def __init__(self) -> None:
        self.double = DoubleService()
        self.last: dict[str, CounterReading] = {}

    def read(self, broker: str, at_s: float, topics: dict[int, float]) -> list[tuple[str, tuple[str, ...], int]]:
        """Add a reading with the bytes of each topic. Returns bundle, brokers and topics of each report."""
        after = reading(at_s, topics)
        if broker in self.last:
            load = measured(self.last[broker], after, HALVES)
            assert load is not None
            self.double.add(broker, load.growth)
        self.last[broker] = after
        return [(item.bundle, item.brokers, item.topics) for item in self.double.reports(int(1000 * at_s))]


@pytest.fixture
def readers() -> Readers:
    """No readings yet; the topics of the first one at a:1."""
    readers = Readers()
    readers.read("a:1", 0, {TOPIC: 100.0, UPPER: 5.0})
    return readers


def test_a_topic_that_grows_at_two_brokers(readers: Readers) -> None:
    """The second reading of the second broker shows it, whichever broker is read last."""
    assert readers.read("b:1", 5, {TOPIC: 3.0}) == []
    assert readers.read("a:1", 15, {TOPIC: 200.0, UPPER: 6.0}) == []
    assert readers.read("b:1", 20, {TOPIC: 9.0}) == [(LOW, ("a:1", "b:1"), 1)]
    (report,) = readers.double.reports(20_000)
    assert (report.since_ms, report.confirmed_ms) == (5_050, 18_950)


def test_all_topics_and_bundles_count(readers: Readers) -> None:
    readers.read("b:1", 5, {TOPIC: 3.0, OTHER: 1.0, UPPER: 1.0})
    readers.read("a:1", 15, {TOPIC: 200.0, UPPER: 6.0, OTHER: 1.0})
    assert readers.read("b:1", 20, {TOPIC: 9.0, OTHER: 2.0, UPPER: 2.0}) == [
        (LOW, ("a:1", "b:1"), 1),
        (HIGH, ("a:1", "b:1"), 1),
    ]


@pytest.mark.parametrize(
    ("at_s", "counts"),
    [
        ((5, 20), ({OTHER: 3.0}, {OTHER: 9.0})),  # another topic of the bundle
        ((5, 20), ({TOPIC: 3.0}, {TOPIC: 3.0})),  # loaded, but not used
        ((5, 20), ({TOPIC: 3.0}, {TOPIC: 1.0})),  # loaded again between the readings
        ((5, 20), ({}, {TOPIC: 9.0})),  # loaded after the first reading
        ((15, 30), ({TOPIC: 3.0}, {TOPIC: 9.0})),  # the first reading at a time when the other broker was read last
        ((15.9, 30), ({TOPIC: 3.0}, {TOPIC: 9.0})),
    ],
)
def test_what_is_no_sign(
    readers: Readers, at_s: tuple[float, float], counts: tuple[dict[int, float], dict[int, float]]
) -> None:
    readers.read("a:1", 15, {TOPIC: 200.0, UPPER: 6.0})
    for at, topics in zip(at_s, counts, strict=True):
        assert readers.read("b:1", at, topics) == []


def test_an_unused_topic_at_the_first_broker_is_no_sign(readers: Readers) -> None:
    """Its clients have gone, but it is still loaded there."""
    readers.read("a:1", 15, {TOPIC: 100.0})
    readers.read("b:1", 5, {TOPIC: 3.0})
    assert readers.read("b:1", 20, {TOPIC: 9.0}) == []


def _report(readers: Readers) -> None:
    readers.read("b:1", 5, {TOPIC: 3.0})
    readers.read("a:1", 15, {TOPIC: 200.0})
    assert readers.read("b:1", 20, {TOPIC: 9.0})


def test_a_report_ends_after_readings_of_both_brokers_without_it(readers: Readers) -> None:
    """A broker that is read more often than the other one does not end it alone."""
    _report(readers)
    for number in range(2 * CLEAR_READINGS):
        assert readers.read("b:1", 23 + 3 * number, {TOPIC: 10.0 + number})
    for number in range(1, CLEAR_READINGS):
        assert readers.read("a:1", 45 + 15 * number, {})
    assert readers.read("a:1", 105, {}) == []


def test_a_report_continues_while_readings_confirm_it(readers: Readers) -> None:
    _report(readers)
    for number in range(1, 30):
        assert readers.read("a:1", 15 + 15 * number, {TOPIC: 200.0 + number})
        assert readers.read("b:1", 20 + 15 * number, {TOPIC: 9.0 + number})
    (report,) = readers.double.reports(1000)
    assert report.since_ms == 5_050


def test_a_report_expires_without_readings(readers: Readers) -> None:
    _report(readers)
    (report,) = readers.double.reports(20_000)
    assert readers.double.reports(report.confirmed_ms + EXPIRY_MS - 1)
    assert readers.double.reports(report.confirmed_ms + EXPIRY_MS) == ()


def test_a_broker_whose_process_ended_serves_nothing(readers: Readers) -> None:
    _report(readers)
    readers.double.end("b:1")
    assert readers.double.reports(20_000) == ()
    readers.double.add("b:1", Growth(from_ms=20_050, to_ms=30_000))
    assert readers.read("a:1", 30, {TOPIC: 300.0}) == []


def test_a_broker_that_is_registered_again_keeps_its_report(readers: Readers) -> None:
    """Its next readings do not continue the last ones, but its process is the same."""
    _report(readers)
    readers.double.forget("b:1")
    assert readers.read("a:1", 30, {TOPIC: 300.0}) == [(LOW, ("a:1", "b:1"), 1)]


def test_three_brokers(readers: Readers) -> None:
    """A bundle has one report, with all of its brokers."""
    _report(readers)
    readers.read("c:1", 21, {TOPIC: 1.0})
    assert readers.read("c:1", 29, {TOPIC: 2.0}) == [(LOW, ("a:1", "b:1"), 1)]
    assert readers.read("a:1", 31, {TOPIC: 300.0}) == [(LOW, ("a:1", "b:1", "c:1"), 1)]
    readers.double.end("b:1")
    assert readers.read("b:1", 32, {}) == [(LOW, ("a:1", "c:1"), 1)]
