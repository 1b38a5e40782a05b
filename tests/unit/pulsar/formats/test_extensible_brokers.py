"""Reports of extensible brokers from topic messages and admin responses: scores, traffic, ages, tombstones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.extensible import is_rest
from bundlekeel.ports import FeedState, LatestLoad
from bundlekeel.pulsar.formats.records import decode_endpoint
from tests.support.book_bench import BUSY, HALF, STARTED, A, B, Bench, C, X, Y, score
from tests.support.builders import NOW_MS
from tests.support.memory_feed import bundle_loads

# --- score of the topics, traffic of the statistics -------------------------------------------------------


def test_the_score_is_heard_and_the_bundles_are_asked() -> None:
    """All bundles with their own traffic; the broker's sum is theirs, however old its own message is."""
    bench = Bench("all", A)
    bench.say(bench.load(A, 0.4, BUSY, bundles=2), top=bundle_loads(**{X: BUSY}))
    bench.poll(A, **{X: HALF, Y: HALF, "pulsar/system/0x00000000_0xffffffff": (1.0, 1.0, 10.0, 10.0)})
    report = bench.reports()[A]
    assert score(report) == pytest.approx(0.4)
    assert report.bundle_names == (X, Y, "pulsar/system/0x00000000_0xffffffff")
    assert report.traffic.tolist() == [101.0, 101.0, 1_000_010.0, 1_000_010.0]
    assert (report.faults, report.num_topics, report.start_timestamp) == ((), 3, STARTED)


@pytest.mark.parametrize(("persistent", "non_persistent"), [(True, True), (False, True), (True, False)])
def test_the_registry_says_what_kinds_of_topics_a_broker_serves(persistent: bool, non_persistent: bool) -> None:
    record = {
        "webServiceUrl": "http://a:1",
        "brokerVersion": "4.2.4",
        "startTimestamp": STARTED,
        "persistentTopicsEnabled": persistent,
        "nonPersistentTopicsEnabled": non_persistent,
    }
    bench = Bench("all", A)
    bench.book.register({A: decode_endpoint(A, json.dumps(record).encode())})
    bench.say(bench.load(A, 0.4, BUSY))
    report = bench.reports()[A]
    assert (report.persistent_topics_enabled, report.non_persistent_topics_enabled) == (persistent, non_persistent)


def test_bundles_without_a_loaded_topic_are_one_row() -> None:
    """The broker counts them, its statistics do not name them: a broker with one busy bundle has others too."""
    bench = Bench("all", A)
    bench.say(bench.load(A, 0.4, bundles=5))
    bench.poll(A, **{X: BUSY})
    names, traffic = bench.reports()[A].bundle_names, bench.reports()[A].bundle_traffic
    assert [is_rest(name) for name in names] == [False, True]
    assert traffic[1].tolist() == [0.0] * 4


def test_top_asks_nobody_who_was_heard() -> None:
    """The ten of the topic and one row for the rest; statistics are wanted of brokers that were not heard."""
    bench = Bench("top", A, B)
    bench.say(bench.load(A, 0.4, BUSY, bundles=3), top=bundle_loads(**{X: HALF}))
    assert [bench.book.wants_stats(broker, bench.now) for broker in (A, B)] == [False, True]
    report = bench.reports()[A]
    assert report.bundle_names[0] == X and is_rest(report.bundle_names[1])
    assert report.bundle_traffic[1].tolist() == list(HALF)
    assert report.faults == ()


def test_top_bundles_stand_in_for_statistics_that_cannot_be_had() -> None:
    """Marked as such."""
    bench = Bench("all", A)
    bench.say(bench.load(A, 0.4, BUSY, bundles=2), top=bundle_loads(**{X: HALF}))
    bench.book.failed(A, "no answer")
    report = bench.reports()[A]
    assert report.bundle_names[0] == X
    assert report.faults == ((Code.TOP_BUNDLES_ONLY, "bundles"),)


def test_a_bundle_that_cannot_be_read_is_part_of_the_rest() -> None:
    """The broker carries it all the same, by its own message; the fault is in the report, and so is counted."""
    bench = Bench("all", A)
    bench.say(bench.load(A, 0.4, BUSY, bundles=2))
    bench.book.polled(A, replace(bundle_loads(**{X: HALF}), faults=((Code.WRONG_TYPE, "topics.y"),)), bench.now)
    report = bench.reports()[A]
    assert report.faults == ((Code.WRONG_TYPE, "topics.y"),)
    assert [is_rest(name) for name in report.bundle_names] == [False, True]
    assert report.bundle_traffic.tolist() == [list(HALF), list(HALF)]
    assert report.traffic.tolist() == list(BUSY)


def test_a_broker_that_takes_no_connections_takes_no_part() -> None:
    """At once, whatever was known of it a moment ago; and again as soon as it answers, which is news."""
    bench = Bench("all", A, B)
    for broker, bundle in ((A, X), (B, Y)):
        bench.say(bench.load(broker, 0.4, BUSY, bundles=1))
        bench.poll(broker, **{bundle: BUSY})
    assert bench.book.failed(A, "connection refused", unreachable=True)
    assert not bench.book.failed(A, "connection refused", unreachable=True), "told once"
    assert (sorted(bench.reports()), bench.codes()) == ([B], {A: Code.ADMIN_UNREACHABLE})
    assert bench.poll(A, **{X: BUSY})
    assert (sorted(bench.reports()), bench.codes()) == ([A, B], {})


# --- who is alive -------------------------------------------------------------------------------------------


def test_a_withdrawn_broker_stays_with_what_it_said_last() -> None:
    """A tombstone is part of every move, and no death."""
    bench = Bench("all", A)
    bench.say(bench.load(A, 0.4))
    bench.poll(A, **{X: BUSY})
    before = bench.reports()[A]
    bench.latest[A] = replace(bench.latest[A], withdrawn_ms=bench.now.wall_ms)
    bench.listen()
    after = bench.reports()[A]
    assert (score(after), after.last_update) == (score(before), before.last_update)


def test_a_broker_that_is_not_registered_is_out_at_once() -> None:
    bench = Bench("all", A, B)
    for broker in (A, B):
        bench.say(bench.load(broker, 0.4))
        bench.poll(broker, **{X if broker == A else Y: BUSY})
    bench.register(B)
    bench.listen()
    assert (list(bench.reports()), bench.codes()) == ([B], {})
    bench.seconds = 20.0
    bench.register(A, B, started=bench.now.wall_ms)
    bench.listen()
    assert bench.codes() == {A: Code.NO_LOAD_DATA, B: Code.NO_LOAD_DATA}
    bench.say(bench.load(A, 0.2))
    bench.poll(A, **{X: HALF})
    assert score(bench.reports()[A]) == pytest.approx(0.2)


# --- when something new is known ----------------------------------------------------------------------------


def test_last_update_advances_with_news_only() -> None:
    """Other figures, or a whole statistics interval with the same ones; not each poll."""
    bench = Bench("all", A)
    bench.say(bench.load(A, 0.4))
    bench.poll(A, **{X: BUSY})
    entries = []
    for second in range(10, 200, 10):
        bench.seconds = float(second)
        rates = HALF if second >= 100 else BUSY
        bench.poll(A, **{X: rates})
        bench.listen()
        entries.append(bench.reports()[A].last_update - NOW_MS)
    news = [stamp for place, stamp in enumerate(entries) if place == 0 or entries[place - 1] != stamp]
    assert news == [1, 60_000, 100_000, 160_000]


def test_the_statistics_interval_is_the_brokers() -> None:
    bench = Bench("all", A)
    settings: dict[str, Mapping[str, str]] = {
        A: {"statsUpdateFrequencyInSecs": "5"},
        B: {"statsUpdateFrequencyInSecs": "?"},
    }
    bench.book.settings_of = settings.get
    assert [bench.book.stats_seconds(broker) for broker in (A, B, C)] == [5.0, 60.0, 60.0]
    assert bench.poll(A, **{X: BUSY})
    bench.seconds = 4.0
    assert not bench.poll(A, **{X: BUSY})
    bench.seconds = 6.0
    assert bench.poll(A, **{X: BUSY})


def test_n_c_another_assigner_of_topics() -> None:
    """Brokers show the class in their settings, before 3.1 none."""
    bench = Bench("all", A)
    key = "topicBundleAssignmentStrategy"
    settings: dict[str, Mapping[str, str]] = {
        A: {key: "org.apache.pulsar.common.naming.ConsistentHashingTopicBundleAssigner"},
        B: {key: " org.example.RoundRobin "},
        C: {},
    }
    bench.book.settings_of = settings.get
    assert [bench.book.other_assigner(broker) for broker in (A, B, C, "d")] == ["", "org.example.RoundRobin", "", ""]


def test_brokers_whose_metrics_page_is_buffered() -> None:
    bench = Bench("all", A)
    bench.book.settings_of = {A: {"metricsBufferResponse": "true"}, B: {"metricsBufferResponse": "false"}, C: {}}.get
    assert [bench.book.buffers_pages(broker) for broker in (A, B, C, "d")] == [True, False, False, False]


def test_last_update_never_goes_back_nor_ahead_of_the_arrival() -> None:
    bench = Bench("all", A)
    bench.say(replace(bench.load(A, 0.4), updated_at=NOW_MS + 3_600_000))
    bench.poll(A, **{X: BUSY})
    stamps = [bench.reports()[A].last_update]
    for second, updated in ((5.0, NOW_MS - 60_000), (6.0, NOW_MS + 6_000)):
        bench.seconds = second
        bench.say(replace(bench.load(A, 0.5), updated_at=updated))
        stamps.append(bench.reports()[A].last_update)
    assert stamps[0] <= NOW_MS + 1
    assert stamps == sorted(set(stamps))
    assert stamps[-1] == NOW_MS + 6_000


@pytest.mark.parametrize("ahead_ms", [0, 1_800_000, -1_800_000])
def test_n_f_load_data_are_as_new_as_their_arrival(ahead_ms: int) -> None:
    """Rule: ages follow the sidecar's clock, and so does the start of the broker; a clock that is behind makes nothing
    look old.
    """
    bench = Bench("all")
    bench.register(A, started=NOW_MS - 60_000 + ahead_ms)
    bench.say(replace(bench.load(A, 0.4), updated_at=NOW_MS + ahead_ms))
    bench.poll(A, **{X: BUSY})
    bench.seconds = 300.0
    bench.say(replace(bench.load(A, 0.5), updated_at=bench.now.wall_ms + ahead_ms))
    broker_reports = bench.reports()[A]
    assert (broker_reports.last_update, broker_reports.clock_ahead_ms) == (bench.now.wall_ms, ahead_ms)
    assert broker_reports.started_ms == NOW_MS - 60_000


def test_top_bundles_are_news_where_no_statistics_are_asked() -> None:
    stamps = {}
    for setting in ("top", "all"):
        bench = Bench(setting, A)
        bench.say(bench.load(A, 0.4), top=bundle_loads(**{X: BUSY}))
        bench.poll(A, **{X: BUSY})
        first = bench.reports()[A].last_update
        bench.seconds = 20.0
        bench.latest[A] = replace(bench.latest[A], bundles=bundle_loads(**{X: BUSY}), bundles_ms=bench.now.wall_ms)
        bench.listen()
        stamps[setting] = bench.reports()[A].last_update - first
    assert stamps["all"] == 0
    assert stamps["top"] > 19_000


# --- ages and failures -----------------------------------------------------------------------------------------


def test_load_older_than_its_time_to_live() -> None:
    """With statistics it is filled in as if never heard; without, the broker is left out."""
    bench = Bench("all", A, B)
    bench.book.settings_of = lambda _broker: {"loadBalancerBrokerLoadDataTTLInSeconds": "100"}
    for broker in (A, B):
        bench.say(bench.load(broker, 0.5))
        bench.poll(broker, **{X if broker == A else Y: BUSY})
    bench.seconds = 101.0
    bench.say(bench.load(A, 0.4))
    bench.poll(A, **{X: BUSY})
    assert (list(bench.reports()), bench.codes()) == ([A], {B: Code.OUT_DATED_DATA})
    bench.poll(B, **{Y: HALF})
    assert bench.reports()[B].faults == ((Code.IMPUTED_SCORE, "weightedMaxEMA"),)


@pytest.mark.parametrize("state", ["stuck", "down", "connecting"])
def test_without_the_topics_the_last_scores_stand(state: FeedState) -> None:
    """Marked after a moment, as long as statistics come; a broker that is neither heard nor answers is left out."""
    bench = Bench("all", A, B)
    for broker in (A, B):
        bench.say(bench.load(broker, 0.5))
        bench.poll(broker, **{X if broker == A else Y: BUSY})
    bench.state = state
    bench.listen()
    assert all(report.faults == () for report in bench.reports().values())
    bench.seconds = 60.0
    bench.poll(A, **{X: HALF})
    bench.listen()
    broker_reports = bench.reports()
    assert broker_reports[A].faults == ((Code.STALE_SCORE, "weightedMaxEMA"),)
    assert (score(broker_reports[A]), broker_reports[A].traffic.tolist()) == (pytest.approx(0.5), list(HALF))
    assert bench.codes() == {B: Code.OUT_DATED_DATA}


def test_top_asks_everybody_while_the_topics_are_silent() -> None:
    bench = Bench("top", A)
    bench.say(bench.load(A, 0.4), top=bundle_loads(**{X: BUSY}))
    assert not bench.book.wants_stats(A, bench.now)
    bench.state = "down"
    bench.listen()
    assert bench.book.wants_stats(A, bench.now)
    bench.seconds = 60.0
    bench.poll(A, **{X: HALF})
    assert bench.reports()[A].traffic.tolist() == list(HALF)


def test_a_few_failed_polls_change_nothing() -> None:
    """A broker that pauses for some seconds is planned with as it was."""
    bench = Bench("all", A)
    bench.say(bench.load(A, 0.4), top=bundle_loads(**{X: HALF}))
    bench.poll(A, **{X: BUSY})
    bench.seconds = 25.0
    bench.book.failed(A, "no answer")
    assert bench.reports()[A].faults == ()
    bench.seconds = 31.0
    assert bench.reports()[A].faults == ((Code.TOP_BUNDLES_ONLY, "bundles"),)


def test_what_is_wrong_with_an_excluded_broker_is_said() -> None:
    """The fault of its message, or why it did not answer."""
    bench = Bench("all", A, B, C)
    bench.latest[A] = LatestLoad(fault=(Code.NOT_JSON, "the record is not JSON"))
    bench.listen()
    bench.book.failed(B, "connection refused")
    result = {item.broker_id: (item.code, item.detail) for item in bench.book.reports(bench.now)[1]}
    assert result[A] == (Code.NOT_JSON, "the record is not JSON")
    assert result[B] == (Code.NO_LOAD_DATA, "connection refused")
    assert result[C][0] == Code.NO_LOAD_DATA
    assert bench.book.unasked() == [A, C]


def test_answers_of_brokers_that_left_are_dropped() -> None:
    """A poll may come back after the broker is gone."""
    bench = Bench("all", A)
    bench.register(B)
    assert not bench.poll(A, **{X: BUSY})
    bench.book.failed(A, "gone")
    assert not bench.book.wants_stats(A, bench.now)
    assert set(bench.codes()) == {B}


def test_news_is_what_differs() -> None:
    """Names, rates or counts."""
    bench = Bench("all", A)
    assert bench.poll(A, **{X: BUSY})
    assert not bench.poll(A, **{X: BUSY})
    assert bench.poll(A, **{Y: BUSY})
    assert bench.poll(A, **{Y: HALF})
    counted = replace(bundle_loads(**{Y: HALF}), counts=np.full((1, 3), 2, dtype=np.int64))
    assert bench.book.polled(A, counted, bench.now)
