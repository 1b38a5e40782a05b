"""Laws of the detection of double service: moves never look like it, and it is found within two readings."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.counters import CounterReading, measured
from bundlekeel.model.double_service import DoubleService, ServedTwice
from tests.unit.model.test_counters import HALVES, reading

TOPIC = 7
BROKERS = tuple("abc")


@dataclass(frozen=True)
class _Page:
    """One reading: when the broker is asked, how long it takes, and when in between the page was written (0 to 1)."""

    broker: str
    pause: float
    takes: float
    written: float


pages = st.lists(
    st.builds(_Page, st.sampled_from(BROKERS), st.floats(0.05, 8), st.floats(0, 2), st.floats(0, 1)),
    min_size=10,
    max_size=40,
)


def _reports(
    pages: list[_Page], served: dict[str, tuple[float, float]], rate: float
) -> list[tuple[float, ServedTwice]]:
    """Return each report with its time (seconds), while each broker serves the topic in the time `served` (seconds).

    Each broker is read when its pause is over, and its counter is that of the time at which the page was written."""
    double, last, result, at = (
        DoubleService(),
        dict[str, CounterReading](),
        list[tuple[float, ServedTwice]](),
        dict[str, float](),
    )
    asked = []
    for page in pages:
        started = at.get(page.broker, 0.0) + page.pause
        at[page.broker] = started + page.takes
        asked.append((started + page.takes, started, page))
    for ended, started, page in sorted(asked, key=lambda item: item[0]):
        written = started + page.takes * page.written
        since, until = served.get(page.broker, (0.0, 0.0))
        topics = {TOPIC: rate * (written - since)} if since <= written < until else {}
        after = CounterReading(
            **{
                **{name: getattr(reading(0, topics), name) for name in CounterReading.__dataclass_fields__},
                "from_ms": int(1000 * started),
                "to_ms": int(1000 * ended) + 1,
            }
        )
        if page.broker in last and (load := measured(last[page.broker], after, HALVES)) is not None:
            double.add(page.broker, load.growth)
            result += [(ended, item) for item in double.reports(after.to_ms)]
        last[page.broker] = after
    return result


@given(pages, st.lists(st.floats(2, 20), min_size=len(BROKERS), max_size=len(BROKERS)), st.permutations(BROKERS))
def test_a_topic_that_moves_from_broker_to_broker_is_never_reported(
    pages: list[_Page], stays: list[float], brokers: list[str]
) -> None:
    """However long each broker serves it, and however often, unevenly and slowly the brokers are read."""
    served, since = {}, 0.0
    for broker, stay in zip(brokers, stays, strict=True):
        served[broker], since = (since, since + stay), since + stay
    assert _reports(pages, served, 1000.0) == []


@given(
    st.lists(st.floats(3.0, 15.0), min_size=9, max_size=9),
    st.lists(st.floats(3.0, 15.0), min_size=9, max_size=9),
    st.floats(0.0, 40.0),
)
def test_a_topic_of_two_brokers_is_reported_within_two_readings(
    first: list[float], second: list[float], since: float
) -> None:
    """At the latest when both brokers have been read twice since the second one serves it, and once more if the two
    readings of one of them are older than those of the other."""
    pages = [_Page(broker, pause, 0.1, 1.0) for broker, pauses in (("a", first), ("b", second)) for pause in pauses]
    ends = {"a": _ends(first), "b": _ends(second)}
    twice = max(times[min(bisect_right(times, since) + 2, len(times) - 1)] for times in ends.values())
    at, report = _reports(pages, {"a": (0.0, 1e9), "b": (since, 1e9)}, 1000.0)[0]
    assert report.brokers == ("a", "b") and at <= twice + 0.1


def _ends(pauses: list[float]) -> list[float]:
    ends = [0.0]
    for pause in pauses:
        ends.append(ends[-1] + pause + 0.1)
    return ends[1:]
